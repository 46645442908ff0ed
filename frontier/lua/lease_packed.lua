-- lease_packed: part of `lease`. Of a domain with packed URLs, those are leased that do not come after a packed one. If they
-- are few, the caller has to unpack the next block.
--
-- base: the prefix of the keys of a domain; number: of packed URLs; urls: how many may be leased
-- most: the highest priority of what is counted. Known pages (visits.lua) are above it, and do not replace new ones
--
-- unpacked_first returns how many of these are in the queue, and nil | {domain, number, block, contents of the block}

local function unpacked_first(base, domain, number, urls, most)
  local first = redis.call('ZRANGE', base .. 'blocks:' .. domain, 0, 0, 'WITHSCORES')
  if not first[1] then error('MISSING blocks') end
  local ready = redis.call('ZCOUNT', base .. 'q:' .. domain, 0 - first[2], most)
  if ready >= 2 * urls then return urls, nil end
  local contents = redis.call('GET', base .. 'block:' .. first[1] .. ':' .. domain)
  if not contents then error('MISSING block') end
  return math.min(urls, ready), {domain, number, first[1], contents}
end
