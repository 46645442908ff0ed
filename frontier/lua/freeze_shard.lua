-- freeze_shard: end all leases of a shard, and let nobody queue, lease or settle in it any more, so that it can be copied.
-- Repeating the call is harmless.
--
-- Some calls do not look at the identity, or ask about the past, and still change it: save_robots, end_reservation,
-- retry_now, revoke and an operator's delay for a domain. None of them queues, leases or settles a URL, or changes a number
-- that is compared. What they change during the copy may be missing in the new shards: a robots.txt is then fetched again,
-- and an operator's command has to be repeated.
-- The identity of the shard changes, so replicas that do not know of the reshard are refused. The leases end as if they had
-- expired: a holder that is still alive has sent its last request before a new lease can begin. A command that was suspended
-- until its reshard was cancelled is refused, also by a shard that was repaired since.
--
-- KEYS[1] stats   hash  crawl, expired, dead, dead:lost_with_holder, wrong_type
-- KEYS[2] the prefix of due zset, urgent zset, revisits zset, leases zset, dead hash, lost zset, q:<domain> zset, inflight:<domain> zset,
--         d:<domain> hash (token, delay, next), owner hash (cancelled: the last claim of a cancelled reshard; frozen: the
--         last claim whose command has frozen the shard)
-- ARGV[1] crawl   ARGV[2] the identity of frozen shards   ARGV[3] now_ms   ARGV[4] default_delay_ms
-- ARGV[5] number of the command's claim (begin_reshard.lua)
--
-- Returns {"frozen", number of leases left} | {"lost"} | {"cancelled"}

local EACH = 64
local leases_key = KEYS[2] .. 'leases'
local crawl = redis.call('HGET', KEYS[1], 'crawl')
if crawl ~= ARGV[1] and crawl ~= ARGV[2] then return {'lost'} end
local cancelled = redis.call('HGET', KEYS[2] .. 'owner', 'cancelled')
if cancelled and tonumber(cancelled) >= tonumber(ARGV[5]) then return {'cancelled'} end
redis.call('HSET', KEYS[1], 'crawl', ARGV[2])
local frozen = redis.call('HGET', KEYS[2] .. 'owner', 'frozen')
redis.call('HSET', KEYS[2] .. 'owner', 'frozen', math.max(tonumber(frozen or '0'), tonumber(ARGV[5])))
local leases = redis.call('ZRANGE', leases_key, 0, EACH - 1, 'WITHSCORES')
for i = 1, #leases, 2 do
  end_lease(KEYS[2], leases[i], tonumber(leases[i + 1]), tonumber(ARGV[3]), tonumber(ARGV[4]))
end
return {'frozen', redis.call('ZCARD', leases_key)}
