-- read_owner: part of other scripts. The fields of the owner of a shard that most calls need.
--
-- owner  the key of a hash  epoch, replica, token, run, quiet_ms, call

local function read_owner(owner)
  local fields = redis.call('HMGET', owner, 'epoch', 'replica', 'token', 'run', 'quiet_ms', 'call')
  local known = {epoch = fields[1], replica = fields[2], token = tonumber(fields[3] or '0'), run = fields[4]}
  known.quiet_ms, known.call = tonumber(fields[5] or '0'), tonumber(fields[6] or '0')
  return known
end
