-- rate_limit: reserve time slots for requests to an address, so that all domains at the address share one rate.
--
-- This is the generic cell rate algorithm (ITU-T I.371, virtual scheduling). It keeps one number per address, the
-- theoretical arrival time of the next request. A returned slot is reserved, so no caller starves. The key of an idle
-- address expires.
--
-- KEYS[1] limit  string  theoretical arrival time, ms with three decimals; expires by itself
-- ARGV[1] now_ms   ARGV[2] interval_ms (may be a fraction)   ARGV[3] burst   ARGV[4] number of slots wanted
-- ARGV[5] horizon_ms: slots further ahead than this are not reserved
--
-- Returns {"slots", slot ms as text, ...}: as many as wanted, without those beyond the horizon

local now_ms, interval_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local tolerance_ms = (tonumber(ARGV[3]) - 1) * interval_ms
local last_ms = now_ms + tonumber(ARGV[5])
local stored = redis.pcall('GET', KEYS[1])  -- an error if somebody else has written over it: it is replaced
local arrival_ms = math.max(now_ms, type(stored) == 'string' and tonumber(stored) or 0)

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
