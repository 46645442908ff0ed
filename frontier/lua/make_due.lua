-- make_due: part of `push`. Let a domain that is not leased be due, when its delay is over.
--
-- base  the prefix of due zset, leases zset, d:<domain> hash (next)

local function make_due(base, domain, now_ms)
  if not redis.call('ZSCORE', base .. 'leases', domain) then
    local next_ms = tonumber(redis.call('HGET', base .. 'd:' .. domain, 'next') or '0')
    redis.call('ZADD', base .. 'due', 'NX', math.max(now_ms, next_ms), domain)
  end
end
