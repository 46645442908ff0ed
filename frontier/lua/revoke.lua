-- revoke: say which URLs of a lost lease were not settled under it, and see to it that they never are. For whoever finds
-- pages that a holder had written down before it died: of a URL that was not settled under its lease there is, or will
-- be, another page.
--
-- A lease that still stands loses its token, so that a settle which is still on its way changes nothing; it expires as
-- ever. One that has expired left its URLs in `lost` when it was taken back. What is in neither was settled.
--
-- KEYS[1] lost  zset  "token LF entry" -> when it was taken back ms
-- also   inflight:<domain> zset, d:<domain> hash (token)
-- ARGV[1] domain   ARGV[2] token   ARGV[3] now_ms
-- ARGV[4...] entries
--
-- Returns {"revoked", for each entry 1 if it was not settled under this lease, else 0}

local base = string.sub(KEYS[1], 1, -5)
local domain, token = ARGV[1], ARGV[2]
local inflight, domain_key = base .. 'inflight:' .. domain, base .. 'd:' .. domain

if redis.call('HGET', domain_key, 'token') == token then
  for _, entry in ipairs(redis.call('ZRANGE', inflight, 0, -1)) do
    redis.call('ZADD', KEYS[1], ARGV[3], token .. '\n' .. entry)
  end
  redis.call('HDEL', domain_key, 'token')
end

local reply = {'revoked'}
for i = 4, #ARGV do
  reply[#reply + 1] = redis.call('ZSCORE', KEYS[1], token .. '\n' .. ARGV[i]) and 1 or 0
end
return reply
