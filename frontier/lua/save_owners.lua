-- save_owners: keep who owns which shard in the open epoch; the next change of the roster starts from it.
--
-- A closed epoch is refused, so all who claim in an epoch read either what stood there when it was opened, or what one of
-- them made of that; and to save the same roster again changes nothing (frontier/ring.py). So all make the same of it.
--
-- KEYS[1] peers  string  the open epoch
-- also   peers:owners  hash  version, table
-- ARGV[1] epoch   ARGV[2] version   ARGV[3] table
--
-- Returns {"kept"} | {"closed"}

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'closed'}
end
redis.call('HSET', KEYS[1] .. ':owners', 'version', ARGV[2], 'table', ARGV[3])
return {'kept'}
