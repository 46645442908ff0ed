-- requeue: queue dead letters and kept denied URLs again. Each returns to its domain's queue with its tries reset. The domain's backoff is
-- reset too, because it may have marked the domain as given up. A dead letter that no longer exists is skipped.
--
-- No counter goes down, because the end of the crawl is found from two readings of them. A requeued URL is counted as
-- accepted once more and stays counted as dead or denied, so accepted minus settled is still the number of open URLs.
-- `requeued:` counts by outcome and reason what readers subtract from both.
--
-- A URL may have several dead letters, if it was seeded again, and may be queued or leased already. It is queued once, or
-- accepted would exceed what can be settled, and the crawl would never end.
--
-- KEYS[1] due     zset  domain -> due ms
-- KEYS[2] leases  zset  domain -> expiry ms
-- KEYS[3] stats   hash  crawl, accepted, <outcome>:<reason>, requeued:<outcome>:<reason>
-- KEYS[4] dead    hash  "domain LF entry" -> reason
-- KEYS[5] the prefix of q:<domain> zset, inflight:<domain> zset, d:<domain> hash (next, state)
-- ARGV[1] crawl   ARGV[2] now_ms   ARGV[3] priority
-- ARGV[4...] for each dead letter: domain, entry
--
-- Returns {"requeued", number} | {"lost"}

if is_lost(KEYS[3], ARGV[1]) then return {'lost'} end
local base = KEYS[5]
local now_ms = tonumber(ARGV[2])
local requeued, queued = 0, 0

-- Count `entry`, which was settled for `reason`. No reason of denied URLs is also one of dead URLs.
local function count_requeued(entry, reason)
  local outcome = redis.call('HEXISTS', KEYS[3], 'denied:' .. reason) == 1 and 'denied' or 'dead'
  if string.find(entry, '^%u') then outcome = 'requisite' end
  redis.call('HINCRBY', KEYS[3], 'requeued:' .. outcome .. ':' .. reason, 1)
  requeued = requeued + 1
end

for i = 4, #ARGV, 2 do
  local domain, entry = ARGV[i], ARGV[i + 1]
  local reason = redis.call('HGET', KEYS[4], domain .. '\n' .. entry)
  if reason then
    redis.call('HDEL', KEYS[4], domain .. '\n' .. entry)
    -- Character 4 counts the tries, character 6 how often the entry was lost with its holder. A request that may have been
    -- sent (`mark_sent`) is sent again.
    local fresh = string.sub(entry, 1, 3) .. '0' .. string.sub(entry, 5, 5) .. '0' .. string.gsub(string.sub(entry, 7), '(\t[%w_.-]*~)!', '%1', 1)
    if not redis.call('ZSCORE', base .. 'inflight:' .. domain, fresh) then
      queued = queued + redis.call('ZADD', base .. 'q:' .. domain, 'NX', ARGV[3], fresh)
    end
    count_requeued(entry, reason)
    if not redis.call('ZSCORE', KEYS[2], domain) then
      redis.call('HDEL', base .. 'd:' .. domain, 'state')
      local next_ms = tonumber(redis.call('HGET', base .. 'd:' .. domain, 'next') or '0')
      redis.call('ZADD', KEYS[1], 'NX', math.max(now_ms, next_ms), domain)
    end
  end
end
if queued > 0 then redis.call('HINCRBY', KEYS[3], 'accepted', queued) end
return {'requeued', requeued}
