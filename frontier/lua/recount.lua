-- recount: replace the number of used pages by that of the counters. It is higher than theirs where permits lapsed with
-- their holder, or a page was fetched and another replica's was kept.
--
-- The counters were read while nobody held a permit, so nobody was about to settle a page. That still holds if nothing
-- has moved since; a recount by somebody else is told by its number.
--
-- KEYS[1] budget  hash  used, held, recounts
-- ARGV[1] used, before the counters were read   ARGV[2] recounts, then   ARGV[3] pages in the crawl's counters
--
-- Returns {"recounted"} | {"moved"}: nothing was changed

local state = redis.call('HMGET', KEYS[1], 'used', 'held', 'recounts')
if state[1] ~= ARGV[1] or state[2] ~= '0' or (state[3] or '0') ~= ARGV[2] then
  return {'moved'}
end
redis.call('HSET', KEYS[1], 'used', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'recounts', 1)
return {'recounted'}
