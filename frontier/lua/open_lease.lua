-- open_lease: allow reservations of a domain (`reserve`) although it is leased. The holder makes no more requests under the
-- lease: it only waits for the handlers of pages. A repeated call changes nothing.
--
-- KEYS[1] d:<domain>  hash  token, next, open
-- ARGV[1] token   ARGV[2] next_ms: when the next request may start
--
-- Returns {"open"} | {"stale"}

local known = redis.pcall('HMGET', KEYS[1], 'token', 'next')
if known[1] ~= ARGV[1] then return {'stale'} end
if tonumber(ARGV[2]) > tonumber(known[2] or '0') then redis.call('HSET', KEYS[1], 'next', ARGV[2]) end
redis.call('HSET', KEYS[1], 'open', ARGV[1])
return {'open'}
