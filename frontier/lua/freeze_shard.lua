-- freeze_shard: end all leases of a shard, and let nobody change it any more, so that it can be copied. Repeating the call is
-- harmless.
--
-- The identity of the shard changes, so replicas that do not know of the reshard are refused. The leases end as if they had
-- expired: a holder that is still alive has sent its last request before a new lease can begin.
--
-- KEYS[1] stats   hash  crawl, expired, dead, dead:lost_with_holder
-- KEYS[2] due     zset  domain -> due ms
-- KEYS[3] leases  zset  domain -> expiry ms
-- KEYS[4] dead    hash  "domain LF entry" -> reason
-- KEYS[5] lost    zset  "token LF entry" -> when it was taken back ms
-- KEYS[6] the prefix of q:<domain> zset, inflight:<domain> zset, d:<domain> hash (token, delay, next)
-- ARGV[1] crawl   ARGV[2] the identity of frozen shards   ARGV[3] now_ms   ARGV[4] default_delay_ms
--
-- Returns {"frozen", number of leases left} | {"lost"}

local EACH = 64
local keys = {due = KEYS[2], leases = KEYS[3], stats = KEYS[1], dead = KEYS[4], lost = KEYS[5], shard = KEYS[6]}
local crawl = redis.call('HGET', KEYS[1], 'crawl')
if crawl ~= ARGV[1] and crawl ~= ARGV[2] then return {'lost'} end
redis.call('HSET', KEYS[1], 'crawl', ARGV[2])
local leases = redis.call('ZRANGE', KEYS[3], 0, EACH - 1, 'WITHSCORES')
for i = 1, #leases, 2 do
  take_back(keys, leases[i], tonumber(leases[i + 1]), tonumber(ARGV[3]), tonumber(ARGV[4]))
end
return {'frozen', redis.call('ZCARD', KEYS[3])}
