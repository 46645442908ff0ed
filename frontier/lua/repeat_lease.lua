-- repeat_lease: part of `lease`. Return the leases of a call whose reply was lost, once more.
--
-- A replica numbers its calls by the replies with leases that it got from the shard. So a call with the number of the last
-- grant comes from a replica that does not know of it: the leases are still unused, and begin now. An earlier number comes
-- from a call that was delayed on its way, whose reply nobody awaits.
--
-- keys: table with the keys of `lease` by name; known: what `read_owner` returned
--
-- Returns the reply of `lease` | nil if the call is a new one

local function repeat_lease(keys, known, number, now_ms, lease_ms, default_delay_ms)
  if number > known.call then return nil end
  local reply = {'leased', now_ms}
  if number < known.call then return reply end
  for domain, token in string.gmatch(known.granted, '(%S+) (%d+)') do
    local state = redis.call('HMGET', keys.shard .. 'd:' .. domain, 'token', 'delay', 'state')
    if state[1] == token then
      local entries = redis.call('ZRANGE', keys.shard .. 'inflight:' .. domain, 0, -1, 'REV', 'WITHSCORES')
      redis.call('ZADD', keys.leases, 'GT', now_ms + lease_ms, domain)
      reply[#reply + 1] = {domain, token, tonumber(state[2] or default_delay_ms), state[3] or '', entries}
    end
  end
  return #reply > 2 and reply or nil
end
