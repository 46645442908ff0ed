-- claim: put a replica into the roster of the next epoch, and read the roster in effect.
--
-- The claims in an epoch are the roster in effect in the next one. Opening an epoch closes all earlier ones for good. A claim
-- for a closed epoch counts for the open one, so a roster that any replica has read never changes. If nobody has claimed,
-- because the loop begins or all have left, the replica that opens an epoch is put into the roster in effect, so that it
-- does not wait for a whole epoch. The roster in effect is encoded once, when its epoch is opened, and a replica that knows
-- its version does not get it again: a claim costs the same with three replicas and with a thousand. Nothing expires,
-- because the server's clock may step.
--
-- KEYS[1] peers  string  the open epoch
-- also   peers:claims   hash  replica -> "number capacity address", the claims in the open epoch
--        peers:roster   hash  the roster in effect: version, members: JSON, replica, "number capacity address", ...
--        peers:numbers  string  last number that was given to a replica
--        peers:owners   hash  version and table, with the suffix: who owns which shard (save_owners.lua)
--        peers:running  hash  total_ms: how long replicas have worked; last_ms: of the last claim; working: since then
-- ARGV[1] epoch, 0 for the open one   ARGV[2] replica   ARGV[3] capacity   ARGV[4] address   ARGV[5] its number, 0 for none
-- ARGV[6] version of the roster that it knows
-- ARGV[7] now_ms, 0 if the replica does not know the time   ARGV[8] 1 if the replica works, 0 if it is paused
-- ARGV[9] longest time between two claims of running replicas, ms   ARGV[10] suffix of the table, none for ""
--
-- Returns {"claimed", epoch, number, version of the table, version of the roster, roster}; the version of the table is empty
-- if none is stored; the roster is empty if the caller knows it.

local claims, rosters = KEYS[1] .. ':claims', KEYS[1] .. ':roster'

local replica, runs_ms = ARGV[2], tonumber(ARGV[9])
local open = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local epoch = math.max(open, tonumber(ARGV[1]))
local number = ARGV[5] ~= '0' and ARGV[5] or string.match(redis.call('HGET', claims, replica) or '', '^%d+')
number = number or redis.call('INCR', KEYS[1] .. ':numbers')
local claim = number .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]

if epoch > open then
  local members, names, claimed = {}, {}, {}
  if redis.call('EXISTS', claims) == 0 then  -- nobody has read the roster in effect yet
    names[1], claimed[replica] = replica, claim
  elseif open == epoch - 1 then
    local fields = redis.call('HGETALL', claims)
    for i = 1, #fields, 2 do names[#names + 1], claimed[fields[i]] = fields[i], fields[i + 1] end
    table.sort(names)
  end
  for i, name in ipairs(names) do members[2 * i - 1], members[2 * i] = name, claimed[name] end
  local roster = #members > 0 and cjson.encode(members) or '[]'
  redis.call('HSET', rosters, 'version', redis.sha1hex(roster), 'members', roster)
  redis.call('DEL', claims)
  redis.call('SET', KEYS[1], string.format('%.0f', epoch))
end
redis.call('HSET', claims, replica, claim)

-- The time since the last claim counts if replicas have worked since then: if they are not paused, the last one has not left,
-- and none of the epochs in between has passed without a claim.
local running, now_ms = KEYS[1] .. ':running', tonumber(ARGV[7])
local before = redis.call('HMGET', running, 'last_ms', 'working')
if now_ms > 0 then
  if before[1] and before[2] == '1' and epoch - open <= 2 and now_ms - before[1] <= runs_ms then
    redis.call('HINCRBY', running, 'total_ms', string.format('%.0f', math.max(0, now_ms - before[1])))
  end
  redis.call('HSET', running, 'last_ms', math.max(now_ms, before[1] or 0), 'working', ARGV[8])
end

local owners = redis.call('HGET', KEYS[1] .. ':owners', 'version' .. (ARGV[10] or '')) or ''
local version, roster = redis.call('HGET', rosters, 'version') or '', ''
if version ~= ARGV[6] then roster = redis.call('HGET', rosters, 'members') or '' end
return {'claimed', string.format('%.0f', epoch), tonumber(number), owners, version, roster}
