-- visits: part of other scripts. The known pages of a domain, which are visited again.
--
-- From the end of one visit until the next is due, a page is in `known` and `visits`, and not open: a crawl ends although
-- later visits are planned. When it is due, it is queued, and accepted once more. Its entry then ends in the state of its
-- visits, which differs from visit to visit. QUEUED_VISIT is added to its priority, so that the known pages of a queue are
-- told from new ones, and each kind keeps its order.
--
-- base  the prefix of revisits zset (domain -> when its first visit is due ms), visits:<domain> zset (fingerprint -> due ms),
--       known:<domain> hash (fingerprint -> "priority LF entry"), q:<domain> zset, stats hash (known, accepted, revisited)
--
-- plan_visit stores the next visit of a page whose visit is settled, and calls `count` with what to count. It returns whether
--   `again` is that of such a page (settle.lua). A first visit does not replace what later ones have found.
-- take_known removes a page from `known`; it returns its entry, or nil
-- wake_visits returns when the first domain has a visit that is or was due, ms

local QUEUED_VISIT, KNOWN_FROM = 1e12, 5e11
-- Known pages in a queue: less than make it a long one, which is packed.
local MOST_QUEUED = 256
local WAKE_DOMAINS, AGAIN_MS = 32, 1000

local function plan_visit(base, domain, again, count)
  local fingerprint, found, due_ms, value = string.match(again, '^visit\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
  if not found then return false end
  count('visit:' .. found, 1)
  if due_ms == '' then return true end
  local visits = base .. 'visits:' .. domain
  local added = redis.call(found == 'new' and 'HSETNX' or 'HSET', base .. 'known:' .. domain, fingerprint, value)
  if added == 1 then count('known', 1) end
  if added == 1 or found ~= 'new' then
    redis.call('ZADD', visits, due_ms, fingerprint)
    redis.call('ZADD', base .. 'revisits', first_ms(visits), domain)
  end
  return true
end

local function take_known(base, domain, fingerprint)
  local value = redis.call('HGET', base .. 'known:' .. domain, fingerprint)
  if not value then return nil end
  redis.call('HDEL', base .. 'known:' .. domain, fingerprint)
  redis.call('ZREM', base .. 'visits:' .. domain, fingerprint)
  redis.call('HINCRBY', base .. 'stats', 'known', -1)
  local priority, entry = string.match(value, '^([^\n]*)\n(.*)$')
  return entry, tonumber(priority)
end

-- Queue visits of the domain that are due.
local function wake_domain(base, domain, now_ms)
  local visits, queue, queued = base .. 'visits:' .. domain, base .. 'q:' .. domain, 0
  if first_ms(visits) <= now_ms then
    local room = MOST_QUEUED - redis.call('ZCOUNT', queue, KNOWN_FROM, '+inf')
    for _, fingerprint in ipairs(redis.call('ZRANGEBYSCORE', visits, '-inf', now_ms, 'LIMIT', 0, math.max(room, 0))) do
      local entry, priority = take_known(base, domain, fingerprint)
      if entry then
        queued = queued + redis.call('ZADD', queue, 'NX', QUEUED_VISIT + priority, entry)
      else
        redis.call('ZREM', visits, fingerprint)
      end
    end
    if queued > 0 then
      redis.call('HINCRBY', base .. 'stats', 'accepted', queued)
      redis.call('HINCRBY', base .. 'stats', 'revisited', queued)
    end
  end
  local next_ms = first_ms(visits)
  if next_ms == math.huge then
    redis.call('ZREM', base .. 'revisits', domain)
  else
    redis.call('ZADD', base .. 'revisits', next_ms > now_ms and next_ms or now_ms + AGAIN_MS, domain)
  end
end

local function wake_visits(keys, now_ms)
  local revisits, first = keys.shard .. 'revisits', first_ms(keys.shard .. 'revisits')
  if first > now_ms then return first end
  for _, domain in ipairs(redis.call('ZRANGEBYSCORE', revisits, '-inf', now_ms, 'LIMIT', 0, WAKE_DOMAINS)) do
    wake_domain(keys.shard, domain, now_ms)
    local is_queued = redis.call('EXISTS', keys.shard .. 'q:' .. domain) == 1
    if is_queued and not redis.call('ZSCORE', keys.leases, domain) then
      local next_ms = tonumber(redis.call('HGET', keys.shard .. 'd:' .. domain, 'next') or '0')
      redis.call('ZADD', keys.due, 'NX', math.max(now_ms, next_ms), domain)
    end
  end
  return first
end
