-- shared_value: read or change one of the values that the handlers of a crawl share.
--
-- KEYS[1] values  hash  name -> JSON
-- ARGV[1] "get", "set", "delete" or "increment"   ARGV[2] name   ARGV[3] the value, or by how much it grows
-- ARGV[4] the most values that are kept
--
-- Returns {"value", JSON or nil} | {"full"} (it would be one more than may be kept) | {"no number"} (of a value that is no whole
-- number, or becomes one that has more than 64 bits)

local verb, name = ARGV[1], ARGV[2]
if verb == 'delete' then
  redis.call('HDEL', KEYS[1], name)
  return {'value'}
end
local found = redis.call('HGET', KEYS[1], name)
if verb == 'get' then return {'value', found} end
if not found and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return {'full'} end
if verb == 'set' then
  redis.call('HSET', KEYS[1], name, ARGV[3])
  return {'value', ARGV[3]}
end
local grown = redis.pcall('HINCRBY', KEYS[1], name, ARGV[3])
if type(grown) == 'table' then return {'no number'} end
return {'value', redis.call('HGET', KEYS[1], name)}
