-- end_reshard: end a step of a reshard. Repeating the call is harmless.
--
-- KEYS[1] meta  hash  last_tokens, resharding, reshard_open, reshard_progress, former
-- ARGV[1] last_tokens of the layout in use   ARGV[2...] the fields of the step, which are removed
--
-- Returns {"ended"} | {"other"}: the crawl has another layout by now

if (redis.call('HGET', KEYS[1], 'last_tokens') or '') ~= ARGV[1] then return {'other'} end
redis.call('HDEL', KEYS[1], unpack(ARGV, 2))
return {'ended'}
