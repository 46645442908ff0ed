-- known_pages: part of other scripts. The known pages of a domain, which are visited again. They are in buckets of about
-- MEAN pages (page_records.lua). A field of the hash has one bucket, and the buckets in it are numbered from 0, even if they
-- are empty.
--
-- base  the prefix of known:<domain> hash (bucket -> records), visits:<domain> zset (bucket -> a time in ms at or before which
--       the first of it is due; only if there are several buckets), revisits zset (domain -> the same for all of its pages),
--       d:<domain> hash (known: number of known pages), stats hash (known)
--
-- put_page stores a page, but not if it is there and `is_first`; it returns whether it was not there
-- locate_page returns the bucket of a page, its records, and where its record begins and the next one does | nil
-- take_page removes a page and returns its entry and priority | nil. With `only`, the page must have this entry
-- take_due removes pages of a bucket that are due, and returns {priority, entry, ...}, and when the next one is due ms. A page
--   that was made due before its time (refresh.lua) has the priority of its new one: minus the minutes (visit_priority in
--   crawler/scope/next_visit.py)
-- count_taken counts removed pages, and returns how many are left

local QUEUED_VISIT, KNOWN_FROM = 1e12, 5e11
local MEAN = 64

local function set_first(base, domain, bucket, due_ms)
  if due_ms == math.huge then return redis.call('ZREM', base .. 'visits:' .. domain, bucket) end
  redis.call('ZADD', base .. 'visits:' .. domain, due_ms, bucket)
end

-- Divide one bucket: that of the lowest number that was not divided since the number of buckets was a power of two.
local function divide_one(base, domain, buckets)
  local known, half = base .. 'known:' .. domain, half_of(buckets)
  local records, parts, firsts = redis.call('HGET', known, buckets - half), {}, {}
  for _, bucket in ipairs({buckets - half, buckets}) do
    parts[bucket], firsts[bucket] = {}, math.huge
  end
  for at, next_at, due_s in each_record(records) do
    local bucket = page_hash(string.match(records, '^[^ ]*', at + 6)) % (half * 2)
    table.insert(parts[bucket], string.sub(records, at, next_at - 1))
    firsts[bucket] = math.min(firsts[bucket], due_s)
  end
  for bucket, part in pairs(parts) do
    redis.call('HSET', known, bucket, table.concat(part))
    set_first(base, domain, bucket, firsts[bucket] * 1000)
  end
end

local function put_page(base, domain, due_s, body, is_first)
  local known, page = base .. 'known:' .. domain, string.match(body, '^[^ ]*')
  local buckets = math.max(1, redis.call('HLEN', known))
  local bucket = bucket_of(page, buckets)
  local records = redis.call('HGET', known, bucket) or ''
  local at, next_at = find_page(records, page)
  if at and is_first then return false end
  local record = struct.pack('>HI', #body + 4, due_s) .. body
  if at then records = string.sub(records, 1, at - 1) .. string.sub(records, next_at) end
  redis.call('HSET', known, bucket, records .. record)
  if buckets > 1 then redis.call('ZADD', base .. 'visits:' .. domain, 'LT', due_s * 1000, bucket) end
  -- 'inf' says that more visits are due than the queue has room for (visits.lua), which a later one does not change.
  if tonumber(redis.call('ZSCORE', base .. 'revisits', domain)) ~= math.huge then
    redis.call('ZADD', base .. 'revisits', 'LT', due_s * 1000, domain)
  end
  if at then return false end
  if redis.call('HINCRBY', base .. 'd:' .. domain, 'known', 1) > MEAN * buckets then divide_one(base, domain, buckets) end
  return true
end

local function count_taken(base, domain, taken)
  redis.call('HINCRBY', base .. 'stats', 'known', 0 - taken)
  local left = redis.call('HINCRBY', base .. 'd:' .. domain, 'known', 0 - taken)
  if left > 0 then return left end
  redis.call('HDEL', base .. 'd:' .. domain, 'known')
  redis.call('DEL', base .. 'known:' .. domain, base .. 'visits:' .. domain)
  redis.call('ZREM', base .. 'revisits', domain)
  return 0
end

local function locate_page(base, domain, page)
  local buckets = redis.call('HLEN', base .. 'known:' .. domain)
  if buckets == 0 then return nil end
  local bucket = bucket_of(page, buckets)
  local records = redis.call('HGET', base .. 'known:' .. domain, bucket)
  local at, next_at = find_page(records, page)
  if at then return bucket, records, at, next_at end
end

local function take_page(base, domain, page, only)
  local bucket, records, at, next_at = locate_page(base, domain, page)
  if not bucket then return nil end
  local entry, priority = entry_of(records, at, next_at)
  if only and entry ~= only then return nil end
  redis.call('HSET', base .. 'known:' .. domain, bucket, string.sub(records, 1, at - 1) .. string.sub(records, next_at))
  count_taken(base, domain, 1)
  return entry, priority
end

local function take_due(base, domain, bucket, now_ms, room)
  local known, taken, kept, first_s = base .. 'known:' .. domain, {}, {}, math.huge
  local records = redis.call('HGET', known, bucket) or ''
  for at, next_at, due_s in each_record(records) do
    if due_s * 1000 <= now_ms and #taken < 2 * room then
      local entry, priority = entry_of(records, at, next_at)
      taken[#taken + 1] = QUEUED_VISIT + math.max(priority, -math.floor(due_s / 60))
      taken[#taken + 1] = entry
    else
      kept[#kept + 1] = string.sub(records, at, next_at - 1)
      first_s = math.min(first_s, due_s)
    end
  end
  if #taken > 0 then redis.call('HSET', known, bucket, table.concat(kept)) end
  return taken, first_s * 1000
end
