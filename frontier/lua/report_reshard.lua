-- report_reshard: say how far the command of a reshard is, by which others know that it is alive.
--
-- A command that waits until another one has been silent for long enough knows the claim of that one, so the claim alone does
-- not tell whose report it is.
--
-- KEYS[1] meta  hash  reshard_progress, reshard_claims
-- ARGV[1] number of the command's claim   ARGV[2] the report (begin_reshard.lua)
--
-- Returns {"reported"} | {"other"}: the command has not begun yet, another one has begun since, or the reshard has ended

local known = redis.call('HMGET', KEYS[1], 'reshard_progress', 'reshard_claims')
if not known[1] or known[2] ~= ARGV[1] then return {'other'} end
if string.match(known[1], '%S+$') ~= string.match(ARGV[2], '%S+$') then return {'other'} end
redis.call('HSET', KEYS[1], 'reshard_progress', ARGV[2])
return {'reported'}
