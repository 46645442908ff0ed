-- wake: part of `lease`. Return waiting entries that are ready to the queues of their domains.
--
-- keys: table with the keys of `lease` by name, and `shard`, the prefix of the keys of a domain
--
-- wake_ready returns when the first entry is or was ready, ms

local WAKE = 256

local function wake_ready(keys, now_ms)
  local waking_ms = first_ms(keys.waiting)
  if waking_ms > now_ms then return waking_ms end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', keys.waiting, '-inf', now_ms, 'LIMIT', 0, WAKE)) do
    local domain, priority, entry = string.match(member, '^([^\n]*)\n([^\n]*)\n(.*)$')
    local is_leased = redis.call('ZSCORE', keys.shard .. 'inflight:' .. domain, entry)
    if is_leased or redis.call('ZADD', keys.shard .. 'q:' .. domain, 'NX', priority, entry) == 0 then
      count_merged(keys.stats)
    end
    redis.call('ZREM', keys.waiting, member)
    if not redis.call('ZSCORE', keys.leases, domain) then
      local next_ms = tonumber(redis.call('HGET', keys.shard .. 'd:' .. domain, 'next') or '0')
      redis.call('ZADD', keys.due, 'NX', math.max(now_ms, next_ms), domain)
    end
  end
  return waking_ms
end
