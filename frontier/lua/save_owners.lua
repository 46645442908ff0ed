-- save_owners: store the owner of each shard in the open epoch. The next change of the roster starts from this table.
--
-- A closed epoch is refused. So the replicas that claim in an epoch read either the table from when it was opened, or the
-- table that one of them computed from it. Computing the owners again for the same roster changes nothing
-- (frontier/peers.py), so all replicas get the same result.
--
-- KEYS[1] peers  string  the open epoch
-- also   peers:owners  hash  version and table, with the suffix
-- ARGV[1] epoch   ARGV[2] version   ARGV[3] table   ARGV[4] suffix, none for "": after a reshard, a replica that has not
--   noticed it, because it was suspended, does not replace the table of the others
--
-- Returns {"kept"} | {"closed"}

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'closed'}
end
local suffix = ARGV[4] or ''
redis.call('HSET', KEYS[1] .. ':owners', 'version' .. suffix, ARGV[2], 'table' .. suffix, ARGV[3])
return {'kept'}
