-- mark_sent: replace an entry of a lease by the same one with a mark, immediately before its request is sent: whoever leases
-- it after the death of the holder sees that it may have been sent. Or by the one without the mark, if nothing was sent.
-- A repeated call changes nothing.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of inflight:<domain> zset, d:<domain> hash (token)
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] token   ARGV[4] entry   ARGV[5] new entry
--
-- Returns {"marked"} | {"stale"} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local inflight = KEYS[2] .. 'inflight:' .. ARGV[2]
if redis.call('HGET', KEYS[2] .. 'd:' .. ARGV[2], 'token') ~= ARGV[3] then return {'stale'} end
local priority = redis.call('ZSCORE', inflight, ARGV[4])
if priority then
  redis.call('ZREM', inflight, ARGV[4])
  redis.call('ZADD', inflight, priority, ARGV[5])
elseif not redis.call('ZSCORE', inflight, ARGV[5]) then
  return {'stale'}
end
return {'marked'}
