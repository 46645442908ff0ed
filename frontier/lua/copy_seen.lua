-- copy_seen: copy buckets of the seen-set of a frozen shard to a new one, which has as many buckets. Repeating the call is
-- harmless.
--
-- This works on a single server only: on a cluster the call fails with CROSSSLOT, and SADD is used. The shard holds the
-- identity only until it is complete, or until the reshard is undone, so a command that comes late copies nothing.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of all keys of the new shard
-- KEYS[3] the prefix of all keys of the frozen shard
-- ARGV[1] the identity of shards that are filled   ARGV[2] the first bucket   ARGV[3] the last one
--
-- Returns {"arrived"} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
for bucket = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  redis.call('COPY', KEYS[3] .. 'seen:' .. bucket, KEYS[2] .. 'seen:' .. bucket)
end
return {'arrived'}
