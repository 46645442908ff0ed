-- reserve_budget: report the pages that a replica has fetched, and give it permits for more. The pages and permits of all
-- replicas together never exceed the limit. Near the limit a replica gets only its share of the rest, so that the other
-- replicas can continue, too.
--
-- While there is no limit, a replica fetches without permits, and pages are not counted. A limit that is set then takes
-- effect when all these replicas know it and the counters have been read: see recount. The limit of the newest settings
-- applies to all callers, so no replica gets permits by an earlier one.
--
-- A report may be repeated, because a replica reports its pages since its start, not since the last report. A call that
-- is older than the replica's last one changes nothing. The permits of a replica that stopped reporting count as used,
-- since some of them may have been: see recount.
--
-- A server that was restarted or replaced may have forgotten the last reports and permits. So it gives no permits for
-- QUIET_MS, in which all replicas report what they hold.
--
-- KEYS[1] budget  hash  used, held, free (replicas without permits), counted (1 if `used` is known), recounts, revision,
--                       limit, run, quiet_ms, replica:<replica> -> "permits pages call", with -1 permits if it
--                       fetches without
-- KEYS[2] takers  zset  replica that holds or wants permits, or fetches without -> when they expire, ms
-- ARGV[1] replica   ARGV[2] number of the call, rising   ARGV[3] its pages since its start
-- ARGV[4] how many of them were already reported, used if Redis does not know the replica   ARGV[5] permits to keep,
-- or -1 to fetch without   ARGV[6] total permits wanted, or -1 to leave   ARGV[7] limit, 0 for none
-- ARGV[8] revision of the settings with this limit   ARGV[9] when its permits expire, ms
-- ARGV[10] expire the permits of others that end before this time, ms   ARGV[11] run: of the server process
-- ARGV[12] now_ms
--
-- Returns {"reserved", its permits, used by all, permits of all, its share of the rest, counted, free, recounts, limit,
-- revision}

-- Replicas report once a second, and some hundred milliseconds after a short outage.
local QUIET_MS = 3000

local mine = 'replica:' .. ARGV[1]
local keep, wanted, run, now_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[11], tonumber(ARGV[12])

local state = redis.call('HMGET', KEYS[1], mine, 'used', 'held', 'free', 'counted', 'recounts', 'revision', 'limit')
local known_run, quiet_ms = unpack(redis.call('HMGET', KEYS[1], 'run', 'quiet_ms'))
quiet_ms = tonumber(quiet_ms or '0')
local permits, reported, call = string.match(state[1] or ('0 ' .. ARGV[4] .. ' 0'), '^(-?%d+) (%d+) (%d+)$')
permits = tonumber(permits)
for i = 2, #state do state[i] = tonumber(state[i] or '0') end
local used, held, free, counted, recounts, revision, limit = unpack(state, 2)

if tonumber(ARGV[2]) <= tonumber(call) then
  return {'reserved', permits, used, held, 0, counted, free, recounts, limit, revision}
end
if tonumber(ARGV[8]) > revision then
  limit, revision = tonumber(ARGV[7]), tonumber(ARGV[8])
end

if run ~= '' and run ~= known_run then
  -- A replica that has called before knows of a run, even if the server has forgotten all.
  if known_run or tonumber(ARGV[2]) > 1 then quiet_ms = now_ms + QUIET_MS end
  redis.call('HSET', KEYS[1], 'run', run, 'quiet_ms', quiet_ms)
end

for _, silent in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', '(' .. ARGV[10], 'BYSCORE', 'LIMIT', 0, 10)) do
  if silent ~= ARGV[1] then
    local lapsed = tonumber(string.match(redis.call('HGET', KEYS[1], 'replica:' .. silent) or '0', '^-?%d+'))
    if lapsed < 0 then
      free = free - 1
    else
      used, held = used + lapsed, held - lapsed
    end
    redis.call('HDEL', KEYS[1], 'replica:' .. silent)
    redis.call('ZREM', KEYS[2], silent)
  end
end

used = used + math.max(0, ARGV[3] - reported)
local was_free = permits < 0
if was_free then
  free = free - 1
else
  held = held - permits
end
local goes_free = keep < 0 and (limit == 0 or was_free)
if goes_free or keep > 0 or wanted > 0 then
  redis.call('ZADD', KEYS[2], ARGV[9], ARGV[1])
else
  redis.call('ZREM', KEYS[2], ARGV[1])
end

local share = 0
if goes_free then
  permits, free, counted, recounts = -1, free + 1, 0, recounts + 1
else
  if counted == 1 then
    local fair = math.ceil(math.max(0, limit - used) / math.max(1, redis.call('ZCARD', KEYS[2])))
    share = math.max(0, math.min(fair, limit - used - held))
  end
  -- Not more than the whole period, also after the server's clock has stepped back.
  local is_quiet = quiet_ms > now_ms and quiet_ms <= now_ms + QUIET_MS
  permits = wanted < 0 and 0 or math.max(keep, math.min(wanted, is_quiet and 0 or share))
  held = held + permits
end
if wanted < 0 then
  redis.call('HDEL', KEYS[1], mine)
else
  redis.call('HSET', KEYS[1], mine, string.format('%.0f %s %s', permits, ARGV[3], ARGV[2]))
end
local function text(number) return string.format('%.0f', number) end
redis.call('HSET', KEYS[1], 'used', text(used), 'held', text(held), 'free', text(free), 'counted', counted,
  'recounts', text(recounts), 'revision', text(revision), 'limit', text(limit))
return {'reserved', permits, used, held, share, counted, free, recounts, limit, revision}
