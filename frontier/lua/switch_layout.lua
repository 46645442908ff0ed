-- switch_layout: let a crawl use its new shards, which are complete. Nobody opens it before `end_reshard`.
--
-- KEYS[1] meta  hash  shards, last_tokens, resharding, reshard_may_switch, reshard_claims, former: the number of shards whose keys
--   have to be removed
-- ARGV[1] last_tokens that the caller read   ARGV[2] the new number of shards   ARGV[3] the last token of the old shards
-- ARGV[4] number of the command's claim: if another one has begun since, its copy may not be complete
--
-- Returns {"switched"} | {"other"}: another command has done it, or has cancelled it

local known = redis.call('HMGET', KEYS[1], 'shards', 'last_tokens', 'resharding', 'reshard_may_switch', 'reshard_claims')
if (known[2] or '') ~= ARGV[1] or known[3] ~= ARGV[2] or not known[4] or known[5] ~= ARGV[4] then
  return {'other'}
end
local last_tokens = ARGV[1] == '' and ARGV[3] or ARGV[1] .. ' ' .. ARGV[3]
redis.call('HSET', KEYS[1], 'shards', ARGV[2], 'last_tokens', last_tokens, 'former', known[1])
return {'switched'}
