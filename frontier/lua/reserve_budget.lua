-- reserve_budget: report the pages that a replica has fetched, and give it permits for more. The pages and permits of all
-- replicas together never exceed the limit. Near the limit a replica gets only its share of the rest, so that the other
-- replicas can continue, too.
--
-- A report may be repeated, because a replica reports its pages since its start, not since the last report. A call that
-- is older than the replica's last one changes nothing. The permits of a replica that stopped reporting count as used,
-- since some of them may have been: see recount.
--
-- KEYS[1] budget  hash  used, held, recounts, replica:<replica> -> "permits pages call"
-- KEYS[2] takers  zset  replica that holds or wants permits -> when they expire, ms
-- ARGV[1] replica   ARGV[2] number of the call, rising   ARGV[3] its pages since its start
-- ARGV[4] how many of them were already reported, used if Redis does not know the replica   ARGV[5] permits to keep
-- ARGV[6] total permits wanted, or -1 to leave   ARGV[7] limit   ARGV[8] lower bound for the number of used permits
-- ARGV[9] when its permits expire, ms   ARGV[10] expire the permits of others that end before this time, ms
--
-- Returns {"reserved", its permits, used by all, permits of all, its share of the rest, recounts}

local mine = 'replica:' .. ARGV[1]
local keep, wanted, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local state = redis.call('HMGET', KEYS[1], 'used', 'held', 'recounts', mine)
local used, held, recounts = tonumber(state[1] or '0'), tonumber(state[2] or '0'), tonumber(state[3] or '0')
local permits, reported, call = string.match(state[4] or ('0 ' .. ARGV[4] .. ' 0'), '^(%d+) (%d+) (%d+)$')
permits = tonumber(permits)

if tonumber(ARGV[2]) <= tonumber(call) then
  return {'reserved', permits, used, held, 0, recounts}
end

for _, silent in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', '(' .. ARGV[10], 'BYSCORE', 'LIMIT', 0, 10)) do
  if silent ~= ARGV[1] then
    local lapsed = string.match(redis.call('HGET', KEYS[1], 'replica:' .. silent) or '0', '^%d+')
    used, held = used + lapsed, held - lapsed
    redis.call('HDEL', KEYS[1], 'replica:' .. silent)
    redis.call('ZREM', KEYS[2], silent)
  end
end

used = math.max(used + math.max(0, ARGV[3] - reported), tonumber(ARGV[8]))
held = held - permits
if keep > 0 or wanted > 0 then
  redis.call('ZADD', KEYS[2], ARGV[9], ARGV[1])
else
  redis.call('ZREM', KEYS[2], ARGV[1])
end
local fair = math.ceil(math.max(0, limit - used) / math.max(1, redis.call('ZCARD', KEYS[2])))
local share = math.max(0, math.min(fair, limit - used - held))
permits = math.max(keep, math.min(wanted, share))
if wanted < 0 then
  permits = 0
  redis.call('HDEL', KEYS[1], mine)
else
  redis.call('HSET', KEYS[1], mine, string.format('%.0f %s %s', permits, ARGV[3], ARGV[2]))
end
held = held + permits
redis.call('HSET', KEYS[1], 'used', string.format('%.0f', used), 'held', string.format('%.0f', held))
return {'reserved', permits, used, held, share, recounts}
