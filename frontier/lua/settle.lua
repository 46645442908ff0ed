-- settle: record the outcomes of leased URLs, store the politeness state of their domains, and renew the leases. A lease
-- ends when its last URL is settled. A call with a stale token changes nothing. An entry that is no longer in flight is
-- skipped, so a repeated call counts once. A call may arrive after a later one, if its sender gave up on it and tried
-- again. It never shortens a lease or a delay, because the holder relies on the last reply.
--
-- KEYS[1] due      zset  domain -> due ms
-- KEYS[2] leases   zset  domain -> expiry ms
-- KEYS[3] waiting  zset  "domain LF priority LF entry" -> ready ms
-- KEYS[4] stats    hash  done, dead, denied, retry, <outcome>:<reason>, bytes, duplicates,
--                         cut:<reason>, first_ms, last_ms
-- KEYS[5] dead     hash  "domain LF entry" -> reason; also of kept denied URLs
-- KEYS[6] the prefix of q:<domain> zset, inflight:<domain> zset, d:<domain> hash (token, delay, next, state)
-- ARGV[1] now_ms   ARGV[2] lease_ms
-- ARGV[3...] for each lease: domain, token, next_ms (when the next request to the domain may start), delay_ms ("":
--   unchanged), state ("": unchanged), bytes received, number of duplicates among the URLs, number of truncated pages
--   by reason ("reason number" pairs, or ""), number of arguments that follow:
--   for each group of URLs: outcome, reason, for retry "ready_ms LF priority LF new entry", for a denied URL that is kept
--   with the dead letters "keep", else "", number of entries (1 for dead, retry and keep), the entries
--
-- Returns {"settled", for each lease: "held", expiry_ms | "ended", due_ms or -1 | "stale", -1}

local base = KEYS[6]
local expiry_ms = ARGV[1] + ARGV[2]

local names, counts = {}, {}
local function count(name, number)
  if not counts[name] then names[#names + 1] = name end
  counts[name] = (counts[name] or 0) + number
end

-- Settle the URLs in ARGV[at] to ARGV[last]. Returns how many of them were in flight.
local function settle_urls(domain, inflight, at, last)
  local settled = 0
  while at <= last do
    local outcome, reason, again, entries = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
    local gone = redis.call('ZREM', inflight, unpack(ARGV, at + 4, at + 3 + entries))
    if gone > 0 then
      settled = settled + gone
      count(outcome, gone)
      count(outcome .. ':' .. reason, gone)
      if outcome == 'dead' or again == 'keep' then
        redis.call('HSET', KEYS[5], domain .. '\n' .. ARGV[at + 4], reason)
      elseif outcome == 'retry' then
        local ready_ms, priority, entry = string.match(again, '^([^\n]*)\n([^\n]*)\n(.*)$')
        redis.call('ZADD', KEYS[3], ready_ms, domain .. '\n' .. priority .. '\n' .. entry)
      end
    end
    at = at + 4 + entries
  end
  return settled
end

-- Settle the lease whose arguments begin at ARGV[at]. Returns its part of the reply.
local function settle(at, last)
  local domain, token, wanted_ms, delay_ms, state, bytes, duplicates, cut = unpack(ARGV, at, at + 7)
  local inflight, domain_key = base .. 'inflight:' .. domain, base .. 'd:' .. domain
  local known = redis.call('HMGET', domain_key, 'token', 'next')
  if known[1] ~= token then
    return 'stale', -1
  end
  if settle_urls(domain, inflight, at + 9, last) > 0 then
    count('bytes', bytes)
    if duplicates ~= '0' then count('duplicates', duplicates) end
    if cut ~= '' then
      for reason, number in string.gmatch(cut, '(%S+) (%d+)') do count('cut:' .. reason, number) end
    end
  end

  local next_ms = math.max(tonumber(wanted_ms), tonumber(known[2] or '0'))
  local news = {'next', next_ms}
  if delay_ms ~= '' then news[#news + 1], news[#news + 2] = 'delay', delay_ms end
  if state ~= '' then news[#news + 1], news[#news + 2] = 'state', state end
  redis.call('HSET', domain_key, unpack(news))

  if redis.call('EXISTS', inflight) == 1 then
    redis.call('ZADD', KEYS[2], 'GT', expiry_ms, domain)
    return 'held', expiry_ms
  end
  redis.call('ZREM', KEYS[2], domain)
  redis.call('HDEL', domain_key, 'token')
  if redis.call('EXISTS', base .. 'q:' .. domain) == 1 then
    redis.call('ZADD', KEYS[1], next_ms, domain)
    return 'ended', next_ms
  end
  return 'ended', -1
end

local reply, at = {'settled'}, 3
while at <= #ARGV do
  local last = at + 8 + ARGV[at + 8]
  local size = #reply
  reply[size + 1], reply[size + 2] = settle(at, last)
  at = last + 1
end

if #names > 0 then
  local before = redis.call('HMGET', KEYS[4], 'first_ms', unpack(names))
  local fields = {'last_ms', ARGV[1]}
  if not before[1] then fields = {'last_ms', ARGV[1], 'first_ms', ARGV[1]} end
  for i, name in ipairs(names) do
    fields[#fields + 1], fields[#fields + 2] = name, (before[i + 1] or 0) + counts[name]
  end
  redis.call('HSET', KEYS[4], unpack(fields))
end
return reply
