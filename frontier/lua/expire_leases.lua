-- expire_leases: part of `lease` and `freeze_shard`. End expired leases, and return their entries to the queue.
--
-- The sixth character of an entry counts how often it was taken back. An entry that was taken back fifteen times
-- becomes a dead letter, because it may be what crashes the holders. Entries are recorded for LOST_KEPT_MS under the
-- token of the expired lease: see `revoke`. A lease of a domain that is set aside (`set_aside`) ends, too.
--
-- base  the prefix of q:<domain> zset, inflight:<domain> zset, d:<domain> hash (next, delay, token, packed), due zset, leases
--       zset, stats hash, dead hash, lost zset

local TAKE_BACK = 64

local function expire_lease(base, domain, expiry_ms, now_ms, default_delay_ms)
  local inflight, queue = base .. 'inflight:' .. domain, base .. 'q:' .. domain
  local domain_key = base .. 'd:' .. domain
  local state = redis.call('HMGET', domain_key, 'next', 'delay', 'token', 'packed')
  local entries = redis.call('ZRANGE', inflight, 0, -1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    local entry, lost = entries[i], tonumber(string.sub(entries[i], 6, 6), 16)
    if lost >= 14 then
      local is_kept = keep_dead_letter(base .. 'dead', domain .. '\n' .. entry, 'lost_with_holder')
      if not is_kept then redis.call('HINCRBY', base .. 'stats', 'drop:dead_letters', 1) end
      for _, name in ipairs({'dead', 'dead:lost_with_holder'}) do redis.call('HINCRBY', base .. 'stats', name, 1) end
    else
      local counted = string.sub(entry, 1, 5) .. string.format('%x', lost + 1) .. string.sub(entry, 7)
      -- A seed that was taken back before, and queued again then, may be queued already with this count.
      if redis.call('ZADD', queue, 'NX', entries[i + 1], counted) == 0 then count_merged(base .. 'stats') end
      if state[3] then redis.call('ZADD', base .. 'lost', now_ms, state[3] .. '\n' .. entry) end
    end
  end
  redis.call('DEL', inflight)
  redis.call('ZREM', base .. 'leases', domain)
  redis.call('HINCRBY', base .. 'stats', 'expired', 1)
  -- Its holder may have sent a request until the very end of its lease.
  local next_ms = math.max(tonumber(state[1] or '0'), expiry_ms + tonumber(state[2] or default_delay_ms))
  redis.call('HDEL', domain_key, 'token', 'open')
  redis.call('HSET', domain_key, 'next', next_ms)
  if state[4] or redis.call('EXISTS', queue) == 1 then redis.call('ZADD', base .. 'due', next_ms, domain) end
end

local function end_lease(base, domain, ...)
  if not attempt(base, domain, expire_lease, base, domain, ...) then redis.call('ZREM', base .. 'leases', domain) end
end

local function expire_leases(base, now_ms, default_delay_ms)
  local expired = redis.call('ZRANGEBYSCORE', base .. 'leases', '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, TAKE_BACK)
  for i = 1, #expired, 2 do
    end_lease(base, expired[i], tonumber(expired[i + 1]), now_ms, default_delay_ms)
  end
  redis.call('ZREMRANGEBYSCORE', base .. 'lost', '-inf', now_ms - LOST_KEPT_MS)
end
