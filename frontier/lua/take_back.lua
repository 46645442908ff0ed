-- take_back: part of `lease`. End expired leases, and return their entries to the queue.
--
-- The sixth character of an entry counts how often it was taken back. An entry that was taken back fifteen times
-- becomes a dead letter, because it may be what crashes the holders. Entries are recorded for LOST_KEPT_MS under the
-- token of the expired lease: see `revoke`.
--
-- keys: table with the keys of `lease` by name, and `shard`, the prefix of the keys of a domain
--
-- take_back_expired returns when the next lease expires, ms; at or before now_ms if some are left

local TAKE_BACK = 64

local function take_back(keys, domain, expiry_ms, now_ms, default_delay_ms)
  local inflight, queue = keys.shard .. 'inflight:' .. domain, keys.shard .. 'q:' .. domain
  local domain_key = keys.shard .. 'd:' .. domain
  local state = redis.call('HMGET', domain_key, 'next', 'delay', 'token', 'packed')
  local entries = redis.call('ZRANGE', inflight, 0, -1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    local entry, lost = entries[i], tonumber(string.sub(entries[i], 6, 6), 16)
    if lost >= 14 then
      local is_kept = keep_dead_letter(keys.dead, domain .. '\n' .. entry, 'lost_with_holder')
      if not is_kept then redis.call('HINCRBY', keys.stats, 'drop:dead_letters', 1) end
      for _, name in ipairs({'dead', 'dead:lost_with_holder'}) do redis.call('HINCRBY', keys.stats, name, 1) end
    else
      local counted = string.sub(entry, 1, 5) .. string.format('%x', lost + 1) .. string.sub(entry, 7)
      redis.call('ZADD', queue, entries[i + 1], counted)
      if state[3] then redis.call('ZADD', keys.lost, now_ms, state[3] .. '\n' .. entry) end
    end
  end
  redis.call('DEL', inflight)
  redis.call('ZREM', keys.leases, domain)
  redis.call('HINCRBY', keys.stats, 'expired', 1)
  -- Its holder may have sent a request until the very end of its lease.
  local next_ms = math.max(tonumber(state[1] or '0'), expiry_ms + tonumber(state[2] or default_delay_ms))
  redis.call('HDEL', domain_key, 'token')
  redis.call('HSET', domain_key, 'next', next_ms)
  if state[4] or redis.call('EXISTS', queue) == 1 then redis.call('ZADD', keys.due, next_ms, domain) end
end

local function take_back_expired(keys, now_ms, default_delay_ms)
  local expiring_ms = first_ms(keys.leases)
  if expiring_ms <= now_ms then
    local expired = redis.call('ZRANGEBYSCORE', keys.leases, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, TAKE_BACK)
    for i = 1, #expired, 2 do take_back(keys, expired[i], tonumber(expired[i + 1]), now_ms, default_delay_ms) end
    redis.call('ZREMRANGEBYSCORE', keys.lost, '-inf', now_ms - LOST_KEPT_MS)
  end
  return expiring_ms
end
