-- claim: take an index in the open epoch, and read the roster of the epoch before it.
--
-- Opening an epoch closes all earlier ones for good. A claim for a closed epoch counts for the open one, so a roster that
-- any replica has read never changes. If nobody was in the last roster, because the loop begins or all have left, the replica
-- that opens an epoch is put into the roster in effect, so that it does not wait for a whole epoch. A second claim by the
-- same replica returns its first index. Rosters do not expire, but are deleted when later epochs are opened, because the
-- server's clock may step.
--
-- KEYS[1] peers  string  the open epoch
-- also   peers:claims:<epoch>  string  last index that was assigned
--        peers:roster:<epoch>  hash    replica -> "index capacity address"
--        peers:owners          hash    version, table: who owns which shard (save_owners.lua)
--        peers:running         hash    total_ms: how long replicas have worked; last_ms: of the last claim; working: since then
-- ARGV[1] epoch, 0 for the open one   ARGV[2] replica   ARGV[3] capacity   ARGV[4] address   ARGV[5] known_version
-- ARGV[6] now_ms, 0 if the replica does not know the time   ARGV[7] 1 if the replica works, 0 if it is paused
-- ARGV[8] longest time between two claims of running replicas, ms
--
-- Returns {"claimed", epoch, index, version, table, replica, "index capacity address", replica, ... of the epoch before};
-- version is empty if no table is stored; table is empty if the caller already has that version.

local function claims_key(epoch) return KEYS[1] .. ':claims:' .. string.format('%.0f', epoch) end
local function roster_key(epoch) return KEYS[1] .. ':roster:' .. string.format('%.0f', epoch) end

local replica, runs_ms = ARGV[2], tonumber(ARGV[8])
local open = tonumber(redis.call('GET', KEYS[1]) or '0')
local epoch = math.max(open, tonumber(ARGV[1]))
if epoch > open then
  local is_first = redis.call('EXISTS', roster_key(open)) == 0
  redis.call('SET', KEYS[1], string.format('%.0f', epoch))
  redis.call('DEL', claims_key(open - 1), roster_key(open - 1))
  if open < epoch - 1 then redis.call('DEL', claims_key(open), roster_key(open)) end
  if is_first then  -- nobody has read the roster in effect yet
    redis.call('HSET', roster_key(epoch - 1), replica, '1 ' .. ARGV[3] .. ' ' .. ARGV[4])
  end
end

-- The time since the last claim counts if replicas have worked since then: if they are not paused, the last one has not left,
-- and none of the epochs in between has passed without a claim.
local running, now_ms = KEYS[1] .. ':running', tonumber(ARGV[6])
local before = redis.call('HMGET', running, 'last_ms', 'working')
if now_ms > 0 then
  if before[1] and before[2] == '1' and epoch - open <= 2 and now_ms - before[1] <= runs_ms then
    redis.call('HINCRBY', running, 'total_ms', string.format('%.0f', math.max(0, now_ms - before[1])))
  end
  redis.call('HSET', running, 'last_ms', math.max(now_ms, before[1] or 0), 'working', ARGV[7])
end

local held = redis.call('HGET', roster_key(epoch), replica)
local index = held and tonumber(string.match(held, '^%d+')) or redis.call('INCR', claims_key(epoch))
redis.call('HSET', roster_key(epoch), replica, index .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])

local version, owners = redis.call('HGET', KEYS[1] .. ':owners', 'version') or '', ''
if version ~= '' and version ~= ARGV[5] then
  owners = redis.call('HGET', KEYS[1] .. ':owners', 'table')
end
local reply = {'claimed', string.format('%.0f', epoch), index, version, owners}
for _, field in ipairs(redis.call('HGETALL', roster_key(epoch - 1))) do
  reply[#reply + 1] = field
end
return reply
