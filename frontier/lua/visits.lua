-- visits: part of `lease` and `settle`, with `page_records` and `known_pages`. Plans visits of known pages
-- (known_pages.lua), and queues those that are due.
--
-- From the end of one visit until the next is due, a page is not open: a crawl ends although later visits are planned. When
-- it is due, it is queued, and accepted once more. Its entry then ends in the state of its visits, which differs from visit to
-- visit. QUEUED_VISIT is added to its priority, so that the known pages of a queue are told from new ones, and each kind keeps
-- its order.
--
-- base  the prefix of revisits zset, visits:<domain> zset, q:<domain> zset, stats hash (accepted, revisited), due zset, leases
--       zset, d:<domain> hash (next). In `revisits`, a domain whose queue is full has the score inf: it is due or leased, and
--       each lease of it looks for visits that are due
--
-- plan_visit stores the next visit of a page whose visit is settled, and calls `count` with what to count. It returns whether
--   `follow_up` is that of such a page (settle.lua). A first visit does not replace what later ones have found.
-- requeue_visit queues the known page that has this entry, which was queued before the server lost its last writes
-- queue_visits_of queues visits of a domain that are due; queue_visits those of all, and returns when the first is or was due, ms

-- Known pages in a queue: less than make it a long one, which is packed.
local MOST_QUEUED = 256
local WAKE_DOMAINS = 32
-- In one call, which then takes about 4 ms.
local pages_left, buckets_left = 512, 128

local function plan_visit(base, domain, follow_up, count)
  local found, due_s, body = string.match(follow_up, '^visit\n([^\n]*)\n([^\n]*)\n(.*)$')
  if not found then return false end
  count('visit:' .. found, 1)
  if due_s ~= '' and put_page(base, domain, tonumber(due_s), body, found == 'new') then count('known', 1) end
  return true
end

local function queue_visits(base, domain, visits)
  local queued = redis.call('ZADD', base .. 'q:' .. domain, 'NX', unpack(visits))
  redis.call('HINCRBY', base .. 'stats', 'accepted', queued)
  redis.call('HINCRBY', base .. 'stats', 'revisited', queued)
end

local function requeue_visit(base, domain, entry)
  local known, priority = take_page(base, domain, page_of(entry), entry)
  if known then queue_visits(base, domain, {QUEUED_VISIT + priority, known}) end
end

local function queue_visits_of(base, domain, now_ms)
  local visits, score = base .. 'visits:' .. domain, tonumber(redis.call('ZSCORE', base .. 'revisits', domain))
  if not score or (score > now_ms and score < math.huge) then return end
  local is_single = redis.call('EXISTS', visits) == 0
  local due = is_single and {0} or redis.call('ZRANGEBYSCORE', visits, '-inf', now_ms, 'LIMIT', 0, buckets_left)
  local room = MOST_QUEUED - redis.call('ZCOUNT', base .. 'q:' .. domain, KNOWN_FROM, '+inf')
  local next_ms = now_ms
  for _, bucket in ipairs(due) do
    local most = math.min(room, pages_left)
    if most <= 0 or buckets_left == 0 then break end
    local taken, first = take_due(base, domain, bucket, now_ms, most)
    buckets_left, pages_left, room = buckets_left - 1, pages_left - #taken / 2, room - #taken / 2
    next_ms = first
    if not is_single then set_first(base, domain, bucket, first) end
    if #taken > 0 then
      queue_visits(base, domain, taken)
      if count_taken(base, domain, #taken / 2) == 0 then return end
    end
  end
  if not is_single then next_ms = first_ms(visits) end
  redis.call('ZADD', base .. 'revisits', next_ms <= now_ms and room <= 0 and '+inf' or next_ms, domain)
end

local function queue_visits_in_turn(base, domain, now_ms)
  queue_visits_of(base, domain, now_ms)
  local is_queued = redis.call('EXISTS', base .. 'q:' .. domain) == 1
  if is_queued and not redis.call('ZSCORE', base .. 'leases', domain) then
    local next_ms = tonumber(redis.call('HGET', base .. 'd:' .. domain, 'next') or '0')
    redis.call('ZADD', base .. 'due', 'NX', math.max(now_ms, next_ms), domain)
  end
end

local function queue_visits(base, now_ms)
  local first = first_ms(base .. 'revisits')
  if first > now_ms then return first end
  for _, domain in ipairs(redis.call('ZRANGEBYSCORE', base .. 'revisits', '-inf', now_ms, 'LIMIT', 0, WAKE_DOMAINS)) do
    load_recovery().attempt(base, domain, queue_visits_in_turn, base, domain, now_ms)
  end
  return first
end
