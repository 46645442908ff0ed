-- remove_copied: remove keys of a frozen shard, which were copied. Repeating the call is harmless.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of all keys of the shard
-- ARGV[1] the identity of frozen shards   ARGV[2...] the names of the keys after the prefix
--
-- Returns {"removed"} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
for i = 2, #ARGV do redis.call('UNLINK', KEYS[2] .. ARGV[i]) end
return {'removed'}
