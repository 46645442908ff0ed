-- add_to_outbox: put links into the outbox of the shard whose pages have them, because the nodes of their own shards are away.
-- A page whose links are kept may be settled. Links that are there already stay as they are.
--
-- KEYS[1] outbox  zset  "mode LF domain LF priority LF entry" -> the shard where the link belongs
-- KEYS[2] stats   hash  outboxed: number of links that were put there
-- ARGV[1] the identity of the crawl   ARGV[2] the most links in an outbox, which one call may exceed
-- ARGV[3...] for each link: the shard where it belongs, "mode LF domain LF priority LF entry"
--
-- Returns {"kept", number of links that were not there} | {"full", number of links there} | {"lost"}

if is_lost(KEYS[2], ARGV[1]) then return {'lost'} end
local size = redis.call('ZCARD', KEYS[1])
if size >= tonumber(ARGV[2]) then return {'full', size} end
local added = redis.call('ZADD', KEYS[1], 'NX', unpack(ARGV, 3))
if added > 0 then redis.call('HINCRBY', KEYS[2], 'outboxed', added) end
return {'kept', added}
