-- refresh: make known pages of a domain due now. A page that is queued or leased is being visited, so it is skipped. A
-- repeated call changes nothing more.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of visits:<domain> zset, revisits zset
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] now_ms   ARGV[4] limit: the most pages if none is named
-- ARGV[5...] fingerprints of pages (none: those that are due last)
--
-- Returns {"refreshed", number of pages} | {"lost"}

local visits, refreshed = KEYS[2] .. 'visits:' .. ARGV[2], 0
if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local pages = {unpack(ARGV, 5)}
if #pages == 0 then
  pages = redis.call('ZRANGEBYSCORE', visits, '(' .. ARGV[3], '+inf', 'LIMIT', 0, ARGV[4])
end
for _, fingerprint in ipairs(pages) do
  refreshed = refreshed + redis.call('ZADD', visits, 'XX', 'LT', 'CH', ARGV[3], fingerprint)
end
if refreshed > 0 then redis.call('ZADD', KEYS[2] .. 'revisits', 'LT', ARGV[3], ARGV[2]) end
return {'refreshed', refreshed}
