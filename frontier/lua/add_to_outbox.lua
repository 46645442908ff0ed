-- add_to_outbox: put links into the outbox of the shard whose pages have them, because the nodes of their own shards are away.
-- A page whose links are kept may be settled. Links that are there already stay as they are.
--
-- KEYS[1] stats   hash  crawl, outboxed: number of links that were put there
-- KEYS[2] the prefix of outbox zset: "mode LF domain LF priority LF entry" -> the shard where the link belongs
-- ARGV[1] the identity of the crawl   ARGV[2] the most links in an outbox, which one call may exceed
-- ARGV[3...] for each link: the shard where it belongs, "mode LF domain LF priority LF entry"
--
-- Returns {"kept", number of links that were not there} | {"full", number of links there} | {"lost"}

local outbox = KEYS[2] .. 'outbox'
if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local size = redis.call('ZCARD', outbox)
if size >= tonumber(ARGV[2]) then return {'full', size} end
local added = redis.call('ZADD', outbox, 'NX', unpack(ARGV, 3))
if added > 0 then redis.call('HINCRBY', KEYS[1], 'outboxed', added) end
return {'kept', added}
