-- restore: record URLs of a lost shard as settled that were settled before, as an archive shows. They have just been
-- pushed; one that is not queued is skipped, so a repeated call counts once. In a shard that came back in an old state, it
-- may be in flight under a lease of which nobody knows any more.
--
-- KEYS[1] stats  hash  crawl, done, dead, denied, <outcome>:<reason>, restored (of those that are done)
-- KEYS[2] the prefix of due zset, dead hash, q:<domain> zset, inflight:<domain> zset
-- ARGV[1] crawl   ARGV[2...] for each URL: domain, outcome, reason, "keep" for a denied one that is kept, entry
--
-- Returns {"restored", number} | {"lost"}

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local base, restored = KEYS[2], 0
for i = 2, #ARGV, 5 do
  local domain, outcome, reason, follow_up, entry = unpack(ARGV, i, i + 4)
  local queue = base .. 'q:' .. domain
  if redis.call('ZREM', queue, entry) == 1 or redis.call('ZREM', base .. 'inflight:' .. domain, entry) == 1 then
    restored = restored + 1
    redis.call('HINCRBY', KEYS[1], outcome, 1)
    redis.call('HINCRBY', KEYS[1], outcome .. ':' .. reason, 1)
    if outcome == 'done' then redis.call('HINCRBY', KEYS[1], 'restored', 1) end
    local is_letter = outcome == 'dead' or follow_up == 'keep'
    if is_letter and not keep_dead_letter(base .. 'dead', domain .. '\n' .. entry, reason) then
      redis.call('HINCRBY', KEYS[1], 'drop:dead_letters', 1)
    end
    if redis.call('EXISTS', queue) == 0 then redis.call('ZREM', base .. 'due', domain) end
  end
end
return {'restored', restored}
