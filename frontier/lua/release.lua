-- release: give a lease back in good order. What was not fetched returns to the queue as it came.
--
-- KEYS[1] due     zset  domain -> due ms
-- KEYS[2] leases  zset  domain -> expiry ms
-- also   q:<domain> zset, inflight:<domain> zset, d:<domain> hash (token, next, state)
-- ARGV[1] domain   ARGV[2] token   ARGV[3] next_ms   ARGV[4] state ("": as it was)
--
-- Returns {"released", due_ms or -1} | {"stale"}

local base = string.sub(KEYS[1], 1, -4)
local domain = ARGV[1]
local queue, inflight, domain_key = base .. 'q:' .. domain, base .. 'inflight:' .. domain, base .. 'd:' .. domain

if redis.call('HGET', domain_key, 'token') ~= ARGV[2] then
  return {'stale'}
end
local entries = redis.call('ZRANGE', inflight, 0, -1, 'WITHSCORES')
for i = 1, #entries, 2 do
  redis.call('ZADD', queue, entries[i + 1], entries[i])
end
redis.call('DEL', inflight)
redis.call('ZREM', KEYS[2], domain)
redis.call('HDEL', domain_key, 'token')
redis.call('HSET', domain_key, 'next', ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', domain_key, 'state', ARGV[4]) end
if redis.call('EXISTS', queue) == 1 then
  redis.call('ZADD', KEYS[1], ARGV[3], domain)
  return {'released', tonumber(ARGV[3])}
end
return {'released', -1}
