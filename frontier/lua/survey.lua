-- survey: read the counters of a shard atomically, and list some of its domains. Changes nothing.
--
-- The listed domains are those that have been due longest, those that will be due last, and those whose leases end
-- first. Each is found at an end of a sorted set, so the cost does not depend on the number of domains.
--
-- KEYS[1] owner    hash  epoch, replica, since (the fence)
-- KEYS[2] due      zset  domain -> due ms
-- KEYS[3] leases   zset  domain -> expiry ms
-- KEYS[4] waiting  zset  entries that wait for a retry -> ready ms
-- KEYS[5] stats    hash  counters
-- KEYS[6] the prefix of q:<domain> zset
-- ARGV[1] now_ms   ARGV[2] number of domains to list at each end, at least 1
--
-- Returns {"surveyed", {field, value, ... of stats}, waiting, domains due, domains leased, due domains that are ready,
--          oldest due ms or -1, {epoch, replica, since}, {"due" | "leased", domain, ms, queued}, ...}

local queue = KEYS[6] .. 'q:'
local last = tonumber(ARGV[2]) - 1
local first = redis.call('ZRANGE', KEYS[2], 0, last, 'WITHSCORES')

local reply = {
  'surveyed',
  redis.call('HGETALL', KEYS[5]),
  redis.call('ZCARD', KEYS[4]),
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  redis.call('ZCOUNT', KEYS[2], '-inf', ARGV[1]),
  first[2] or '-1',
  redis.call('HMGET', KEYS[1], 'epoch', 'replica', 'since'),
}

local named = {}
local function name(kind, found)
  for i = 1, #found, 2 do
    local domain = found[i]
    if not named[domain] then
      named[domain] = true
      reply[#reply + 1] = {kind, domain, found[i + 1], redis.call('ZCARD', queue .. domain)}
    end
  end
end

name('due', first)
name('due', redis.call('ZREVRANGE', KEYS[2], 0, last, 'WITHSCORES'))
name('leased', redis.call('ZRANGE', KEYS[3], 0, last, 'WITHSCORES'))
return reply
