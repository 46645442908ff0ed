-- keep_types: keep the type of each field of the data sets of a crawl, the first one that is offered. Whole numbers ("int") become
-- decimal ones ("float"). Repeating the call is harmless.
--
-- KEYS[1] types  hash  "data set LF field" -> type
-- ARGV[1] the most fields that are kept   ARGV[2...] for each field: its name in the hash, type
--
-- Returns {"kept", for each field: its type from now on, "" if it is not kept}

local reply, number = {'kept'}, redis.call('HLEN', KEYS[1])
for i = 2, #ARGV, 2 do
  local field, offered = ARGV[i], ARGV[i + 1]
  local known = redis.call('HGET', KEYS[1], field)
  if (not known and number < tonumber(ARGV[1])) or (known == 'int' and offered == 'float') then
    redis.call('HSET', KEYS[1], field, offered)
    number = number + (known and 0 or 1)
    known = offered
  end
  reply[#reply + 1] = known or ''
end
return reply
