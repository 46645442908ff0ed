-- refresh: make known pages of a domain due now: those that are named, or those of some buckets (known_pages.lua). A page
-- that is queued or leased is being visited, so it is skipped. A repeated call changes nothing more.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of known:<domain> hash, visits:<domain> zset, revisits zset
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] now_ms   ARGV[4] the first bucket   ARGV[5] number of buckets (0: only the pages)
-- ARGV[6] how many of the named pages to make due at most   ARGV[7...] named pages
--
-- Returns {"refreshed", number of pages, the bucket after these or -1, {page}: the named ones made due} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local base, domain, now_s = KEYS[2], ARGV[2], math.floor(ARGV[3] / 1000)
local known, refreshed, named = base .. 'known:' .. domain, 0, {}
local buckets = redis.call('HLEN', known)

-- Store a bucket of which so many pages are due now.
local function store(bucket, records, changed)
  if changed == 0 then return end
  redis.call('HSET', known, bucket, records)
  if buckets > 1 then redis.call('ZADD', base .. 'visits:' .. domain, 'LT', now_s * 1000, bucket) end
  refreshed = refreshed + changed
end

local function refresh_page(page)
  local bucket = bucket_of(page, buckets)
  local records = redis.call('HGET', known, bucket)
  local at = find_page(records, page)
  if at and struct.unpack('>I', records, at + 2) > now_s then
    store(bucket, string.sub(records, 1, at + 1) .. struct.pack('>I', now_s) .. string.sub(records, at + 6), 1)
    named[#named + 1] = page
  end
end

local function refresh_bucket(bucket)
  local records, parts, changed = redis.call('HGET', known, bucket), {}, 0
  for at, next_at, due_s in each_record(records) do
    if due_s > now_s then changed = changed + 1 end
    parts[#parts + 1] = string.sub(records, at, at + 1)
    parts[#parts + 1] = struct.pack('>I', math.min(due_s, now_s))
    parts[#parts + 1] = string.sub(records, at + 6, next_at - 1)
  end
  store(bucket, table.concat(parts), changed)
end

if buckets == 0 then return {'refreshed', 0, -1, named} end
for i = 7, #ARGV do
  if #named < tonumber(ARGV[6]) then refresh_page(ARGV[i]) end
end
local last = math.min(ARGV[4] + ARGV[5], buckets) - 1
for bucket = tonumber(ARGV[4]), last do refresh_bucket(bucket) end
if refreshed > 0 then redis.call('ZADD', base .. 'revisits', 'LT', now_s * 1000, domain) end
return {'refreshed', refreshed, last + 1 < buckets and last + 1 or -1, named}
