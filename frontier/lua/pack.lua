-- pack: move the last entries of a domain's queue, which are of the lowest priority, into a compressed block. The caller has
-- read and compressed them. If the queue or the former block has changed since then, nothing is done. A repeated call finds
-- the queue changed.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of q:<domain> zset, blocks:<domain> zset (block -> minus the highest priority in it),
--         block:<block>:<domain> string, d:<domain> hash (packed: number of entries in all blocks)
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] number of entries   ARGV[4] SHA-1 of these entries and their priorities
-- ARGV[5] block: its name begins with the number of its entries, four digits   ARGV[6] minus the highest priority in it
-- ARGV[7] its contents   ARGV[8] former: a block whose entries are in the new one, too ("": none)
--
-- Returns {"packed"} | {"changed"} | {"lost"}

-- Up to so many entries, the server's default limit, a sorted set is small. It has to be stored again to become small.
local SMALL = 128
local domain, number, block, former = ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[8]
local queue, blocks = KEYS[2] .. 'q:' .. domain, KEYS[2] .. 'blocks:' .. domain

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local entries = redis.call('ZRANGE', queue, 0, number - 1, 'WITHSCORES')
if redis.sha1hex(table.concat(entries, '\n')) ~= ARGV[4] then return {'changed'} end
if redis.call('ZSCORE', blocks, block) then return {'changed'} end
if former ~= '' then
  if redis.call('ZREM', blocks, former) == 0 then return {'changed'} end
  redis.call('DEL', KEYS[2] .. 'block:' .. former .. ':' .. domain)
end
redis.call('SET', KEYS[2] .. 'block:' .. block .. ':' .. domain, ARGV[7])
redis.call('ZADD', blocks, ARGV[6], block)
redis.call('HINCRBY', KEYS[2] .. 'd:' .. domain, 'packed', number)
redis.call('ZREMRANGEBYRANK', queue, 0, number - 1)
if redis.call('ZCARD', queue) <= SMALL then redis.call('ZRANGESTORE', queue, queue, 0, -1) end
return {'packed'}
