-- remove_from_outbox: remove links from an outbox, after they were pushed to the shards where they belong.
--
-- KEYS[1] stats   hash  crawl, delivered: number of links that were removed
-- KEYS[2] the prefix of outbox zset: "mode LF domain LF priority LF entry" -> the shard where the link belongs
-- ARGV[1] the identity of the crawl   ARGV[2...] the members to remove
--
-- Returns {"delivered", number of links that were there} | {"lost"}

local outbox = KEYS[2] .. 'outbox'
if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local removed = redis.call('ZREM', outbox, unpack(ARGV, 2))
if removed > 0 then redis.call('HINCRBY', KEYS[1], 'delivered', removed) end
return {'delivered', removed}
