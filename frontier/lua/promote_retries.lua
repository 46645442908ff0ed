-- promote_retries: part of `lease`. Return waiting entries that are ready to the queues of their domains.
--
-- base  the prefix of waiting zset, q:<domain> zset, inflight:<domain> zset, d:<domain> hash (next), due zset, urgent zset,
--       leases zset,
--       stats hash
--
-- promote_retries returns when the first entry is or was ready, ms

local WAKE = 256
-- Entries of a domain that was set aside wait for so much longer, or they would stay the first that are ready.
local SET_ASIDE_MS = 3600000

local function promote_retry(base, member, domain, now_ms)
  local priority, entry = string.match(member, '^[^\n]*\n([^\n]*)\n(.*)$')
  local is_leased = redis.call('ZSCORE', base .. 'inflight:' .. domain, entry)
  if is_leased or redis.call('ZADD', base .. 'q:' .. domain, 'NX', priority, entry) == 0 then
    count_merged(base .. 'stats')
  end
  redis.call('ZREM', base .. 'waiting', member)
  make_due(base, domain, now_ms, tonumber(priority))
end

local function promote_retries(base, now_ms)
  local waking_ms = first_ms(base .. 'waiting')
  if waking_ms > now_ms then return waking_ms end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', base .. 'waiting', '-inf', now_ms, 'LIMIT', 0, WAKE)) do
    local domain = string.match(member, '^[^\n]*')
    if not attempt(base, domain, promote_retry, base, member, domain, now_ms) then
      redis.call('ZADD', base .. 'waiting', 'XX', now_ms + SET_ASIDE_MS, member)
    end
  end
  return waking_ms
end
