-- lease: lease due domains of a shard to its owner exclusively, each with a batch of URLs and a fencing token.
--
-- Before that, it does other jobs in the same round trip, each in its own file: `fence` refuses an outdated owner,
-- `lost_writes` notices a restart of the server, `repeat_lease` repeats a reply that was lost, `expire_leases` ends expired leases,
-- `promote_retries` queues waiting entries that are ready, and `visits` known pages whose next visit is due. Domains that have been due
-- longest are leased first, after those with urgent URLs (`urgent`). `lease_packed` finds the next packed URLs of a domain; if its queue lacks those of the highest
-- priority, it stays due until they are unpacked.
--
-- KEYS[1] stats    hash  crawl, expired, dead, dead:lost_with_holder
-- KEYS[2] the prefix of due zset, urgent zset, leases zset; q:<domain> zset, inflight:<domain> zset, d:<domain> hash (token, delay, next,
--         state, packed, known), blocks:<domain> zset (block -> minus the highest priority in it), block:<block>:<domain> string;
--         owner hash (epoch, replica, since, token (the fence), call, granted (the last grant), run, quiet_ms, tails); waiting
--         zset ("domain LF priority LF entry" -> ready ms); dead hash ("domain LF entry" -> reason); lost zset ("token LF
--         entry" -> when it was taken back ms; kept for LOST_KEPT_MS); with ARGV[11] also of revisits zset, visits:<domain>
--         zset, known:<domain> hash
-- ARGV[1] crawl   ARGV[2] epoch   ARGV[3] replica   ARGV[4] run: of the server process   ARGV[5] number of the call
-- ARGV[6] now_ms   ARGV[7] lease_ms
-- ARGV[8] max_domains (1 or more)   ARGV[9] max_urls (each)   ARGV[10] default_delay_ms
-- ARGV[11] the share of known pages in a lease while new ones are queued ("": pages are not visited again)
--
-- Returns {"leased", when to call again ms or -1, {domain, token, delay_ms, state, {entry, priority, ...}}, ...,
--          for domains with few unpacked URLs: {domain, number of packed URLs, first block, its contents}, ...,
--          {when the first planned visit is due ms} if there is nothing else}
--       | {"fenced", epoch, replica} | {"lost"}

local base, owner = KEYS[2], KEYS[2] .. 'owner'
local due_key, leases_key, waiting_key = base .. 'due', base .. 'leases', base .. 'waiting'
local number, now_ms, lease_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local max_urls, default_delay_ms, share = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])

if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local known = read_owner(owner)
local fenced = fence(owner, known, tonumber(ARGV[2]), ARGV[3], now_ms)
if fenced then return fenced end
if known.run ~= ARGV[4] or known.quiet_ms > now_ms then
  local quiet_ms = load_recovery().notice_run(owner, known, ARGV[4], now_ms)
  if quiet_ms > now_ms then return {'leased', quiet_ms} end
end
if number <= known.call then
  local repeated = load_recovery().repeat_lease(base, known, number, now_ms, lease_ms, default_delay_ms)
  if repeated then return repeated end
end
local expiring_ms, waking_ms = first_ms(leases_key), first_ms(waiting_key)
if expiring_ms <= now_ms then load_recovery().expire_leases(base, now_ms, default_delay_ms) end
if waking_ms <= now_ms then load_recovery().promote_retries(base, now_ms) end
local visits = share and load_visits()
local visit_ms = visits and visits.queue_visits(base, now_ms) or math.huge

-- A token must never be reused, even if the server has lost its last second of writes. Tokens are therefore at least
-- the time in milliseconds.
local last_token, granted, reply, low = known.token, {}, {'leased', -1}, {}

-- Returns whether the domain is no longer due.
local function lease(domain)
  local queue, domain_key = base .. 'q:' .. domain, base .. 'd:' .. domain
  local state = redis.call('HMGET', domain_key, 'delay', 'state', 'packed')
  local delay_ms = tonumber(state[1] or default_delay_ms)
  -- At most as many URLs as can be fetched in half of the lease, so that a slow holder does not outlast its lease.
  local urls = math.max(1, math.min(max_urls, math.floor(lease_ms / 2 / math.max(delay_ms, 1))))
  if state[3] then
    urls, low[#low + 1] = unpacked_first(base, domain, state[3], urls, visits and visits.KNOWN_FROM or '+inf')
    if urls == 0 then return false end
  end
  local inflight, token = base .. 'inflight:' .. domain, math.max(last_token + 1, now_ms)
  local best = visits and lease_shared(queue, inflight, urls, share, token * 0.618034 % 1, visits.KNOWN_FROM)
  if not best then
    best = redis.call('ZREVRANGE', queue, 0, urls - 1, 'WITHSCORES')
    if #best == 0 then return true end
    -- Copied within the server. To pop the entries and add them again takes longer.
    redis.call('ZRANGESTORE', inflight, queue, 0, urls - 1, 'REV')
    redis.call('ZREMRANGEBYRANK', queue, 0 - urls, -1)
  end
  last_token = token
  redis.call('HSET', domain_key, 'token', last_token)
  redis.call('ZADD', leases_key, now_ms + lease_ms, domain)
  granted[#granted + 1] = domain .. ' ' .. string.format('%.0f', last_token)
  reply[#reply + 1] = {domain, last_token, delay_ms, state[2] or '', best}
  if visits then visits.queue_visits_of(base, domain, now_ms) end  -- there is room for more
  return true
end

local due = redis.call('ZRANGE', due_key, 0, 1, 'WITHSCORES')
local due_ms, second_ms = tonumber(due[2]) or math.huge, tonumber(due[4]) or math.huge
if due_ms <= now_ms then
  -- Mostly one domain is due, and the next one is known.
  if second_ms <= now_ms or ARGV[8] == '0' then
    due, second_ms = urgent_first(base, now_ms, tonumber(ARGV[8])), now_ms
  else
    due = {due[1]}
  end
  local gone = {}
  for _, domain in ipairs(due) do
    local is_done, is_gone = pcall(lease, domain)
    if not is_done then load_recovery().set_aside(base, domain, is_gone) end
    if is_gone then gone[#gone + 1] = domain end
  end
  if #gone > 0 then
    redis.call('ZREM', due_key, unpack(gone))
    due_ms = second_ms
  end
  if #reply > 2 then
    redis.call('HSET', owner, 'token', last_token, 'call', number, 'granted', table.concat(granted, ' '))
  end
end

-- What was read stays right until it is due. The leases that begin now end after the others.
local function next_ms(key, before_ms) return before_ms > now_ms and before_ms or first_ms(key) end
if #reply > 2 then expiring_ms = math.min(expiring_ms, now_ms + lease_ms) end
local wake_ms = math.min(next_ms(due_key, due_ms), next_ms(leases_key, expiring_ms), next_ms(waiting_key, waking_ms))
if visits then visit_ms = next_ms(base .. 'revisits', visit_ms) end
if wake_ms < math.huge then reply[2] = math.min(wake_ms, visit_ms) end
for _, domain in ipairs(low) do reply[#reply + 1] = domain end
if wake_ms == math.huge and visit_ms < math.huge then reply[#reply + 1] = {visit_ms} end
return reply
