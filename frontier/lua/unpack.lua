-- unpack: return the entries of a block to the queue, or those of the highest priority, while the others stay packed in a
-- block of their own. The caller has read and decompressed the block. A repeated call changes nothing.
--
-- KEYS[1] stats  hash  crawl; denied, denied:merged, requeued:denied:merged
-- KEYS[2] the prefix of q:<domain> zset, inflight:<domain> zset, blocks:<domain> zset, block:<block>:<domain> string,
--         d:<domain> hash (packed)
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] block   ARGV[4] rest: the block of the others ("": none)
-- ARGV[5] minus the highest priority in the rest   ARGV[6] its contents   ARGV[7...] for each entry: priority, entry
--
-- Returns {"unpacked"} | {"gone"}: another caller has unpacked the block | {"lost"}

local domain, block, rest = ARGV[2], ARGV[3], ARGV[4]
local blocks, domain_key = KEYS[2] .. 'blocks:' .. domain, KEYS[2] .. 'd:' .. domain

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
if redis.call('ZREM', blocks, block) == 0 then return {'gone'} end
redis.call('DEL', KEYS[2] .. 'block:' .. block .. ':' .. domain)
local packed = -tonumber(string.sub(block, 1, 4))
if rest ~= '' then
  redis.call('SET', KEYS[2] .. 'block:' .. rest .. ':' .. domain, ARGV[6])
  redis.call('ZADD', blocks, ARGV[5], rest)
  packed = packed + tonumber(string.sub(rest, 1, 4))
end
if redis.call('HINCRBY', domain_key, 'packed', packed) == 0 then redis.call('HDEL', domain_key, 'packed') end

-- A URL that was seeded again while it was packed may be leased or queued.
local leased = {}
for _, entry in ipairs(redis.call('ZRANGE', KEYS[2] .. 'inflight:' .. domain, 0, -1)) do leased[entry] = true end
local queued, merged = {}, (#ARGV - 6) / 2
for i = 7, #ARGV, 2 do
  if not leased[ARGV[i + 1]] then queued[#queued + 1], queued[#queued + 2] = ARGV[i], ARGV[i + 1] end
end
if #queued > 0 then merged = merged - redis.call('ZADD', KEYS[2] .. 'q:' .. domain, 'NX', unpack(queued)) end
for _ = 1, merged do count_merged(KEYS[1]) end
return {'unpacked'}
