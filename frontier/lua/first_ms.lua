-- first_ms: part of other scripts. The lowest score of a sorted set, such as a time in ms; math.huge if the set is empty.
--
-- Most calls of `lease` find nothing to do. For them it is enough to read the first member of each of three sets.

local function first_ms(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge
end
