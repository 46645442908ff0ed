-- lost_writes: part of other scripts. Notice that the shard is served by another server process than before, and remember
-- which leases that process may have lost.
--
-- A server that was restarted or replaced may have lost its last writes. Leases that it granted in them have tokens above
-- the last one that it kept. The shard continues with tokens above all of these, so the lost ones can be told for good:
-- nothing that was settled under them took effect, unless it was settled again (settle.lua).
--
-- known  table: run, token, quiet_ms, tails, as `read_owner` returns it
--
-- notice_run returns until when no lease may be granted, ms. Until then, replicas repeat their last writes.

-- Replicas look for a new run four times a second, and repeat their writes in some hundred milliseconds.
local GRACE_MS = 1000
-- More leases than a shard grants in the seconds that a server may lose.
local TOKENS_LOST = 10000
-- How long it is known what was lost, ms: three days.
local LOST_KEPT_MS = 259200000

local function read_owner(owner)
  local fields = redis.call('HMGET', owner, 'epoch', 'replica', 'token', 'run', 'quiet_ms', 'tails', 'call', 'granted')
  local known = {epoch = fields[1], replica = fields[2], run = fields[4], tails = fields[6] or '', granted = fields[8] or ''}
  known.token, known.quiet_ms, known.call = tonumber(fields[3] or '0'), tonumber(fields[5] or '0'), tonumber(fields[7] or '0')
  return known
end

local function notice_run(owner, known, run, now_ms)
  if run == known.run or run == '' then
    -- Not more than the whole period, also after the server's clock has stepped back.
    return known.quiet_ms <= now_ms + GRACE_MS and known.quiet_ms or 0
  end
  if not known.run then
    redis.call('HSET', owner, 'run', run)
    return 0
  end
  local first, kept = known.token, ''
  for from, to in string.gmatch(known.tails, '(%d+)-(%d+)') do
    if tonumber(to) == first then
      first = tonumber(from)  -- nothing was leased in between
    elseif tonumber(to) > now_ms - LOST_KEPT_MS then
      kept = kept .. from .. '-' .. to .. ' '
    end
  end
  known.run, known.token = run, math.max(known.token + TOKENS_LOST, now_ms)
  known.tails = string.format('%s%.0f-%.0f', kept, first, known.token)
  known.quiet_ms = now_ms + GRACE_MS
  redis.call('HSET', owner, 'run', run, 'token', string.format('%.0f', known.token), 'tails', known.tails,
    'quiet_ms', known.quiet_ms)
  return known.quiet_ms
end

local function is_lease_lost(known, token)
  for from, to in string.gmatch(known.tails, '(%d+)-(%d+)') do
    if tonumber(token) > tonumber(from) and tonumber(token) <= tonumber(to) then return true end
  end
  return false
end
