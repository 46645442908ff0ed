-- dead_letter: part of other scripts. Keep a dead letter, unless the shard has as many as it may have. The caller counts those
-- that are not kept as drop:dead_letters. The URL is settled in any case, and its line in the output says why.
--
-- dead  the key of a hash  "domain LF entry" -> reason
--
-- Returns whether it is kept.

local DEAD_LETTERS = 10000  -- at about 150 bytes each

local function keep_dead_letter(dead, letter, reason)
  if redis.call('HLEN', dead) >= DEAD_LETTERS and redis.call('HEXISTS', dead, letter) == 0 then return false end
  redis.call('HSET', dead, letter, reason)
  return true
end
