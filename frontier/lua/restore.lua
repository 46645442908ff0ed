-- restore: record URLs of a lost shard as settled that were settled before, as an archive shows. They have just been
-- pushed; one that is not queued is skipped, so a repeated call counts once.
--
-- KEYS[1] due    zset  domain -> due ms
-- KEYS[2] stats  hash  crawl, done, dead, denied, <outcome>:<reason>, restored (of those that are done)
-- KEYS[3] dead   hash  "domain LF entry" -> reason
-- KEYS[4] the prefix of q:<domain> zset
-- ARGV[1] crawl   ARGV[2...] for each URL: domain, outcome, reason, entry
--
-- Returns {"restored", number} | {"lost"}

if is_lost(KEYS[2], ARGV[1]) then return {'lost'} end
local restored = 0
for i = 2, #ARGV, 4 do
  local domain, outcome, reason, entry = unpack(ARGV, i, i + 3)
  local queue = KEYS[4] .. 'q:' .. domain
  if redis.call('ZREM', queue, entry) == 1 then
    restored = restored + 1
    redis.call('HINCRBY', KEYS[2], outcome, 1)
    redis.call('HINCRBY', KEYS[2], outcome .. ':' .. reason, 1)
    if outcome == 'done' then redis.call('HINCRBY', KEYS[2], 'restored', 1) end
    if outcome == 'dead' and not keep_dead_letter(KEYS[3], domain .. '\n' .. entry, reason) then
      redis.call('HINCRBY', KEYS[2], 'drop:dead_letters', 1)
    end
    if redis.call('EXISTS', queue) == 0 then redis.call('ZREM', KEYS[1], domain) end
  end
end
return {'restored', restored}
