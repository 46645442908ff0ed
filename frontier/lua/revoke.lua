-- revoke: report which URLs of a lost lease were not settled under it, and ensure that they never will be. Used to recover
-- pages that a holder wrote before it died: a URL that was not settled under that lease is fetched again, so its page is a
-- duplicate.
--
-- If the lease is still valid, its token is removed, so that a settle call still on its way changes nothing; the lease
-- expires as usual. If the lease has expired, its URLs were added to `lost` when it was taken back. All other URLs were
-- settled.
--
-- KEYS[1] lost  zset  "token LF entry" -> when it was taken back ms
-- KEYS[2] inflight:<domain>  zset
-- KEYS[3] d:<domain>         hash  token
-- ARGV[1] token   ARGV[2] now_ms   ARGV[3...] entries
--
-- Returns {"revoked", for each entry 1 if it was not settled under this lease, else 0}

local token, inflight, domain_key = ARGV[1], KEYS[2], KEYS[3]

if redis.call('HGET', domain_key, 'token') == token then
  for _, entry in ipairs(redis.call('ZRANGE', inflight, 0, -1)) do
    redis.call('ZADD', KEYS[1], ARGV[2], token .. '\n' .. entry)
  end
  redis.call('HDEL', domain_key, 'token')
end

local reply = {'revoked'}
for i = 3, #ARGV do
  reply[#reply + 1] = redis.call('ZSCORE', KEYS[1], token .. '\n' .. ARGV[i]) and 1 or 0
end
return reply
