-- forget_urls: remove URLs of a domain that is being forgotten from one place, and their fingerprints from the seen-set. An
-- open URL counts as denied, with the reason "forgotten", so that the crawl can end. What is not there is skipped, so a
-- repeated call changes nothing.
--
-- KEYS[1] stats    hash  crawl; denied, denied:forgotten, seen
-- KEYS[2] the prefix of waiting zset ("domain LF priority LF entry"), dead hash ("domain LF entry"), lost zset ("token LF entry"),
--         q:<domain> zset, inflight:<domain> zset, blocks:<domain> zset, block:<block>:<domain> string, seen:<bucket> set,
--         known:<domain> hash, visits:<domain> zset, revisits zset
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] place: q, inflight, waiting, dead, lost, block, known or "" (only fingerprints)
-- ARGV[4] number of members   ARGV[5...] the members (of "block": the name of a block; of "known": buckets), then the fingerprints
--
-- Returns {"removed", number of URLs, number of fingerprints} | {"lost"}

local base, domain, place, members = KEYS[2], ARGV[2], ARGV[3], tonumber(ARGV[4])
local stats = redis.call('HMGET', KEYS[1], 'crawl', 'buckets')
if stats[1] ~= ARGV[1] then return {'lost'} end

local gone, is_open = 0, true
if place == 'block' then
  if redis.call('ZREM', base .. 'blocks:' .. domain, ARGV[5]) == 1 then gone = tonumber(string.sub(ARGV[5], 1, 4)) end
  redis.call('DEL', base .. 'block:' .. ARGV[5] .. ':' .. domain)
elseif place == 'q' or place == 'inflight' then
  gone = redis.call('ZREM', base .. place .. ':' .. domain, unpack(ARGV, 5, 4 + members))
elseif place == 'waiting' then
  gone = redis.call('ZREM', base .. 'waiting', unpack(ARGV, 5, 4 + members))
elseif place == 'dead' then
  gone, is_open = redis.call('HDEL', base .. 'dead', unpack(ARGV, 5, 4 + members)), false
elseif place == 'lost' then
  gone, is_open = redis.call('ZREM', base .. 'lost', unpack(ARGV, 5, 4 + members)), false
end
if place == 'known' then
  is_open = false
  for i = 5, 4 + members do
    for _ in each_record(redis.call('HGET', base .. 'known:' .. domain, ARGV[i]) or '') do gone = gone + 1 end
    redis.call('HDEL', base .. 'known:' .. domain, ARGV[i])
  end
  redis.call('DEL', base .. 'visits:' .. domain)
  redis.call('ZREM', base .. 'revisits', domain)
  redis.call('HINCRBY', KEYS[1], 'known', 0 - gone)
end
if gone > 0 and is_open then
  redis.call('HINCRBY', KEYS[1], 'denied', gone)
  redis.call('HINCRBY', KEYS[1], 'denied:forgotten', gone)
end

-- The bucket is computed as in `push`.
local buckets, half, unseen = tonumber(stats[2] or '1'), 1, 0
while half * 2 <= buckets do half = half * 2 end
for i = 5 + members, #ARGV do
  local bucket = tonumber(string.sub(ARGV[i], -9)) % (half * 2)
  if bucket >= buckets then bucket = bucket - half end
  unseen = unseen + redis.call('SREM', base .. 'seen:' .. bucket, ARGV[i])
end
if unseen > 0 then redis.call('HINCRBY', KEYS[1], 'seen', 0 - unseen) end
return {'removed', gone, unseen}
