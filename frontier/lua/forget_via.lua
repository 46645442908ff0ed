-- forget_via: store members of a shard without the page where the URL was found, because that page is being forgotten. A
-- member that is no longer there is skipped, so a repeated call changes nothing.
--
-- KEYS[1] stats  hash  crawl; denied, denied:merged, requeued:denied:merged
-- KEYS[2] the prefix of all keys of the shard
-- ARGV[1] crawl   ARGV[2...] for each member: the name of the key after the prefix, the member, what replaces it; of a
--   string: its content; of known:<domain>: bucket LF records, and the new records
--
-- Returns {"changed", number} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local changed = 0
for i = 2, #ARGV, 3 do
  local name, before, after = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local key, place = KEYS[2] .. name, string.match(name, '^[^:]*')
  if place == 'block' then
    if redis.call('GET', key) == before then
      redis.call('SET', key, after)
      changed = changed + 1
    end
  elseif place == 'known' then
    local bucket, records = string.match(before, '^([^\n]*)\n(.*)$')
    if redis.call('HGET', key, bucket) == records then
      redis.call('HSET', key, bucket, after)
      changed = changed + 1
    end
  elseif place == 'dead' then
    local reason = redis.call('HGET', key, before)
    if reason then
      redis.call('HDEL', key, before)
      redis.call('HSETNX', key, after, reason)
      changed = changed + 1
    end
  else
    local score = redis.call('ZSCORE', key, before)
    if score then
      redis.call('ZREM', key, before)
      local is_open = place == 'q' or place == 'waiting' or place == 'inflight'
      if redis.call('ZADD', key, 'NX', score, after) == 0 and is_open then count_merged(KEYS[1]) end
      changed = changed + 1
    end
  end
end
return {'changed', changed}
