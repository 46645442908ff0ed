-- end_reservation: end a reserved request to a domain and start the domain's delay.
-- A late or repeated call changes nothing.
--
-- KEYS[1] due  zset  domain -> due ms
-- KEYS[2] d:<domain>  hash  next, held
-- ARGV[1] domain   ARGV[2] until_ms, as `reserve` returned it   ARGV[3] next_ms: when the next request may start
--
-- Returns {"ended"} | {"stale"}

local domain_key = KEYS[2]

if redis.call('HGET', domain_key, 'next') ~= ARGV[2] then
  return {'stale'}
end
redis.call('HSET', domain_key, 'next', ARGV[3])
redis.call('HDEL', domain_key, 'held')
redis.call('ZADD', KEYS[1], 'XX', ARGV[3], ARGV[1])
local kept_ms, longer_ms = redis.call('PTTL', domain_key), ARGV[3] - ARGV[2]
if kept_ms > 0 and longer_ms > 0 then redis.call('PEXPIRE', domain_key, string.format('%.0f', kept_ms + longer_ms)) end
return {'ended'}
