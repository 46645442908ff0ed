-- forget_domain: begin to forget a domain whose owner wants no trace of it. From now on, the shard accepts none of its URLs.
-- Its lease ends, and whoever holds it is refused, because the token is gone. The URLs are removed later (`forget_urls`).
-- Repeating the call is harmless.
--
-- KEYS[1] stats  hash  crawl, forgotten
-- KEYS[2] the prefix of due zset, urgent zset, leases zset, owner hash (granted), d:<domain> hash, robots:<domain> hash
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] "dry": change nothing, "": forget
--
-- Returns {"forgotten", whether it was leased, number of its records} | {"lost"}

local base, domain = KEYS[2], ARGV[2]
if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local domain_key, robots = base .. 'd:' .. domain, base .. 'robots:' .. domain
local is_leased = redis.call('ZSCORE', base .. 'leases', domain) and 1 or 0
local records = redis.call('HLEN', robots) + redis.call('EXISTS', domain_key)
if ARGV[3] == 'dry' then return {'forgotten', is_leased, records} end

local marks = redis.call('HGET', KEYS[1], 'forgotten')
if not is_forgotten(marks, domain) then
  redis.call('HSET', KEYS[1], 'forgotten', (marks and marks .. ' ' or '') .. redis.sha1hex(domain))
end
redis.call('ZREM', base .. 'due', domain)
redis.call('ZREM', base .. 'urgent', domain)
redis.call('ZREM', base .. 'leases', domain)
redis.call('UNLINK', domain_key, robots)
local granted = redis.call('HGET', base .. 'owner', 'granted')
if granted and string.find(' ' .. granted, ' ' .. domain .. ' ', 1, true) then redis.call('HSET', base .. 'owner', 'granted', '') end
return {'forgotten', is_leased, records}
