-- rate_limit: give out slots at which an address may be asked, so that many domains behind it share one rate.
--
-- The generic cell rate algorithm (ITU-T I.371, virtual scheduling): one number an address, the theoretical arrival
-- time of the next request. A slot given out is reserved, so nobody is overtaken for ever. An address that was left
-- alone long enough has no key.
--
-- KEYS[1] limit  string  theoretical arrival time, ms with three decimals; expires by itself
-- ARGV[1] now_ms   ARGV[2] interval_ms (may be a fraction)   ARGV[3] burst   ARGV[4] how many slots are wanted
-- ARGV[5] horizon_ms: what lies further ahead is not reserved
--
-- Returns {"slots", slot ms as text, ...}: as many as wanted, the last of them left out if beyond the horizon

local now_ms, interval_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local tolerance_ms = (tonumber(ARGV[3]) - 1) * interval_ms
local last_ms = now_ms + tonumber(ARGV[5])
local arrival_ms = math.max(now_ms, tonumber(redis.call('GET', KEYS[1]) or '0'))

local reply = {'slots'}
for _ = 1, math.min(tonumber(ARGV[4]), 1000) do
  local slot_ms = math.max(now_ms, arrival_ms - tolerance_ms)
  if slot_ms > last_ms then break end
  reply[#reply + 1] = string.format('%.3f', slot_ms)
  arrival_ms = arrival_ms + interval_ms
end
if #reply > 1 then
  redis.call('SET', KEYS[1], string.format('%.3f', arrival_ms), 'PX', math.ceil(arrival_ms - now_ms))
end
return reply
