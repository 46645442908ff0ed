-- recount: replace the number of used permits by the number of pages in the counters. It is unknown until then if replicas
-- fetched without permits. It may also be too high, if permits expired with their holder, or if two replicas fetched the
-- same page and only one of them was kept.
--
-- The counters were read while every replica needed permits. So each page that was settled since then is among the permits
-- that were reported as used since then, or that are held. `recounts` shows whether this still applies: another replica
-- may have recounted meanwhile, or fetched without permits.
--
-- KEYS[1] budget  hash  used, counted, recounts
-- ARGV[1] used and ARGV[2] recounts, both from before the counters were read   ARGV[3] pages in the crawl's counters
--
-- Returns {"recounted"} | {"outdated"} (nothing was changed)

local state = redis.call('HMGET', KEYS[1], 'used', 'recounts')
if (state[2] or '0') ~= ARGV[2] then
  return {'outdated'}
end
local used = ARGV[3] + (state[1] or '0') - ARGV[1]
redis.call('HSET', KEYS[1], 'used', string.format('%.0f', used), 'counted', 1)
redis.call('HINCRBY', KEYS[1], 'recounts', 1)
return {'recounted'}
