-- correct_time: change the correction of the crawl's clock, or answer that it needs no change.
--
-- Of several replicas that notice the same step of the server's clock, the first corrects it. The others named a version that
-- is outdated by then, so a step is corrected once.
--
-- KEYS[1] peers:clock  hash  correction_ms, version, errors_ms, asked, answered (frontier/clock.py)
-- ARGV[1] the version that the caller knows   ARGV[2] correction_ms
-- ARGV[3] by how much this correction may put crawl time back, ms   ARGV[4] the last question that the caller knows
--
-- Returns {"right"} | {"corrected"} | {"outdated"}

local known = redis.call('HMGET', KEYS[1], 'version', 'correction_ms', 'answered')
if (known[1] or '0') ~= ARGV[1] then
  return {'outdated'}
end
if (known[2] or '0') ~= ARGV[2] then
  redis.call('HSET', KEYS[1], 'correction_ms', ARGV[2], 'version', string.format('%.0f', ARGV[1] + 1))
  redis.call('HINCRBY', KEYS[1], 'errors_ms', ARGV[3])
  return {'corrected'}
end
if tonumber(ARGV[4]) > tonumber(known[3] or '0') then
  redis.call('HSET', KEYS[1], 'answered', ARGV[4])
end
return {'right'}
