-- settle: record the outcomes of leased URLs, store the politeness state of their domains, and renew the leases. A lease
-- ends when its last URL is settled. A call with a stale token changes nothing. An entry that is no longer in flight is
-- skipped, so a repeated call counts once. A call may arrive after a later one, if its sender gave up on it and tried
-- again. It never shortens a lease or a delay, because the holder relies on the last reply.
--
-- If the server has lost the lease with its last writes, the URLs are settled anyway if they are queued (`settle_lost_lease`).
-- The lease stays lost, so the reply is "stale", and `revoke` says which of its URLs are settled.
--
-- KEYS[1] stats    hash  crawl, done, dead, denied, retry, <outcome>:<reason>, requests, bytes, duplicates,
--                         cut:<reason>, items:<data set>, rejected:<field and reason>, extras:<kind>, drop:dead_letters, first_ms, last_ms
-- KEYS[2] the prefix of due zset, leases zset, q:<domain> zset, inflight:<domain> zset, d:<domain> hash (token, delay, next,
--         state, packed, known); waiting zset ("domain LF priority LF entry" -> ready ms); dead hash ("domain LF entry" ->
--         reason; also of kept denied URLs); owner hash (token, run, quiet_ms, tails); lost zset ("+token LF entry" -> when it
--         was settled under a lost lease ms); of a page that is visited again also of revisits zset, visits:<domain> zset,
--         known:<domain> hash
-- ARGV[1] crawl   ARGV[2] run: of the server process   ARGV[3] now_ms   ARGV[4] lease_ms
-- ARGV[5...] for each lease: domain, token, next_ms (when the next request to the domain may start), delay_ms ("":
--   unchanged), state ("": unchanged), bytes received, number of duplicates among the URLs, what else is counted
--   ("counter number" pairs, or ""), number of arguments that follow:
--   for each group of URLs: outcome, reason, for retry "ready_ms LF priority LF new entry", for a denied URL that is kept
--   with the dead letters "keep", for a page that is visited again "visit LF what was found LF due s ("": not again) LF the
--     rest of its record (page_records.lua)", else "", number of entries (1 unless this is "" and not for dead), the entries
--
-- Returns {"settled", for each lease: "held", expiry_ms | "ended", due_ms or -1 | "stale", -1} | {"lost"}

if read_counts(KEYS[1]) ~= ARGV[1] then return {'lost'} end
local base, now_ms, expiry_ms = KEYS[2], tonumber(ARGV[3]), ARGV[3] + ARGV[4]

-- Settle the URLs in ARGV[at] to ARGV[last], which `remove` removes. Returns how many of them it removed.
local function settle_urls(domain, remove, at, last)
  local settled = 0
  while at <= last do
    local outcome, reason, follow_up, entries = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
    local gone = remove(unpack(ARGV, at + 4, at + 3 + entries))
    if gone > 0 then
      settled = settled + gone
      count(outcome, gone)
      count(outcome .. ':' .. reason, gone)
      local is_visit = follow_up ~= '' and load_visits().plan_visit(base, domain, follow_up, count)
      if not is_visit and (outcome == 'dead' or follow_up == 'keep') then
        local is_kept = keep_dead_letter(base .. 'dead', domain .. '\n' .. ARGV[at + 4], reason)
        if not is_kept then count('drop:dead_letters', 1) end
      elseif outcome == 'retry' then
        local ready_ms, priority, entry = string.match(follow_up, '^([^\n]*)\n([^\n]*)\n(.*)$')
        if redis.call('ZADD', base .. 'waiting', ready_ms, domain .. '\n' .. priority .. '\n' .. entry) == 0 then
          count_merged(KEYS[1])
        end
      end
    end
    at = at + 4 + entries
  end
  return settled
end

-- Settle the lease whose arguments begin at ARGV[at]. Returns its part of the reply.
local function settle(at, last)
  local domain, token, wanted_ms, delay_ms, state, bytes, duplicates, more = unpack(ARGV, at, at + 7)
  local inflight, domain_key = base .. 'inflight:' .. domain, base .. 'd:' .. domain
  local known = redis.call('HMGET', domain_key, 'token', 'next', 'packed')
  local is_held = known[1] == token
  local remove = function(...) return redis.call('ZREM', inflight, ...) end
  if not is_held then
    local lost = load_lost_lease()
    if not lost.may_settle_lost(base, domain, token, ARGV[2], now_ms) then return 'stale', -1 end
    remove = function(...) return lost.remove_queued(base, domain, token, now_ms, ...) end
  end
  if settle_urls(domain, remove, at + 9, last) > 0 then
    count('bytes', bytes)
    if duplicates ~= '0' then count('duplicates', duplicates) end
    if more ~= '' then
      for name, number in string.gmatch(more, '(%S+) (%d+)') do count(name, number) end
    end
  end

  local next_ms = math.max(tonumber(wanted_ms), tonumber(known[2] or '0'))
  local updates = {'next', next_ms}
  local is_newest = is_held or not known[1]  -- a later holder knows better
  if is_newest and delay_ms ~= '' then updates[#updates + 1], updates[#updates + 2] = 'delay', delay_ms end
  if is_newest and state ~= '' then updates[#updates + 1], updates[#updates + 2] = 'state', state end
  redis.call('HSET', domain_key, unpack(updates))
  if not is_held then
    load_lost_lease().put_off(base, domain, next_ms)
    return 'stale', -1
  end

  if redis.call('EXISTS', inflight) == 1 then
    redis.call('ZADD', base .. 'leases', 'GT', expiry_ms, domain)
    return 'held', expiry_ms
  end
  redis.call('ZREM', base .. 'leases', domain)
  redis.call('HDEL', domain_key, 'token', 'open')
  if known[3] or redis.call('EXISTS', base .. 'q:' .. domain) == 1 then
    redis.call('ZADD', base .. 'due', next_ms, domain)
    return 'ended', next_ms
  end
  return 'ended', -1
end

local reply, at = {'settled'}, 5
while at <= #ARGV do
  local last = at + 8 + ARGV[at + 8]
  local size = #reply
  local is_done, word, ms = pcall(settle, at, last)
  if not is_done then
    load_lost_lease().set_aside(base, ARGV[at], word)
    word, ms = 'stale', -1
  end
  reply[size + 1], reply[size + 2] = word, ms
  at = last + 1
end

add_counts(KEYS[1], ARGV[3])
return reply
