-- forget_domain: begin to forget a domain whose owner wants no trace of it. From now on, the shard accepts none of its URLs.
-- Its lease ends, and whoever holds it is refused, because the token is gone. The URLs are removed later (`forget_urls`).
-- Repeating the call is harmless.
--
-- KEYS[1] due     zset  domain -> due ms
-- KEYS[2] leases  zset  domain -> expiry ms
-- KEYS[3] stats   hash  crawl, forgotten
-- KEYS[4] owner   hash  granted
-- KEYS[5] the prefix of d:<domain> hash, robots:<domain> hash
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] "dry": change nothing, "": forget
--
-- Returns {"forgotten", whether it was leased, number of its records} | {"lost"}

local domain = ARGV[2]
if is_lost(KEYS[3], ARGV[1]) then return {'lost'} end
local domain_key, robots = KEYS[5] .. 'd:' .. domain, KEYS[5] .. 'robots:' .. domain
local is_leased = redis.call('ZSCORE', KEYS[2], domain) and 1 or 0
local records = redis.call('HLEN', robots) + redis.call('EXISTS', domain_key)
if ARGV[3] == 'dry' then return {'forgotten', is_leased, records} end

local marks = redis.call('HGET', KEYS[3], 'forgotten')
if not is_forgotten(marks, domain) then
  redis.call('HSET', KEYS[3], 'forgotten', (marks and marks .. ' ' or '') .. redis.sha1hex(domain))
end
redis.call('ZREM', KEYS[1], domain)
redis.call('ZREM', KEYS[2], domain)
redis.call('UNLINK', domain_key, robots)
local granted = redis.call('HGET', KEYS[4], 'granted')
if granted and string.find(' ' .. granted, ' ' .. domain .. ' ', 1, true) then redis.call('HSET', KEYS[4], 'granted', '') end
return {'forgotten', is_leased, records}
