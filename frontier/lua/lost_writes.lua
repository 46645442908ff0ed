-- lost_writes: part of other scripts. Notice that the shard is served by another server process than before, and remember
-- which leases that process may have lost.
--
-- A server that was restarted or replaced may have lost its last writes. Leases that it granted in them have tokens above
-- the last one that it kept. The shard continues with tokens above all of these, so the lost ones can be told for good:
-- nothing that was settled under them took effect, unless it was settled again (settle.lua).
--
-- owner  the key of a hash  token, run, quiet_ms, tails   known: what `read_owner` returned
--
-- notice_run returns until when no lease may be granted, ms. Until then, replicas repeat their last writes.
-- is_lease_lost returns whether the lease with this token was lost, after a new run was noticed

-- Replicas look for a new run four times a second, and repeat their writes in some hundred milliseconds.
local GRACE_MS = 1000
-- More leases than a shard grants in the seconds that a server may lose.
local TOKENS_LOST = 10000
-- How long it is known what was lost, ms: three days.
local LOST_KEPT_MS = 259200000

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
  for from, to in string.gmatch(redis.call('HGET', owner, 'tails') or '', '(%d+)-(%d+)') do
    if tonumber(to) == first then
      first = tonumber(from)  -- nothing was leased in between
    elseif tonumber(to) > now_ms - LOST_KEPT_MS then
      kept = kept .. from .. '-' .. to .. ' '
    end
  end
  known.run, known.token = run, math.max(known.token + TOKENS_LOST, now_ms)
  local tails = string.format('%s%.0f-%.0f', kept, first, known.token)
  known.quiet_ms = now_ms + GRACE_MS
  redis.call('HSET', owner, 'run', run, 'token', string.format('%.0f', known.token), 'tails', tails,
    'quiet_ms', known.quiet_ms)
  return known.quiet_ms
end

local function is_lease_lost(owner, token)
  for from, to in string.gmatch(redis.call('HGET', owner, 'tails') or '', '(%d+)-(%d+)') do
    if tonumber(token) > tonumber(from) and tonumber(token) <= tonumber(to) then return true end
  end
  return false
end
