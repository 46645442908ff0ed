-- repeat_lease: part of `lease`. Return the leases of a call whose reply was lost, once more.
--
-- A replica numbers its calls by the replies with leases that it got from the shard. So a call with the number of the last
-- grant comes from a replica that does not know of it: the leases are still unused, and begin now. An earlier number comes
-- from a call that was delayed on its way, whose reply nobody awaits.
--
-- base: the prefix of the keys of the shard; number: of a call that is not a new one; known: what `read_owner` returned
--
-- Returns the reply of `lease` | nil if none of these leases is left

local function repeat_lease(base, known, number, now_ms, lease_ms, default_delay_ms)
  local reply = {'leased', now_ms}
  if number < known.call then return reply end
  local granted = redis.call('HGET', base .. 'owner', 'granted') or ''
  local function repeat_one(domain, token)
    local state = redis.call('HMGET', base .. 'd:' .. domain, 'token', 'delay', 'state')
    if state[1] == token then
      local entries = redis.call('ZRANGE', base .. 'inflight:' .. domain, 0, -1, 'REV', 'WITHSCORES')
      redis.call('ZADD', base .. 'leases', 'GT', now_ms + lease_ms, domain)
      reply[#reply + 1] = {domain, token, tonumber(state[2] or default_delay_ms), state[3] or '', entries}
    end
  end
  for domain, token in string.gmatch(granted, '(%S+) (%d+)') do attempt(base, domain, repeat_one, domain, token) end
  return #reply > 2 and reply or nil
end
