-- settle: tell how leased URLs ended, keep the domain's politeness state, and renew the lease. The last settled
-- URL of a lease ends it. A stale token changes nothing; an entry that is no longer in flight is passed over, so a
-- doubled call counts once. A call that arrives after one that was made later (its sender gave up on it and tried
-- again) never shortens the lease or the rest: their holder counts on what it was told last.
--
-- KEYS[1] due      zset  domain -> due ms
-- KEYS[2] leases   zset  domain -> expiry ms
-- KEYS[3] waiting  zset  "domain LF priority LF entry" -> ready ms
-- KEYS[4] stats    hash  done, dead, denied, retry, <outcome>:<reason>, octets, duplicates,
--                         first_ms, last_ms
-- KEYS[5] dead     hash  "domain LF entry" -> reason
-- also   q:<domain> zset, inflight:<domain> zset, d:<domain> hash (token, delay, next, state)
-- ARGV[1] domain   ARGV[2] token   ARGV[3] now_ms   ARGV[4] lease_ms
-- ARGV[5] next_ms (when the domain may next be fetched from)   ARGV[6] delay_ms ("": as it was)
-- ARGV[7] state ("": as it was)   ARGV[8] octets received   ARGV[9] how many of the URLs were duplicates
-- ARGV[10...] for each URL: outcome, entry, reason, and for retry "ready_ms LF priority LF new entry", else ""
--
-- Returns {"held", expiry_ms} | {"ended", due_ms or -1} | {"stale"}

local base = string.sub(KEYS[1], 1, -4)
local domain, token, now_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local queue, inflight, domain_key = base .. 'q:' .. domain, base .. 'inflight:' .. domain, base .. 'd:' .. domain

local known = redis.call('HMGET', domain_key, 'token', 'next')
if known[1] ~= token then
  return {'stale'}
end

local counts = {}
local function count(name, number) counts[name] = (counts[name] or 0) + number end
for i = 10, #ARGV, 4 do
  local outcome, entry, reason, again = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('ZREM', inflight, entry) == 1 then
    count(outcome, 1)
    count(outcome .. ':' .. reason, 1)
    if outcome == 'dead' then
      redis.call('HSET', KEYS[5], domain .. '\n' .. entry, reason)
    elseif outcome == 'retry' then
      local ready_ms, priority, new_entry = string.match(again, '^([^\n]*)\n([^\n]*)\n(.*)$')
      redis.call('ZADD', KEYS[3], ready_ms, domain .. '\n' .. priority .. '\n' .. new_entry)
    end
  end
end
if next(counts) then
  count('octets', tonumber(ARGV[8]))
  if ARGV[9] ~= '0' then count('duplicates', tonumber(ARGV[9])) end
  local names, fields = {}, {}
  for name in pairs(counts) do names[#names + 1] = name end
  local before = redis.call('HMGET', KEYS[4], 'first_ms', unpack(names))
  for i, name in ipairs(names) do
    fields[2 * i - 1], fields[2 * i] = name, string.format('%.0f', tonumber(before[i + 1] or '0') + counts[name])
  end
  redis.call('HSET', KEYS[4], 'first_ms', before[1] or ARGV[3], 'last_ms', ARGV[3], unpack(fields))
end

local next_ms = math.max(tonumber(ARGV[5]), tonumber(known[2] or '0'))
local news = {'next', string.format('%.0f', next_ms)}
if ARGV[6] ~= '' then news[#news + 1], news[#news + 2] = 'delay', ARGV[6] end
if ARGV[7] ~= '' then news[#news + 1], news[#news + 2] = 'state', ARGV[7] end
redis.call('HSET', domain_key, unpack(news))

if redis.call('EXISTS', inflight) == 1 then
  local expiry_ms = now_ms + tonumber(ARGV[4])
  redis.call('ZADD', KEYS[2], 'GT', expiry_ms, domain)
  return {'held', expiry_ms}
end
redis.call('ZREM', KEYS[2], domain)
redis.call('HDEL', domain_key, 'token')
if redis.call('EXISTS', queue) == 1 then
  redis.call('ZADD', KEYS[1], next_ms, domain)
  return {'ended', next_ms}
end
return {'ended', -1}
