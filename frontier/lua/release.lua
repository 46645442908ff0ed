-- release: end a lease early. URLs that were not fetched return to the queue unchanged.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of due zset, leases zset, q:<domain> zset, inflight:<domain> zset, d:<domain> hash (token, next, state,
--         packed)
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] token   ARGV[4] next_ms   ARGV[5] state ("": unchanged)
--
-- Returns {"released", due_ms or -1} | {"stale"} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local base, domain = KEYS[2], ARGV[2]
local queue, inflight, domain_key = base .. 'q:' .. domain, base .. 'inflight:' .. domain, base .. 'd:' .. domain

-- A key of a wrong type has no token and no entries. The next lease sets its domain aside (set_aside.lua).
local known = redis.pcall('HMGET', domain_key, 'token', 'next', 'packed')
if known[1] ~= ARGV[3] then
  return {'stale'}
end
-- A delay that an earlier settle requested is never shortened.
local next_ms = math.max(tonumber(ARGV[4]), tonumber(known[2] or '0'))
local entries, back = redis.pcall('ZRANGE', inflight, 0, -1, 'WITHSCORES'), {}
for i = 1, #entries, 2 do back[i], back[i + 1] = entries[i + 1], entries[i] end
local added = #back > 0 and redis.pcall('ZADD', queue, unpack(back))
if type(added) == 'table' and not string.find(added.err, '^WRONGTYPE') then return added end
redis.call('DEL', inflight)
redis.call('ZREM', base .. 'leases', domain)
redis.call('HDEL', domain_key, 'token', 'open')
redis.call('HSET', domain_key, 'next', next_ms)
if ARGV[5] ~= '' then redis.call('HSET', domain_key, 'state', ARGV[5]) end
if known[3] or redis.call('EXISTS', queue) == 1 then
  redis.call('ZADD', base .. 'due', next_ms, domain)
  return {'released', next_ms}
end
return {'released', -1}
