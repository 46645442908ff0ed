-- push: queue URLs that have not been seen before. Idempotent: a second call with the same URLs adds nothing.
-- Mode "again" queues URLs whether seen or not. In this mode a second call adds those that were settled in between. One that
-- is leased is not queued, because a lease that is returned would merge both into one, which cannot be settled twice. One
-- that will be visited again (visits.lua) is due now.
-- A mode with "@" is for URLs with a label. One that was queued without it is queued once more, with the label as its key.
-- The fingerprint of this second request is in the seen-set from the beginning if the URL itself has the label.
-- Mode "moved" is for the target of a known page that has moved (push_moved.lua).
-- A page requisite is in the seen-set with the fingerprint of its URL negated, and its domain is not known by it: an image does
-- not bring a host into the crawl. Its domain has as much room for requisites as for pages.
--
-- The seen-set is exact: 63-bit fingerprints in integer sets. Its buckets grow by linear hashing (W. Litwin, VLDB
-- 1980): when the mean number of members exceeds FILL, one bucket is split in two. Unsplit buckets hold up to twice the
-- mean, so all stay below 512 members, the default limit up to which Redis stores an integer set at 8 bytes a member.
--
-- KEYS[1] stats   hash  crawl, accepted, requisites, domains, seen, buckets, forgotten, drop:<reason>
-- KEYS[2] the prefix of due zset, urgent zset, leases zset, q:<domain> zset, inflight:<domain> zset, d:<domain> hash (accepted, requisites, next,
--         packed, known), seen:<bucket> set; for "again" and "moved" also of known:<domain> hash, visits:<domain> zset, revisits zset
-- ARGV[1] crawl   ARGV[2] now_ms   ARGV[3] domain_cap (0: none)
-- ARGV[4] step: the size of a domain's queue is reported whenever so many more of its URLs have been accepted (0: never)
-- ARGV[5...] for each domain: domain, mode, number of URLs n, then n times: fingerprint, priority, entry, and
--   in a mode with "@" the fingerprint of the URL with the key, and the key
--   mode "new"; or "known": only if a URL of the domain has been accepted before; or "foreign", from a page of another domain:
--   these and "known" ones fill half of domain_cap at most, so that the other half is for links of the domain itself; or
--   "again"; or "moved"; or "requisite": unseen as a page and as a requisite
--
-- Returns {"pushed", accepted, already seen, dropped for domain_cap, dropped for a domain that is unknown
--   or was forgotten, or has a key of a wrong type (`set_aside`),
--   {domain, size of its queue, number of packed URLs} for each domain that is reported} | {"lost"}

local FILL = 208
local base, now_ms, domain_cap, step = KEYS[2], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local stats = redis.call('HMGET', KEYS[1], 'crawl', 'accepted', 'seen', 'buckets', 'forgotten')
if stats[1] ~= ARGV[1] then return {'lost'} end
local seen, buckets, half = tonumber(stats[3] or '0'), tonumber(stats[4] or '1'), 1
while half * 2 <= buckets do half = half * 2 end

local seen_keys = {}  -- by bucket: formatting a number into a key costs half as much as a call

-- The bucket is computed from the last nine decimal digits, because a double cannot hold the whole fingerprint exactly.
local function seen_key(fingerprint)
  local bucket = tonumber(string.sub(fingerprint, -9)) % (half * 2)
  if bucket >= buckets then bucket = bucket - half end
  seen_keys[bucket] = seen_keys[bucket] or base .. 'seen:' .. bucket
  return seen_keys[bucket]
end

