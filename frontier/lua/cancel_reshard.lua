-- cancel_reshard: begin to undo a reshard that has not switched yet, or find out that this has begun. No command can switch
-- the crawl any more. Nobody opens it before `end_reshard`. It counts as a claim, so that a command that was waiting for the
-- reshard, and has been killed, does not begin another one when its call arrives late.
--
-- The first write removes something. So Redis carries the script out also if it has no memory left.
--
-- KEYS[1] meta  hash  last_tokens, resharding, reshard_may_switch, former, reshard_claims
-- ARGV[1] last_tokens that the caller read   ARGV[2] reshard_claims that it read: a call that arrives late cancels no later
--   reshard
--
-- Returns {"cancelled", the number of shards that the crawl was being given, number of the claim} | {"other"}: it is not
--   being resharded, it has switched, or another command has begun since

local known = redis.call('HMGET', KEYS[1], 'last_tokens', 'resharding', 'former', 'reshard_claims', 'reshard_may_switch')
if (known[1] or '') ~= ARGV[1] or not known[2] or known[3] then return {'other'} end
local claims, read = tonumber(known[4] or '0'), tonumber(ARGV[2])
if not known[5] then  -- another call has cancelled it, of this command or of another one
  return (claims == read or claims == read + 1) and {'cancelled', known[2], claims .. ''} or {'other'}
end
if claims ~= read then return {'other'} end
redis.call('HDEL', KEYS[1], 'reshard_may_switch')
return {'cancelled', known[2], redis.call('HINCRBY', KEYS[1], 'reshard_claims', 1) .. ''}
