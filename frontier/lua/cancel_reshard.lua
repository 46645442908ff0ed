-- cancel_reshard: begin to undo a reshard that has not switched yet, or find out that this has begun. No command can switch
-- the crawl any more. Nobody opens it before `end_reshard`. The script only removes, so it works if Redis has no memory left.
--
-- KEYS[1] meta  hash  last_tokens, resharding, reshard_may_switch, former, reshard_claims
-- ARGV[1] last_tokens that the caller read   ARGV[2] reshard_claims that it read: a call that arrives late cancels no later
--   reshard
--
-- Returns {"cancelled", the number of shards that the crawl was being given, number of the last claim} | {"other"}: it is
--   not being resharded, it has switched, or another command has begun since

local known = redis.call('HMGET', KEYS[1], 'last_tokens', 'resharding', 'former', 'reshard_claims')
if (known[1] or '') ~= ARGV[1] or not known[2] or known[3] or (known[4] or '0') ~= ARGV[2] then return {'other'} end
redis.call('HDEL', KEYS[1], 'reshard_may_switch')
return {'cancelled', known[2], known[4] or '0'}
