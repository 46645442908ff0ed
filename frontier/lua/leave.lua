-- leave: remove a replica from the open epoch, so that the next view no longer includes it.
--
-- KEYS[1] peers  string  the open epoch
-- also   peers:claims   hash  replica -> "number capacity address", the claims in the open epoch
--        peers:running  hash  total_ms, last_ms, working (claim.lua)
-- ARGV[1] replica   ARGV[2] now_ms, 0 if the replica does not know the time
--
-- Returns {"left"} | {"absent"}

local claims = KEYS[1] .. ':claims'
if redis.call('HDEL', claims, ARGV[1]) == 1 then
  if redis.call('EXISTS', claims) == 0 then  -- it was the last one, so nothing runs until the next claim
    local running = KEYS[1] .. ':running'
    local before = redis.call('HMGET', running, 'last_ms', 'working')
    if before[1] and before[2] == '1' and ARGV[2] ~= '0' then
      redis.call('HINCRBY', running, 'total_ms', string.format('%.0f', math.max(0, ARGV[2] - before[1])))
    end
    redis.call('HSET', running, 'working', 0)
    if ARGV[2] ~= '0' then redis.call('HSET', running, 'last_ms', ARGV[2]) end
  end
  return {'left'}
end
return {'absent'}
