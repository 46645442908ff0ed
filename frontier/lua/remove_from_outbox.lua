-- remove_from_outbox: remove links from an outbox, after they were pushed to the shards where they belong.
--
-- KEYS[1] outbox  zset  "mode LF domain LF priority LF entry" -> the shard where the link belongs
-- KEYS[2] stats   hash  delivered: number of links that were removed
-- ARGV[1] the identity of the crawl   ARGV[2...] the members to remove
--
-- Returns {"delivered", number of links that were there} | {"lost"}

if is_lost(KEYS[2], ARGV[1]) then return {'lost'} end
local removed = redis.call('ZREM', KEYS[1], unpack(ARGV, 2))
if removed > 0 then redis.call('HINCRBY', KEYS[2], 'delivered', removed) end
return {'delivered', removed}
