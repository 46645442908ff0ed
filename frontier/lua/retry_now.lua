-- retry_now: end the backoff of a domain, and make some of its URLs that wait for a retry ready now.
--
-- The domain's delay stays: unless the domain is leased or reserved, its last response has ended, so a request is not too
-- early if it is the delay from now away. A lease or a reservation is left alone, and its holder says when the domain is due.
--
-- KEYS[1] due      zset  domain -> due ms
-- KEYS[2] leases   zset  domain -> expiry ms
-- KEYS[3] waiting  zset  "domain LF priority LF entry" -> ready ms
-- KEYS[4] d:<domain>  hash  next, delay, held, state
-- ARGV[1] domain   ARGV[2] now_ms   ARGV[3] default_delay_ms
-- ARGV[4...] members of `waiting`; one that no longer waits is skipped
--
-- Returns {"ready" | "held", number of URLs made ready}: held if the domain is leased or reserved

local domain, now_ms = ARGV[1], tonumber(ARGV[2])
local ready = 0
for i = 4, #ARGV do ready = ready + redis.call('ZADD', KEYS[3], 'XX', 'LT', 'CH', now_ms, ARGV[i]) end

local known = redis.call('HMGET', KEYS[4], 'next', 'delay', 'held')
local next_ms = tonumber(known[1] or '0')
local is_reserved = tonumber(known[3] or '0') > now_ms
if is_reserved or redis.call('ZSCORE', KEYS[2], domain) then return {'held', ready} end
redis.call('HDEL', KEYS[4], 'state')
local due_ms = now_ms + tonumber(known[2] or ARGV[3])
if next_ms > due_ms then
  redis.call('HSET', KEYS[4], 'next', string.format('%.0f', due_ms))
  redis.call('ZADD', KEYS[1], 'XX', 'LT', due_ms, domain)
end
return {'ready', ready}
