-- end_reservation: a reserved request to a domain has ended; the domain rests. Too late, or twice, it changes nothing.
--
-- KEYS[1] due  zset  domain -> due ms
-- also   d:<domain> hash (next, held)
-- ARGV[1] domain   ARGV[2] until_ms, as `reserve` gave it   ARGV[3] next_ms: when the domain may be asked again
--
-- Returns {"ended"} | {"stale"}

local domain_key = string.sub(KEYS[1], 1, -4) .. 'd:' .. ARGV[1]

if redis.call('HGET', domain_key, 'next') ~= ARGV[2] then
  return {'stale'}
end
redis.call('HSET', domain_key, 'next', ARGV[3])
redis.call('HDEL', domain_key, 'held')
redis.call('ZADD', KEYS[1], 'XX', ARGV[3], ARGV[1])
return {'ended'}
