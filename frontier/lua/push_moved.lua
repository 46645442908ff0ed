-- push_moved: part of push. Queues the targets of known pages that have moved. If a target was seen before and is not open or
-- known, it was a redirect or an error when it was visited, and nobody would visit it again: so it is queued like a visit
-- that is due. In a long queue, only the known pages and the first OPEN_PAGES are looked at: such a target may be visited
-- twice.
--
-- base  the prefix of q:<domain> zset, inflight:<domain> zset, d:<domain> hash (next)
--
-- take_known removes the known page that has this entry, and returns what is stored of it | nil
-- push_moved queues URLs in ARGV, which are given as in push, and returns how many. seen_key: the key of a fingerprint

local OPEN_PAGES = 512

local function take_known(base, domain, entry)
  return take_page(base, domain, page_of(entry))
end

-- The pages of the domain that are leased, or queued at the head of its queue, where the known ones are.
local function open_pages(base, domain)
  local open = {}
  for _, entry in ipairs(redis.call('ZRANGE', base .. 'inflight:' .. domain, 0, -1)) do open[page_of(entry)] = true end
  for _, entry in ipairs(redis.call('ZREVRANGE', base .. 'q:' .. domain, 0, OPEN_PAGES - 1)) do open[page_of(entry)] = true end
  return open
end

local function push_moved(base, domain, from, to, seen_key)
  local open, visits = open_pages(base, domain), {}
  for i = from, to, 3 do
    local page = page_of(ARGV[i + 2])
    if redis.call('SISMEMBER', seen_key(ARGV[i]), ARGV[i]) == 1 and not open[page] and not locate_page(base, domain, page) then
      open[page] = true
      visits[#visits + 1], visits[#visits + 2] = QUEUED_VISIT + ARGV[i + 1], ARGV[i + 2]
    end
  end
  if #visits == 0 then return 0 end
  make_due(base, domain, tonumber(ARGV[2]), 0)
  return redis.call('ZADD', base .. 'q:' .. domain, 'NX', unpack(visits))
end
