-- begin_reshard: begin to give a crawl another number of shards, or find out that this has begun. From now on, nobody opens
-- the crawl.
--
-- KEYS[1] meta  hash  shards, last_tokens, resharding, former
-- ARGV[1] last_tokens that the caller read   ARGV[2] the new number of shards
--
-- Returns {"begun"} | {"other"}: another command has changed the number, or is changing it to another one

local known = redis.call('HMGET', KEYS[1], 'shards', 'last_tokens', 'resharding', 'former')
if not known[1] or (known[2] or '') ~= ARGV[1] or known[4] then return {'other'} end
if known[3] and known[3] ~= ARGV[2] then return {'other'} end
redis.call('HSET', KEYS[1], 'resharding', ARGV[2])
return {'begun'}