local function split_one()
  local source, target = base .. 'seen:' .. (buckets - half), base .. 'seen:' .. buckets
  buckets = buckets + 1
  local moved = {}
  for _, fingerprint in ipairs(redis.call('SMEMBERS', source)) do
    if tonumber(string.sub(fingerprint, -9)) % (half * 2) == buckets - 1 then moved[#moved + 1] = fingerprint end
  end
  if #moved > 0 then
    redis.call('SADD', target, unpack(moved))
    redis.call('SREM', source, unpack(moved))
  end
  if buckets == half * 2 then half = half * 2 end
end

-- Add a fingerprint to the seen-set. Returns whether it was not there.
local function add_seen(key, fingerprint)
  if redis.call('SADD', key, fingerprint) == 0 then return false end
  seen = seen + 1
  if seen > buckets * FILL then split_one() end
  return true
end

local accepted, seen_before, capped, outside = 0, 0, 0, 0

local function push_domain(domain, mode, cap, from, to, words)
  local domain_key, always = base .. 'd:' .. domain, mode == 'again'
  local moved = mode == 'moved' and load_moved().push_moved(base, domain, from, to, seen_key) or 0
  accepted, seen_before = accepted + moved, seen_before - moved
  local room = cap > 0 and cap - tonumber(redis.call('HGET', domain_key, 'accepted') or '0') or to
  local inflight, new, size, best = base .. 'inflight:' .. domain, {}, 0, 0
  for i = from, to, words do
    local fingerprint, key, entry = ARGV[i], seen_key(ARGV[i]), ARGV[i + 2]
    if size < 2 * room then
      local is_new = add_seen(key, fingerprint)
      if words > 3 and add_seen(seen_key(ARGV[i + 3]), ARGV[i + 3]) and not (is_new or always) then
        is_new, entry = true, string.gsub(entry, ' ', '#' .. ARGV[i + 4] .. ' ', 1)
      end
      if is_new or (always and not redis.call('ZSCORE', inflight, entry)) then
        new[size + 1], new[size + 2] = ARGV[i + 1], always and load_moved().take_known(base, domain, entry) or entry
        size = size + 2
        -- Links have negative priorities by default: the sign is read first, because that costs less.
        if string.byte(ARGV[i + 1]) ~= 45 then best = math.max(best, tonumber(ARGV[i + 1])) end
      else
        seen_before = seen_before + 1
      end
    elseif redis.call('SISMEMBER', key, fingerprint) == 1 then
      seen_before = seen_before + 1
    else
      capped = capped + 1
    end
  end
  if size == 0 then return end
  local added = redis.call('ZADD', base .. 'q:' .. domain, unpack(new))
  accepted = accepted + added
  local total = redis.call('HINCRBY', domain_key, 'accepted', added)
  if step > 0 and total % step < added then report(base, domain) end
  if total == added then
    redis.call('HINCRBY', KEYS[1], 'domains', 1)
    redis.call('PERSIST', domain_key)  -- it may have been reserved before (`reserve`)
  end
  make_due(base, domain, now_ms, best)
end

local function push_requisites(domain, cap, from, to)
  local domain_key, new = base .. 'd:' .. domain, {}
  local room = cap > 0 and cap - tonumber(redis.call('HGET', domain_key, 'requisites') or '0') or to
  for i = from, to, 3 do
    local key, mark = seen_key(ARGV[i]), '-' .. ARGV[i]
    if redis.call('SISMEMBER', key, ARGV[i]) == 1 or redis.call('SISMEMBER', key, mark) == 1 then
      seen_before = seen_before + 1
    elseif #new >= 2 * room then
      capped = capped + 1
    else
      add_seen(key, mark)
      new[#new + 1], new[#new + 2] = ARGV[i + 1], ARGV[i + 2]
    end
  end
  if #new == 0 then return end
  local added = redis.call('ZADD', base .. 'q:' .. domain, unpack(new))
  accepted = accepted + added
  redis.call('HINCRBY', KEYS[1], 'requisites', added)
  local total = redis.call('HINCRBY', domain_key, 'requisites', added)
  if step > 0 and total % step < added then report(base, domain) end
  if total == added then redis.call('PERSIST', domain_key) end
  make_due(base, domain, now_ms, 0)
end

local at, unusable = 5, 0
while at <= #ARGV do
  local domain, mode, count, words = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), 3
  if string.byte(mode, -1) == 64 then mode, words = string.sub(mode, 1, -2), 5 end
  local is_unknown = mode == 'known' and redis.pcall('HEXISTS', base .. 'd:' .. domain, 'accepted') == 0
  if is_unknown or (stats[5] and load_forgotten().is_refused(stats[5], domain, count)) then
    outside = outside + count
  else
    local last, before = at + 2 + count * words, accepted + seen_before + capped
    local is_foreign = mode == 'known' or mode == 'foreign'
    local cap = is_foreign and math.ceil(domain_cap / 2) or domain_cap
    local is_done, problem
    if mode == 'requisite' then
      is_done, problem = pcall(push_requisites, domain, cap, at + 3, last)
    else
      is_done, problem = pcall(push_domain, domain, mode, cap, at + 3, last, words)
    end
    if not is_done then
      load_moved().set_aside(base, domain, problem)
      local dropped = count - (accepted + seen_before + capped - before)
      outside, unusable = outside + dropped, unusable + dropped
    end
  end
  at = at + 3 + count * words
end

if accepted > 0 or seen > tonumber(stats[3] or '0') then
  redis.call('HSET', KEYS[1], 'accepted', (stats[2] or 0) + accepted, 'seen', seen, 'buckets', buckets)
end
if stats[5] then load_forgotten().count_refused(KEYS[1]) end
if unusable > 0 then redis.call('HINCRBY', KEYS[1], 'drop:wrong_type', unusable) end
if capped > 0 then redis.call('HINCRBY', KEYS[1], 'drop:domain_cap', capped) end
return {'pushed', accepted, seen_before, capped, outside, unpack(reported)}
