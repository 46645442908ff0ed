-- long_queue: part of `push`. Report the size of a domain's queue to the caller, who packs a long one (pack.lua).
--
-- base  the prefix of q:<domain> zset, d:<domain> hash (packed)

local reported = {}

local function report(base, domain)
  local packed = redis.call('HGET', base .. 'd:' .. domain, 'packed') or '0'
  reported[#reported + 1] = {domain, redis.call('ZCARD', base .. 'q:' .. domain), packed}
end
