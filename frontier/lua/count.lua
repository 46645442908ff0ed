-- count: part of `settle`. Collect what a call adds to the counters of a shard, and add it in two commands.
--
-- stats  hash  counters; first_ms, last_ms: when a URL was settled first and last

local names, counts = {}, {}

local function count(name, number)
  if not counts[name] then names[#names + 1] = name end
  counts[name] = (counts[name] or 0) + number
end

local function add_counts(stats, now_ms)
  if #names == 0 then return end
  local before = redis.call('HMGET', stats, 'first_ms', unpack(names))
  local fields = {'last_ms', now_ms}
  if not before[1] then fields = {'last_ms', now_ms, 'first_ms', now_ms} end
  for i, name in ipairs(names) do
    fields[#fields + 1], fields[#fields + 2] = name, (before[i + 1] or 0) + counts[name]
  end
  redis.call('HSET', stats, unpack(fields))
end
