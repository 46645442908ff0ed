-- begin_reshard: begin to give a crawl another number of shards, or continue what a killed command has begun. From now on,
-- nobody opens the crawl.
--
-- A command that works on it reports its progress every second, or some seconds later on a busy machine. Another one may
-- continue if there was no report for BUSY_MS.
--
-- KEYS[1] meta  hash  shards, last_tokens, resharding, former, reshard_progress: "done total ms command" of the last report;
--   reshard_may_switch: there until the reshard is cancelled or complete; reshard_claims: how often a command has begun, continued or undone one
-- ARGV[1] last_tokens that the caller read   ARGV[2] the new number of shards   ARGV[3] command: a name of the caller
-- ARGV[4] now_ms   ARGV[5] reshard_claims that the caller read: a call that arrives late begins nothing
--
-- Returns {"begun", number of the claim} | {"busy", ms}: another command has reported then
--       | {"other"}: another command has changed the number, or is changing it, or it is being cancelled

local BUSY_MS = 10000
local known = redis.call('HMGET', KEYS[1], 'shards', 'last_tokens', 'resharding', 'former', 'reshard_progress',
  'reshard_may_switch', 'reshard_claims')
if not known[1] or (known[2] or '') ~= ARGV[1] or known[4] then return {'other'} end
if known[3] and (known[3] ~= ARGV[2] or not known[6]) then return {'other'} end
local ms, command = string.match(known[5] or '', '^%d+ %d+ (%d+) (%S+)$')
if ms and command ~= ARGV[3] and math.abs(ARGV[4] - ms) < BUSY_MS then return {'busy', ms} end
if (known[7] or '0') ~= ARGV[5] then return {'other'} end
redis.call('HSET', KEYS[1], 'resharding', ARGV[2], 'reshard_may_switch', 1, 'reshard_progress', '0 0 ' .. ARGV[4] .. ' ' .. ARGV[3])
return {'begun', redis.call('HINCRBY', KEYS[1], 'reshard_claims', 1)}
