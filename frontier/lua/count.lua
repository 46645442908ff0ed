-- count: part of `settle`. Collect what a call adds to the counters of a shard, and add it in two commands.
--
-- stats  hash  crawl; counters; first_ms, last_ms: when a URL was settled first and last

local names, counts = {}, {}

local function count(name, number)
  if not counts[name] then names[#names + 1] = name end
  counts[name] = (counts[name] or 0) + number
end

-- Returns whether the shard has the identity of the crawl. Otherwise it has lost its counters.
local function add_counts(stats, crawl, now_ms)
  if #names == 0 then return true end
  local before = redis.call('HMGET', stats, 'crawl', 'first_ms', unpack(names))
  if before[1] ~= crawl then return false end
  local fields = {'last_ms', now_ms}
  if not before[2] then fields = {'last_ms', now_ms, 'first_ms', now_ms} end
  for i, name in ipairs(names) do
    fields[#fields + 1], fields[#fields + 2] = name, (before[i + 2] or 0) + counts[name]
  end
  redis.call('HSET', stats, unpack(fields))
  return true
end
