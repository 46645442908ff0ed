-- add_copied: add to the keys of a new shard what was read from frozen ones. Repeating the call is harmless.
--
-- The shard holds the identity only until it is complete, or until the reshard is undone. So a command that comes late adds
-- nothing to a shard in use, and nothing that was removed comes back.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of all keys of the shard
-- ARGV[1] the identity of shards that are filled
-- ARGV[2...] for each key: its name after the prefix, ZADD, HSET, SADD or SET, when it expires ms (0: never), number of words
--   that follow: those of the command after its key
--
-- Returns {"arrived"} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local at = 2
while at <= #ARGV do
  local key, last = KEYS[2] .. ARGV[at], at + 3 + ARGV[at + 3]
  redis.call(ARGV[at + 1], key, unpack(ARGV, at + 4, last))
  if ARGV[at + 2] ~= '0' then redis.call('PEXPIREAT', key, ARGV[at + 2]) end
  at = last + 1
end
return {'arrived'}
