-- take_turn: let a crawl make the next request to a domain whose delay it shares with other crawls on this server.
--
-- The keys are of no single crawl. After the request, the caller writes `rested CRAWL` until the delay ends. A crawl that
-- has to wait and asks again in time comes next, so that crawls with much work take turns. Time is the server's, because
-- each crawl may have a clock of its own. A crawl that dies loses its turn when the keys expire.
--
-- KEYS[1] turn  string  "busy CRAWL" or "rested CRAWL": who makes a request, or made the last one; expires with its delay
-- KEYS[2] next  string  the crawl that comes next; expires
-- ARGV[1] crawl   ARGV[2] hold_ms: maximum duration of the request
-- ARGV[3] horizon_ms: a crawl that has to wait for longer does not come next, because its lease is returned
--
-- Returns {"taken"} | {"wait", ms}: the rest of the delay; at most POLL_MS while the request or the turn of another crawl lasts

local POLL_MS, SPARE_MS = 250, 3000
local turn, next_crawl = redis.pcall('GET', KEYS[1]), redis.pcall('GET', KEYS[2])
if type(turn) == 'table' or type(next_crawl) == 'table' then  -- somebody else has written over them
  redis.call('DEL', KEYS[1], KEYS[2])
  turn, next_crawl = false, false
end
local state, holder = string.match(turn or '', '^(%l+) (.+)$')
if (not holder or holder == ARGV[1]) and (not next_crawl or next_crawl == ARGV[1]) then
  redis.call('SET', KEYS[1], 'busy ' .. ARGV[1], 'PX', ARGV[2])
  redis.call('DEL', KEYS[2])
  return {'taken'}
end
local wait_ms = math.max(1, redis.call('PTTL', KEYS[1]))
if state ~= 'rested' or holder == ARGV[1] then wait_ms = math.min(wait_ms, POLL_MS) end
if not holder then wait_ms = POLL_MS end
if wait_ms <= tonumber(ARGV[3]) and (not next_crawl or next_crawl == ARGV[1]) then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', wait_ms + SPARE_MS)
end
return {'wait', wait_ms}
