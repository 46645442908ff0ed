-- revoke: report which URLs of a stale lease were not settled under it, and ensure that they never will be. Used to recover
-- pages that a holder wrote before it died: a URL that was not settled under that lease is fetched again, so its page is a
-- duplicate.
--
-- If the lease is still valid, its token is removed, so that a settle call still on its way changes nothing; the lease
-- expires as usual. If the lease has expired, its URLs were added to `lost` when it was taken back. If the server has lost
-- the lease with its last writes, what was settled again was added to `lost` with a "+", and the others are added here, so
-- that `settle_lost_lease` refuses them. All other URLs were settled, unless the lease is so old that the record may have been removed.
--
-- KEYS[1] lost  zset  "token LF entry" -> when it was taken back ms; "+token LF entry": when it was settled again
-- KEYS[2] inflight:<domain>  zset
-- KEYS[3] d:<domain>         hash  token
-- KEYS[4] owner  hash  token, run, quiet_ms, tails
-- KEYS[5] stats  hash  crawl
-- ARGV[1] crawl ("": whichever)   ARGV[2] run: of the server process   ARGV[3] token   ARGV[4] now_ms
-- ARGV[5...] entries
--
-- Returns {"revoked", for each entry 1 if it was not settled under this lease, 0 if it was, 2 if it is unknown} | {"lost"}

local crawl, token, now_ms = redis.call('HGET', KEYS[5], 'crawl'), ARGV[3], tonumber(ARGV[4])
-- A frozen shard (freeze_shard.lua) still knows what was settled.
local is_frozen = crawl and string.sub(crawl, -6) == ':moved'
local is_known = crawl and (ARGV[1] == '' or crawl == ARGV[1] or crawl == ARGV[1] .. ':moved')
if not is_known then return {'lost'} end

local inflight, domain_key = KEYS[2], KEYS[3]
local known = read_owner(KEYS[4])
notice_run(KEYS[4], known, ARGV[2], now_ms)

-- A key of a wrong type, which somebody else has written, has neither a token nor entries.
if redis.pcall('HGET', domain_key, 'token') == token then
  for _, entry in ipairs(redis.pcall('ZRANGE', inflight, 0, -1)) do
    redis.call('ZADD', KEYS[1], ARGV[4], token .. '\n' .. entry)
  end
  redis.call('HDEL', domain_key, 'token')
end

local was_lost = is_lease_lost(KEYS[4], token)
local otherwise = tonumber(token) < now_ms - LOST_KEPT_MS and 2 or 0
local reply = {'revoked'}
for i = 5, #ARGV do
  local member, answer = token .. '\n' .. ARGV[i], otherwise
  if was_lost then
    answer = redis.call('ZSCORE', KEYS[1], '+' .. member) and 0 or 1
    if answer == 1 then redis.call('ZADD', KEYS[1], ARGV[4], member) end
  elseif redis.call('ZSCORE', KEYS[1], member) then
    answer = 1
  end
  reply[#reply + 1] = answer
end
-- After a reshard, the keys that are left of a former shard expire. So must one that is made afterwards.
local left_ms = is_frozen and redis.call('PTTL', KEYS[4]) or -1
if left_ms > 0 then redis.call('PEXPIRE', KEYS[1], left_ms) end
return reply
