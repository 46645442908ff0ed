-- lease_shared: part of `lease`. Lease known and new pages of one domain, if both are queued, so that neither kind waits for
-- all of the other.
--
-- queue, inflight  the keys of the domain   urls: how many to lease   share: of the known pages, 0 to 1
-- chance: 0 to 1, which decides about a part of a URL   known_from: the lowest priority of a known page
--
-- lease_shared returns {entry, priority, ...} | nil if the queue has only one kind

local function lease_shared(queue, inflight, urls, share, chance, known_from)
  local all, known = redis.call('ZCARD', queue), redis.call('ZCOUNT', queue, known_from, '+inf')
  local new = all - known
  if known == 0 or new == 0 then return nil end
  local visits = math.min(known, math.max(math.floor(urls * share + chance), urls - new))
  local firsts = math.min(urls - visits, new)
  local best = redis.call('ZRANGE', queue, known, known + firsts - 1, 'REV', 'WITHSCORES')
  if firsts == 0 then best = {} end
  if visits > 0 then
    local due = redis.call('ZRANGE', queue, 0, visits - 1, 'REV', 'WITHSCORES')
    for i = 1, #due do best[#best + 1] = due[i] end
  end
  for i = 1, #best, 2 do
    redis.call('ZREM', queue, best[i])
    redis.call('ZADD', inflight, best[i + 1], best[i])
  end
  return best
end
