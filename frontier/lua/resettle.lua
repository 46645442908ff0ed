-- resettle: part of `settle`. Settle URLs whose lease the server has lost with its last writes. Its other URLs are queued
-- again, so a URL counts if it is still in the queue. If another replica has leased it since, that replica's page is kept.
-- If it is packed, it is fetched again.
--
-- keys: table with the keys due, leases, waiting, stats and lost, and `shard`, the prefix of the keys of a domain
--
-- noticed_owner returns the fields of the owner, after a new run was noticed
-- remove_queued removes entries from the queue, and remembers that they were settled; it returns how many it found

local WAKE_ROUNDS = 16

local function noticed_owner(owner, run, now_ms)
  local known = read_owner(owner)
  notice_run(owner, known, run, now_ms)
  return known
end

local function remove_queued(keys, domain, token, now_ms, ...)
  -- What was leased was ready, but it may be waiting again.
  for _ = 1, WAKE_ROUNDS do
    if wake_ready(keys, now_ms) > now_ms then break end
  end
  local queue, gone = keys.shard .. 'q:' .. domain, 0
  for _, entry in ipairs({...}) do
    local member = token .. '\n' .. entry
    -- Once settled, it may have been queued again. If it was found unsettled, its page was removed (`revoke`).
    local is_known = redis.call('ZSCORE', keys.lost, '+' .. member) or redis.call('ZSCORE', keys.lost, member)
    if not is_known then load_visits().wake_page(keys.shard, domain, entry) end
    if not is_known and redis.call('ZREM', queue, entry) == 1 then
      redis.call('ZADD', keys.lost, now_ms, '+' .. member)
      gone = gone + 1
    end
  end
  return gone
end

-- The domain is due at next_ms at the earliest, and not at all if nothing is queued.
local function put_off(keys, domain, next_ms)
  if redis.call('EXISTS', keys.shard .. 'q:' .. domain, keys.shard .. 'blocks:' .. domain) == 0 then
    redis.call('ZREM', keys.due, domain)
  else
    redis.call('ZADD', keys.due, 'XX', 'GT', next_ms, domain)
  end
end
