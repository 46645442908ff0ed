-- reserve: reserve one request to a domain for which the caller holds no lease, such as for a robots.txt to which an
-- origin of another domain redirects. The domain is not leased to any replica until end_reservation is called, or until
-- the reservation expires.
--
-- While the domain's delay runs, the slot at its end is reserved. Otherwise the next lease could come first every time. But
-- after reservations for RUN_MS, URLs of the domain that are due come first: its owner has OWNER_MS to lease it.
--
-- What is stored of a domain that has no URLs in the crawl expires some time after the reservation (KEPT_MS).
--
-- KEYS[1] stats  hash  crawl
-- KEYS[2] the prefix of due zset, leases zset, d:<domain> hash (accepted, requisites, next, delay, held, token, open,
--         reserved, run)
-- ARGV[1] crawl   ARGV[2] domain   ARGV[3] now_ms   ARGV[4] hold_ms: maximum duration of the request and its response
-- ARGV[5] max_wait_ms: nothing is reserved if the delay lasts longer than this
--
-- Returns {"reserved", slot ms, until_ms (for `end_reservation`), delay_ms or -1}
--       | {"leased", delay_ms or -1}, unless its holder makes way (`open_lease`) | {"busy", delay_ms or -1}: reserved
--       | {"resting", until ms} | {"lost"}

local KEPT_MS, RUN_MS, OWNER_MS = 3600000, 1000, 2000
if is_lost(KEYS[1], ARGV[1]) then return {'lost'} end
local base, now_ms = KEYS[2], tonumber(ARGV[3])
local domain_key = base .. 'd:' .. ARGV[2]

local state = redis.pcall('HMGET', domain_key, 'next', 'delay', 'held', 'accepted', 'requisites', 'token', 'open',
  'reserved', 'run')
if state.err then return {'busy', -1} end  -- the next lease sets the domain aside (set_aside.lua)
local slot_ms, delay_ms = math.max(now_ms, tonumber(state[1] or '0')), tonumber(state[2] or '-1')
local is_held = tonumber(state[3] or '0') > now_ms
local is_open = state[7] and state[7] == state[6]
if not is_open and redis.call('ZSCORE', base .. 'leases', ARGV[2]) then return {'leased', delay_ms} end
if is_held then return {'busy', delay_ms} end
if slot_ms > now_ms + tonumber(ARGV[5]) then
  return {'resting', slot_ms}
end
-- If nobody else has made a request since the last reservation, the run of reservations goes on.
local run_ms = state[8] and state[8] == state[1] and tonumber(state[9]) or slot_ms
if slot_ms - run_ms >= RUN_MS then
  run_ms = slot_ms
  local owner_until_ms = tonumber(state[1]) + OWNER_MS
  if not is_open and now_ms < owner_until_ms and redis.call('ZSCORE', base .. 'due', ARGV[2]) then
    return {'resting', owner_until_ms}
  end
end
local until_ms = slot_ms + tonumber(ARGV[4])
local text = string.format('%.0f', until_ms)
redis.call('HSET', domain_key, 'next', text, 'held', text, 'run', string.format('%.0f', run_ms))
redis.call('ZADD', base .. 'due', 'XX', until_ms, ARGV[2])
if not (state[4] or state[5]) then redis.call('PEXPIRE', domain_key, string.format('%.0f', until_ms - now_ms + KEPT_MS)) end
return {'reserved', slot_ms, until_ms, delay_ms}
