-- end_reservation: end a reserved request to a domain and start the domain's delay.
-- A late or repeated call changes nothing.
--
-- KEYS[1] due  zset  domain -> due ms
-- KEYS[2] d:<domain>  hash  next, held, reserved (the last `next` of a reservation)
-- ARGV[1] domain   ARGV[2] until_ms, as `reserve` returned it   ARGV[3] next_ms: when the next request may start
--
-- Returns {"ended"} | {"stale"}

local domain_key = KEYS[2]

local known = redis.call('HMGET', domain_key, 'next', 'held')
if known[2] ~= ARGV[2] then return {'stale'} end
local next_ms = ARGV[3]
-- A lease that ended during the reservation has postponed the next request.
if known[1] ~= ARGV[2] and tonumber(known[1]) > tonumber(next_ms) then next_ms = known[1] end
redis.call('HSET', domain_key, 'next', next_ms, 'reserved', next_ms)
redis.call('HDEL', domain_key, 'held')
redis.call('ZADD', KEYS[1], 'XX', next_ms, ARGV[1])
local kept_ms, longer_ms = redis.call('PTTL', domain_key), next_ms - ARGV[2]
if kept_ms > 0 and longer_ms > 0 then redis.call('PEXPIRE', domain_key, string.format('%.0f', kept_ms + longer_ms)) end
return {'ended'}
