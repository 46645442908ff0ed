-- report_reshard: say how far the command of a reshard is, by which others know that it is alive.
--
-- KEYS[1] meta  hash  reshard_progress, reshard_claims
-- ARGV[1] number of the command's claim   ARGV[2] the report (begin_reshard.lua)
--
-- Returns {"reported"} | {"other"}: another command has begun since, or the reshard has ended

local known = redis.call('HMGET', KEYS[1], 'reshard_progress', 'reshard_claims')
if not known[1] or known[2] ~= ARGV[1] then return {'other'} end
redis.call('HSET', KEYS[1], 'reshard_progress', ARGV[2])
return {'reported'}
