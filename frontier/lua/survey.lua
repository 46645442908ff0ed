-- survey: read the books of a shard at one moment, and name some of its domains. Changes nothing.
--
-- The domains named are those longest due, those due last, and those whose leases end first: each found at an end of
-- a sorted set, so that the call costs the same however many domains there are.
--
-- KEYS[1] owner    hash  epoch, replica, since (the fence)
-- KEYS[2] due      zset  domain -> due ms
-- KEYS[3] leases   zset  domain -> expiry ms
-- KEYS[4] waiting  zset  entries to be tried again -> ready ms
-- KEYS[5] stats    hash  counters
-- also   q:<domain> zset, d:<domain> hash (delay, state)
-- ARGV[1] now_ms   ARGV[2] domains to name at each end
--
-- Returns {"surveyed", {field, value, ... of stats}, waiting, domains due, domains leased, of the due ones ready,
--          oldest due ms or -1, {epoch, replica, since}, {"due" | "leased", domain, ms, queued, delay, state}, ...}

local base = string.sub(KEYS[1], 1, -6)
local due, leased = redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3])
local reply = {
  'surveyed',
  redis.call('HGETALL', KEYS[5]),
  redis.call('ZCARD', KEYS[4]),
  due,
  leased,
  due > 0 and redis.call('ZCOUNT', KEYS[2], '-inf', ARGV[1]) or 0,
  due > 0 and redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or '-1',
  redis.call('HMGET', KEYS[1], 'epoch', 'replica', 'since'),
}

local named = {}
local function name(kind, found)
  for i = 1, #found, 2 do
    local domain = found[i]
    if not named[domain] then
      named[domain] = true
      local about = redis.call('HMGET', base .. 'd:' .. domain, 'delay', 'state')
      local queued = redis.call('ZCARD', base .. 'q:' .. domain)
      reply[#reply + 1] = {kind, domain, found[i + 1], queued, about[1] or '', about[2] or ''}
    end
  end
end

local last = tonumber(ARGV[2]) - 1
if last >= 0 and due > 0 then
  name('due', redis.call('ZRANGE', KEYS[2], 0, last, 'WITHSCORES'))
  name('due', redis.call('ZREVRANGE', KEYS[2], 0, last, 'WITHSCORES'))
end
if last >= 0 and leased > 0 then name('leased', redis.call('ZRANGE', KEYS[3], 0, last, 'WITHSCORES')) end
return reply
