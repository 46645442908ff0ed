-- page_records: part of other scripts. A bucket of known pages: a text of records, one for each page, so that pages share the
-- memory that Redis takes for a field of a hash.
--
-- A record is the number of bytes that follow (2 bytes), when the visit is due (4 bytes, s), and what frontier/known_pages.py
-- makes: page, space, depth and hops (3 digits), priority, space, state of its visits; before the second space, a comma and where
-- it is from (frontier/entries.py), if that is known. A page is the first character of its entry and what the entry has of its URL. The
-- state is in bytes here, and in hexadecimal digits in an entry.
--
-- The number of buckets grows as that of the seen-set (push.lua). The hash is keyed, so that no site can fill one bucket. The
-- key is that of the fingerprints, which is in the identity of the crawl.
--
-- each_record iterates over records: where one begins, where the next one does, and when it is due s
-- find_page returns the first two of these for a page | nil

local SALT = string.match(ARGV[1], '^[^:]*')
local DIGITS = setmetatable({}, {__index = function(digits, byte)
  digits[byte] = string.format('%02x', string.byte(byte))
  return digits[byte]
end})

-- The page of an entry.
local function page_of(entry)
  return string.sub(entry, 1, 1) .. string.match(entry, '^[^ ]*', 7)
end

local function half_of(buckets)
  local half = 1
  while half * 2 <= buckets do half = half * 2 end
  return half
end

local function page_hash(page)
  return tonumber(string.sub(redis.sha1hex(SALT .. page), 1, 8), 16)
end

local function bucket_of(page, buckets)
  local half = half_of(buckets)
  local bucket = page_hash(page) % (half * 2)
  return bucket < buckets and bucket or bucket - half
end

local function each_record(records)
  local next_at = 1
  return function()
    if next_at > #records then return nil end
    local at, size, due_s = next_at, struct.unpack('>HI', records, next_at)
    next_at = at + 2 + size
    return at, next_at, due_s
  end
end

local function find_page(records, page)
  local at, next_at, found = 1, 1, string.find(records, page .. ' ', 7, true)
  while found do
    while next_at + 6 <= found do
      at = next_at
      next_at = at + 2 + struct.unpack('>H', records, at)
    end
    if at + 6 == found then return at, next_at end
    found = string.find(records, page .. ' ', found + 1, true)  -- this one was in the middle of a record
  end
end

-- The entry of the page in this record, and its priority.
local function entry_of(records, at, next_at)
  local form = '^(.)([^ ]*) (..)(.)([^ ,]*),?([^ ]*) ()'
  local first, rest, depth, hops, priority, via, state_at = string.match(records, form, at + 6)
  local visit = string.gsub(string.sub(records, state_at, next_at - 1), '.', DIGITS)
  return first .. depth .. '0' .. hops .. '0' .. rest .. ' ' .. via .. ' ' .. visit, tonumber(priority)
end
