-- long_queue: part of `push`. Report the size of a domain's queue to the caller, who packs a long one (pack.lua). Known
-- pages do not count: they have the highest priorities, and would be unpacked before the next lease.
--
-- base  the prefix of q:<domain> zset, d:<domain> hash (packed)

local reported, NOT_KNOWN = {}, '(5e11'  -- below KNOWN_FROM in known_pages.lua

local function report(base, domain)
  local packed = redis.call('HGET', base .. 'd:' .. domain, 'packed') or '0'
  reported[#reported + 1] = {domain, redis.call('ZCOUNT', base .. 'q:' .. domain, '-inf', NOT_KNOWN), packed}
end
