-- create_crawl: create a crawl, or return the fields of an existing one. The first caller wins; nothing is overwritten.
--
-- KEYS[1] meta  hash  schema, shards, fingerprint_key, settings, revision, created_ms
-- ARGV[1] field   ARGV[2] value   ... and so on in pairs
--
-- Returns {"created" | "existed", field, value, ...}

local created = redis.call('EXISTS', KEYS[1]) == 0
if created then
  local now = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'created_ms', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)), unpack(ARGV))
end
local reply = {created and 'created' or 'existed'}
for _, field in ipairs(redis.call('HGETALL', KEYS[1])) do
  reply[#reply + 1] = field
end
return reply
