-- count: part of `settle`. Collect what a call adds to the counters of a shard, and add it in two commands.
--
-- stats  hash  crawl, counters; first_ms, last_ms: when a URL was settled first and last
--
-- read_counts reads the counters that most calls add to, and returns the identity of the crawl

local names, counts, before = {}, {}, {}

local function read_counts(stats)
  local read = redis.call('HMGET', stats, 'crawl', 'first_ms', 'done', 'done:200', 'bytes')
  before.first_ms, before.done, before['done:200'], before.bytes = read[2], read[3], read[4], read[5]
  return read[1]
end

local function count(name, number)
  if not counts[name] then names[#names + 1] = name end
  counts[name] = (counts[name] or 0) + number
end

local function add_counts(stats, now_ms)
  if #names == 0 then return end
  local others = {}
  for _, name in ipairs(names) do
    if before[name] == nil then others[#others + 1] = name end
  end
  if #others > 0 then
    for i, value in ipairs(redis.call('HMGET', stats, unpack(others))) do before[others[i]] = value end
  end
  local fields = {'last_ms', now_ms}
  if not before.first_ms then fields = {'last_ms', now_ms, 'first_ms', now_ms} end
  for _, name in ipairs(names) do
    fields[#fields + 1], fields[#fields + 2] = name, (before[name] or 0) + counts[name]
  end
  redis.call('HSET', stats, unpack(fields))
end
