-- end_reshard: end a step of a reshard. Repeating the call is harmless.
--
-- KEYS[1] meta  hash  last_tokens, resharding, reshard_may_switch, reshard_progress, former, reshard_claims
-- ARGV[1] last_tokens of the layout in use   ARGV[2] reshard_claims that the caller read: a call that arrives late ends no
--   step of a later reshard   ARGV[3...] the fields of the step, which are removed
--
-- Returns {"ended"} | {"other"}: the crawl has another layout by now, or another command has begun since

local known = redis.call('HMGET', KEYS[1], 'last_tokens', 'reshard_claims')
if (known[1] or '') ~= ARGV[1] or (known[2] or '0') ~= ARGV[2] then return {'other'} end
redis.call('HDEL', KEYS[1], unpack(ARGV, 3))
return {'ended'}
