-- survey: read the counters of a shard atomically, and list some of its domains. Changes nothing.
--
-- The listed domains are those that have been due longest, those that will be due last, those whose leases end first, and
-- those with URLs that wait for a retry, such as all URLs of a domain whose robots.txt is unreachable. Each is found at an
-- end of a sorted set, so the cost does not depend on the number of domains.
--
-- KEYS[1] stats  hash  counters
-- KEYS[2] the prefix of owner hash (epoch, replica, since: the fence), due zset, leases zset, waiting zset (entries that wait
--         for a retry -> ready ms), q:<domain> zset, d:<domain> hash (packed)
-- ARGV[1] now_ms   ARGV[2] number of domains to list at each end, at least 1
--
-- Returns {"surveyed", {field, value, ... of stats}, waiting, domains due, domains leased, due domains that are ready,
--          oldest due ms or -1, {epoch, replica, since}, {"due" | "leased" | "waiting", domain, ms, queued}, ...}
--   of a waiting domain: when the first of its listed URLs is ready, and how many of them were found

local WAITING_EACH = 8  -- URLs read for each domain to list: a domain has many that wait for the same time
local base = KEYS[2]
local due_key, leases_key, waiting_key = base .. 'due', base .. 'leases', base .. 'waiting'
local last = tonumber(ARGV[2]) - 1
local stats, owner = redis.call('HGETALL', KEYS[1]), redis.call('HMGET', base .. 'owner', 'epoch', 'replica', 'since')

-- Most shards of a crawl may be empty, so nothing is read that follows from what was read before.
if redis.call('EXISTS', due_key, leases_key, waiting_key) == 0 then
  return {'surveyed', stats, 0, 0, 0, 0, '-1', owner}
end
local due, leased = redis.call('ZCARD', due_key), redis.call('ZCARD', leases_key)
local first = due > 0 and redis.call('ZRANGE', due_key, 0, last, 'WITHSCORES') or {}
local is_ready = due > 0 and tonumber(first[2]) <= tonumber(ARGV[1])

local reply = {
  'surveyed',
  stats,
  redis.call('ZCARD', waiting_key),
  due,
  leased,
  is_ready and redis.call('ZCOUNT', due_key, '-inf', ARGV[1]) or 0,
  first[2] or '-1',
  owner,
}

local named = {}
local function name(kind, found)
  for i = 1, #found, 2 do
    local domain = found[i]
    if not named[domain] then
      named[domain] = true
      local packed = redis.pcall('HGET', base .. 'd:' .. domain, 'packed') or 0
      local queued = redis.pcall('ZCARD', base .. 'q:' .. domain)
      local is_sound = type(packed) ~= 'table' and type(queued) ~= 'table'  -- no key of a wrong type (`set_aside`)
      reply[#reply + 1] = {kind, domain, found[i + 1], is_sound and queued + packed or 0}
    end
  end
end

name('due', first)
if due > last + 1 then name('due', redis.call('ZREVRANGE', due_key, 0, last, 'WITHSCORES')) end
if leased > 0 then name('leased', redis.call('ZRANGE', leases_key, 0, last, 'WITHSCORES')) end

local waiting = {}
local function name_waiting(from, to)
  local found, room = redis.call('ZRANGE', waiting_key, from, to, 'WITHSCORES'), last + 1
  for i = 1, #found, 2 do
    local domain = string.match(found[i], '^[^\n]*')
    local listed = waiting[domain]
    if listed then
      listed[4] = listed[4] + 1
    elseif room > 0 and not (redis.call('ZSCORE', due_key, domain) or redis.call('ZSCORE', leases_key, domain)) then
      waiting[domain], room = {'waiting', domain, found[i + 1], 1}, room - 1
      reply[#reply + 1] = waiting[domain]
    end
  end
end

local each = WAITING_EACH * ARGV[2]
if reply[3] > 0 then name_waiting(0, each - 1) end
if reply[3] > each then name_waiting(math.max(each, reply[3] - each), -1) end
return reply
