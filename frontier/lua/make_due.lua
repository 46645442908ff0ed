-- make_due: part of `push` and of `promote_retries`. Let a domain that is not leased be due, when its delay is over, and note
-- that it is urgent if a URL with a priority above 0 was queued (`urgent`).
--
-- base  the prefix of due zset, urgent zset, leases zset, d:<domain> hash (next)
-- priority  the highest one of the URLs that were queued; of known pages (visits.lua) it is above MOST_PRIORITY

local MOST_PRIORITY = 1e11

local function make_due(base, domain, now_ms, priority)
  if priority > 0 and priority <= MOST_PRIORITY then redis.call('ZADD', base .. 'urgent', 'LT', 0 - priority, domain) end
  if not redis.call('ZSCORE', base .. 'leases', domain) then
    local next_ms = tonumber(redis.call('HGET', base .. 'd:' .. domain, 'next') or '0')
    redis.call('ZADD', base .. 'due', 'NX', math.max(now_ms, next_ms), domain)
  end
end
