-- identify_shard: give a shard the identity of its crawl, without which nothing can be queued, leased or settled in it.
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] owner  hash  run, cancelled, frozen
-- ARGV[1] crawl: the identity   ARGV[2] former: an identity that it replaces ("": none)
-- ARGV[3] run: of the server process
-- ARGV[4] cancelled: the last claim of a reshard that is cancelled, "" for none; its commands must not freeze the shard again
--
-- Returns {"identified"} | {"foreign", identity}: the shard belongs to another crawl, or to another command, and nothing was
--   changed | {"late"}: a later reshard has frozen the shard; `end_reshard` will refuse the caller

local known = redis.call('HGET', KEYS[1], 'crawl')
if known and known ~= ARGV[1] and known ~= ARGV[2] then
  return {'foreign', known}
end
if ARGV[4] ~= '' and tonumber(redis.call('HGET', KEYS[2], 'frozen') or '0') > tonumber(ARGV[4]) then return {'late'} end
redis.call('HSET', KEYS[1], 'crawl', ARGV[1])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], 'cancelled', ARGV[4]) end
if not known and ARGV[3] ~= '' then redis.call('HSET', KEYS[2], 'run', ARGV[3]) end
return {'identified'}
