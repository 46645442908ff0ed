-- spend: reserve part of a crawl's budget of pages. A replica holds permits for the pages that it is about to fetch;
-- what is used and what is held together never pass the limit. The permits of a replica that fell silent lapse.
--
-- KEYS[1] budget  hash  used, held:<replica> -> "permits until_ms"
-- ARGV[1] replica   ARGV[2] used since the last call   ARGV[3] permits wanted in hand
-- ARGV[4] limit     ARGV[5] now_ms   ARGV[6] ttl_ms
--
-- Returns {"spent", permits in hand, used by all}

local mine = 'held:' .. ARGV[1]
local used = redis.call('HINCRBY', KEYS[1], 'used', ARGV[2])
local held_by_others = 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if fields[i] ~= 'used' and fields[i] ~= mine then
    local permits, until_ms = string.match(fields[i + 1], '^(%d+) (%d+)$')
    if tonumber(until_ms) < tonumber(ARGV[5]) then
      redis.call('HDEL', KEYS[1], fields[i])
    else
      held_by_others = held_by_others + tonumber(permits)
    end
  end
end
local permits = math.max(0, math.min(tonumber(ARGV[3]), tonumber(ARGV[4]) - used - held_by_others))
if permits > 0 then
  redis.call('HSET', KEYS[1], mine, permits .. ' ' .. string.format('%.0f', tonumber(ARGV[5]) + tonumber(ARGV[6])))
else
  redis.call('HDEL', KEYS[1], mine)
end
return {'spent', permits, used}
