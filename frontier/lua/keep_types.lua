-- keep_types: keep the type of each field of the data sets of a crawl: the first one that is offered, "float" for whole numbers
-- ("int") and decimal ones, and "text" for values of different types. Repeating the call is harmless.
--
-- KEYS[1] types  hash  "data set LF field" -> type
-- ARGV[1] the most fields that are kept   ARGV[2...] for each field: its name in the hash, type
--
-- Returns {"kept", for each field: its type from now on, "" if it is not kept}

local reply, number = {'kept'}, redis.call('HLEN', KEYS[1])
for i = 2, #ARGV, 2 do
  local field, offered = ARGV[i], ARGV[i + 1]
  local known = redis.call('HGET', KEYS[1], field)
  local joined = known or (number < tonumber(ARGV[1]) and offered)
  if known and known ~= offered and not (known == 'float' and offered == 'int') then
    joined = known == 'int' and offered == 'float' and offered or 'text'
  end
  if joined and joined ~= known then
    redis.call('HSET', KEYS[1], field, joined)
    number = number + (known and 0 or 1)
  end
  reply[#reply + 1] = joined or ''
end
return reply
