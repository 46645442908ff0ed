-- restore_visits: store known pages of a lost shard, with their next visits, as an archive shows them. A page that is stored
-- with the same visit or a later one stays as it is, so a repeated call changes nothing.
--
-- KEYS[1] stats  hash  crawl, forgotten, known
-- KEYS[2] the prefix of known:<domain> hash, visits:<domain> zset, revisits zset, d:<domain> hash (known)
-- ARGV[1] crawl   ARGV[2...] for each page: domain, due s, the rest of its record (page_records.lua)
--
-- Returns {"restored", number} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local base, forgotten = KEYS[2], redis.call('HGET', KEYS[1], 'forgotten')
-- The state of the visits begins with the time of the last one, in 14 hexadecimal digits until the year 2112.
local TIME_DIGITS = 14

local function last_visit(records, at, next_at)
  local state = string.match(entry_of(records, at, next_at), '[^ ]*$')
  return tonumber(string.sub(state, 1, TIME_DIGITS), 16)
end

local function is_stored(domain, body)
  local bucket, records, at, next_at = locate_page(base, domain, string.match(body, '^[^ ]*'))
  if not bucket then return false end
  local record = struct.pack('>HI', #body + 4, 0) .. body
  return last_visit(records, at, next_at) >= last_visit(record, 1, #record + 1)
end

local restored, new = 0, 0
for i = 2, #ARGV, 3 do
  local domain, due_s, body = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  if not is_forgotten(forgotten, domain) and not is_stored(domain, body) then
    restored = restored + 1
    if put_page(base, domain, due_s, body) then new = new + 1 end
  end
end
if new > 0 then redis.call('HINCRBY', KEYS[1], 'known', new) end
return {'restored', restored}
