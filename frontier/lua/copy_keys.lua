-- copy_keys: copy keys of a frozen shard to a new one as they are. Repeating the call is harmless.
--
-- This works on a single server only: on a cluster the call fails with CROSSSLOT, and the contents are sent. The shard holds
-- the identity only until it is complete, or until the reshard is undone, so a command that comes late copies nothing.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of all keys of the new shard
-- KEYS[3] the prefix of all keys of the frozen shard
-- ARGV[1] the identity of shards that are filled   ARGV[2...] the names of the keys after the prefix
--
-- Returns {"arrived"} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
for at = 2, #ARGV do
  redis.call('COPY', KEYS[3] .. ARGV[at], KEYS[2] .. ARGV[at])
end
return {'arrived'}
