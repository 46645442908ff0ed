-- recount: replace the number of used permits by the number of pages in the counters. Fewer pages than used permits were
-- settled if permits expired with their holder, or if two replicas fetched the same page and only one of them was kept.
--
-- The counters were read while no replica held a permit, so no replica was about to settle a page. This still holds if
-- nothing has changed since. `recounts` shows whether another replica has recounted meanwhile.
--
-- KEYS[1] budget  hash  used, held, recounts
-- ARGV[1] used and ARGV[2] recounts, both from before the counters were read   ARGV[3] pages in the crawl's counters
--
-- Returns {"recounted"} | {"moved"} (nothing was changed)

local state = redis.call('HMGET', KEYS[1], 'used', 'held', 'recounts')
if state[1] ~= ARGV[1] or state[2] ~= '0' or (state[3] or '0') ~= ARGV[2] then
  return {'moved'}
end
redis.call('HSET', KEYS[1], 'used', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'recounts', 1)
return {'recounted'}
