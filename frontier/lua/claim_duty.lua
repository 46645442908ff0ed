-- claim_duty: let exactly one replica do a periodic duty in an interval. The holder repeats its claim while it works. If
-- its claim expires before it has reported the duty as done, another replica may take over.
--
-- KEYS[1] duties  hash  <duty> -> "interval replica until_ms", or "interval done" once it is done
-- ARGV[1] duty   ARGV[2] interval number   ARGV[3] replica   ARGV[4] now_ms   ARGV[5] ttl_ms
-- ARGV[6] "work" to claim, or "done" to report
--
-- Returns {"claimed"} | {"held", replica} | {"done"} | {"lost"} (reported as done by a replica that does not hold it)

local duty, interval, replica = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local of, holder, until_ms = string.match(redis.call('HGET', KEYS[1], duty) or '0 done', '^(%d+) (%S+) ?(%d*)$')
local held_interval = tonumber(of)

if held_interval > interval or (held_interval == interval and holder == 'done') then
  return {'done'}
end
local is_held = held_interval == interval and tonumber(until_ms) > tonumber(ARGV[4])
if ARGV[6] == 'done' then
  -- A holder whose claim has expired may still report the duty if no other replica has taken it over.
  if held_interval ~= interval or holder ~= replica then return {'lost'} end
  redis.call('HSET', KEYS[1], duty, ARGV[2] .. ' done')
  return {'done'}
end
if is_held and holder ~= replica then
  return {'held', holder}
end
redis.call('HSET', KEYS[1], duty, ARGV[2] .. ' ' .. replica .. ' ' .. string.format('%.0f', ARGV[4] + ARGV[5]))
return {'claimed'}
