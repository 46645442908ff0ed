-- settle_lost_lease: part of `settle`. Settle URLs whose lease the server has lost with its last writes. Its other URLs are queued
-- again, so a URL counts if it is still in the queue, or in flight under an earlier lease of which only the server does not
-- know that it has ended. If another replica has leased it since, that replica's page is kept. If it is packed, it is
-- fetched again.
--
-- base  the prefix of owner hash, stats hash (forgotten), lost zset, due zset, q:<domain> zset, inflight:<domain> zset,
--       d:<domain> hash (token), blocks:<domain> zset
--
-- may_settle_lost returns whether the lease with this token is lost, and its domain is not forgotten
-- remove_queued removes entries from the queue, and remembers that they were settled; it returns how many it found

local WAKE_ROUNDS = 16
local is_noticed = false

local function may_settle_lost(base, domain, token, run, now_ms)
  local owner = base .. 'owner'
  if not is_noticed then notice_run(owner, read_owner(owner), run, now_ms) end
  is_noticed = true
  return is_lease_lost(owner, token) and not is_forgotten(redis.call('HGET', base .. 'stats', 'forgotten'), domain)
end

local function remove_queued(base, domain, token, now_ms, ...)
  -- What was leased was ready, but it may be waiting again.
  for _ = 1, WAKE_ROUNDS do
    if promote_retries(base, now_ms) > now_ms then break end
  end
  local queue, inflight, gone = base .. 'q:' .. domain, base .. 'inflight:' .. domain, 0
  local holder = redis.call('HGET', base .. 'd:' .. domain, 'token')
  local is_over = holder and tonumber(holder) < tonumber(token)
  for _, entry in ipairs({...}) do
    local member = token .. '\n' .. entry
    -- Once settled, it may have been queued again. If it was found unsettled, its page was removed (`revoke`).
    local is_known = redis.call('ZSCORE', base .. 'lost', '+' .. member) or redis.call('ZSCORE', base .. 'lost', member)
    if not is_known then load_visits().requeue_visit(base, domain, entry) end
    local is_open = not is_known
      and (redis.call('ZREM', queue, entry) == 1 or is_over and redis.call('ZREM', inflight, entry) == 1)
    if is_open then
      redis.call('ZADD', base .. 'lost', now_ms, '+' .. member)
      gone = gone + 1
    end
  end
  return gone
end

-- The domain is due at next_ms at the earliest, and not at all if nothing is queued.
local function put_off(base, domain, next_ms)
  if redis.call('EXISTS', base .. 'q:' .. domain, base .. 'blocks:' .. domain) == 0 then
    redis.call('ZREM', base .. 'due', domain)
  else
    redis.call('ZADD', base .. 'due', 'XX', 'GT', next_ms, domain)
  end
end
