-- lease: lease domains of a shard to its owner exclusively, each with a batch of URLs and a fencing token.
--
-- First it reclaims expired leases and queues waiting entries that are ready. Then it leases the domains that are due,
-- longest due first. The sixth character of an entry counts how often it was reclaimed. An entry that was lost with its
-- holder fifteen times becomes a dead letter, because it may be what crashes the holders. Reclaimed entries are recorded
-- for a while under the token of the lost lease: see revoke.
--
-- KEYS[1] owner    hash  epoch, replica, since, token (the fence)
-- KEYS[2] due      zset  domain -> due ms
-- KEYS[3] leases   zset  domain -> expiry ms
-- KEYS[4] waiting  zset  "domain LF priority LF entry" -> ready ms
-- KEYS[5] stats    hash  expired, dead, dead:lost_with_holder
-- KEYS[6] dead     hash  "domain LF entry" -> reason
-- KEYS[7] lost     zset  "token LF entry" -> when it was reclaimed ms; the newest LOST_KEPT
-- also   q:<domain> zset, inflight:<domain> zset, d:<domain> hash (token, delay, next, state)
-- ARGV[1] epoch   ARGV[2] replica   ARGV[3] now_ms   ARGV[4] lease_ms
-- ARGV[5] max_domains (1 or more)   ARGV[6] max_urls (each)   ARGV[7] default_delay_ms
--
-- Returns {"leased", when to call again ms or -1, {domain, token, delay_ms, state, {entry, priority, ...}}, ...}
--       | {"fenced", epoch, replica}

local TAKE_BACK, WAKE, LOST_KEPT = 64, 256, 4096
local base = string.sub(KEYS[1], 1, -6)
local epoch, replica, now_ms, lease_ms = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local max_urls, default_delay_ms = tonumber(ARGV[6]), tonumber(ARGV[7])

local fence = redis.call('HMGET', KEYS[1], 'epoch', 'replica', 'token')
local fence_epoch = tonumber(fence[1] or '0')
if fence_epoch > epoch or (fence_epoch == epoch and fence[2] ~= replica) then return {'fenced', fence[1], fence[2]} end
if fence[2] ~= replica then redis.call('HSET', KEYS[1], 'since', ARGV[3]) end
if fence_epoch ~= epoch or fence[2] ~= replica then redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'replica', replica) end

local function take_back(domain, expiry_ms)
  local inflight, queue, domain_key = base .. 'inflight:' .. domain, base .. 'q:' .. domain, base .. 'd:' .. domain
  local state = redis.call('HMGET', domain_key, 'next', 'delay', 'token')
  local entries = redis.call('ZRANGE', inflight, 0, -1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    local entry, lost = entries[i], tonumber(string.sub(entries[i], 6, 6), 16)
    if lost >= 14 then
      redis.call('HSET', KEYS[6], domain .. '\n' .. entry, 'lost_with_holder')
      for _, name in ipairs({'dead', 'dead:lost_with_holder'}) do redis.call('HINCRBY', KEYS[5], name, 1) end
    else
      local counted = string.sub(entry, 1, 5) .. string.format('%x', lost + 1) .. string.sub(entry, 7)
      redis.call('ZADD', queue, entries[i + 1], counted)
      if state[3] then redis.call('ZADD', KEYS[7], ARGV[3], state[3] .. '\n' .. entry) end
    end
  end
  redis.call('DEL', inflight)
  redis.call('ZREM', KEYS[3], domain)
  redis.call('HINCRBY', KEYS[5], 'expired', 1)
  -- The lost holder may have sent a request until the very end of its lease.
  local next_ms = math.max(tonumber(state[1] or '0'), expiry_ms + tonumber(state[2] or default_delay_ms))
  redis.call('HDEL', domain_key, 'token')
  redis.call('HSET', domain_key, 'next', next_ms)
  if redis.call('EXISTS', queue) == 1 then redis.call('ZADD', KEYS[2], next_ms, domain) end
end

-- Most calls find nothing to do. For them it is enough to read the first member of each of three sets.
local function first_ms(key) return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge end

local expiring_ms = first_ms(KEYS[3])
if expiring_ms <= now_ms then
  local expired = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, TAKE_BACK)
  for i = 1, #expired, 2 do take_back(expired[i], tonumber(expired[i + 1])) end
  redis.call('ZREMRANGEBYRANK', KEYS[7], 0, -1 - LOST_KEPT)
end

local waking_ms = first_ms(KEYS[4])
if waking_ms <= now_ms then
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now_ms, 'LIMIT', 0, WAKE)) do
    local domain, priority, entry = string.match(member, '^([^\n]*)\n([^\n]*)\n(.*)$')
    redis.call('ZADD', base .. 'q:' .. domain, priority, entry)
    redis.call('ZREM', KEYS[4], member)
    if not redis.call('ZSCORE', KEYS[3], domain) then
      local next_ms = tonumber(redis.call('HGET', base .. 'd:' .. domain, 'next') or '0')
      redis.call('ZADD', KEYS[2], 'NX', math.max(now_ms, next_ms), domain)
    end
  end
end

-- A token must never be reused, even if the server has lost its last second of writes. Tokens are therefore at least
-- the time in milliseconds.
local last_token, reply = tonumber(fence[3] or '0'), {'leased', -1}

local function lease(domain)
  local queue, domain_key = base .. 'q:' .. domain, base .. 'd:' .. domain
  local state = redis.call('HMGET', domain_key, 'delay', 'state')
  local delay_ms = tonumber(state[1] or default_delay_ms)
  -- At most as many URLs as can be fetched in half of the lease, so that a slow holder does not outlast its lease.
  local urls = math.max(1, math.min(max_urls, math.floor(lease_ms / 2 / math.max(delay_ms, 1))))
  local best = redis.call('ZREVRANGE', queue, 0, urls - 1, 'WITHSCORES')
  if #best == 0 then return end
  -- Copied within the server. To pop the entries and add them again takes 1.5 times as long.
  redis.call('ZRANGESTORE', base .. 'inflight:' .. domain, queue, 0, urls - 1, 'REV')
  redis.call('ZREMRANGEBYRANK', queue, -urls, -1)
  last_token = math.max(last_token + 1, now_ms)
  redis.call('HSET', domain_key, 'token', last_token)
  redis.call('ZADD', KEYS[3], now_ms + lease_ms, domain)
  reply[#reply + 1] = {domain, last_token, delay_ms, state[2] or '', best}
end

local due_ms = first_ms(KEYS[2])
if due_ms <= now_ms then
  local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now_ms, 'LIMIT', 0, ARGV[5])
  for _, domain in ipairs(due) do lease(domain) end
  if #due > 0 then redis.call('ZREM', KEYS[2], unpack(due)) end  -- empty if the caller asked for no domains
  if #reply > 2 then redis.call('HSET', KEYS[1], 'token', last_token) end
end

local again_ms = math.min(due_ms, expiring_ms, waking_ms)
if again_ms <= now_ms then again_ms = math.min(first_ms(KEYS[2]), first_ms(KEYS[3]), first_ms(KEYS[4])) end
if again_ms < math.huge then reply[2] = again_ms end
return reply
