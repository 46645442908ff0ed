-- save_robots: store the robots.txt record of an origin, and limit the records of its domain to a number of bytes.
--
-- A domain may have any number of hosts, each with a large file. If the other records of the domain exceed the limit, the
-- largest are removed. They are the most expensive to keep, and records of unreachable files, which must not be asked for
-- again too early, are small. The new record stays whatever its size, so that its origin can be visited.
--
-- KEYS[1] robots:<domain>  hash  origin -> expiry ms in 13 digits, then the record; expires with the last of them
-- ARGV[1] now_ms   ARGV[2] origin   ARGV[3] expiry and record   ARGV[4] limit of the other records in bytes
--
-- Returns {"saved", number of records removed}

local now_ms, room = tonumber(ARGV[1]), tonumber(ARGV[4])
local function expiry_ms(stored) return tonumber(string.sub(stored, 1, 13)) or 0 end

-- Somebody else may have written over the key. The files are fetched again.
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then redis.call('DEL', KEYS[1]) end
local records = redis.call('HGETALL', KEYS[1])
local others = {}
for i = 1, #records, 2 do
  local origin, stored = records[i], records[i + 1]
  if origin ~= ARGV[2] then
    others[#others + 1] = {origin = origin, expiry_ms = expiry_ms(stored), size = #origin + #stored}
  end
end
table.sort(others, function(one, other) return one.size < other.size end)

local last_ms, removed = expiry_ms(ARGV[3]), 0
for _, record in ipairs(others) do
  if record.expiry_ms > now_ms and record.size <= room then
    room = room - record.size
    last_ms = math.max(last_ms, record.expiry_ms)
  else
    redis.call('HDEL', KEYS[1], record.origin)
    removed = removed + 1
  end
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], last_ms - now_ms)
return {'saved', removed}
