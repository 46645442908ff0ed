-- report_reshard: say how far the command of a reshard is, by which others know that it is alive.
--
-- KEYS[1] meta  hash  reshard_progress
-- ARGV[1] the report (begin_reshard.lua), which ends in the name of its command
--
-- Returns {"reported"} | {"other"}: the command has not begun yet, another one has begun since, or the reshard has ended

local last = redis.call('HGET', KEYS[1], 'reshard_progress')
if not last or string.match(last, '%S+$') ~= string.match(ARGV[1], '%S+$') then return {'other'} end
redis.call('HSET', KEYS[1], 'reshard_progress', ARGV[1])
return {'reported'}
