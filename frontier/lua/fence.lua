-- fence: part of `lease`. Refuse a caller whose view of the shard's owner is outdated, and store the owner of a newer view.
--
-- owner  hash  epoch and replica that leased last, since when
--
-- Returns nil | {"fenced", epoch, replica}

local function fence(owner, epoch, replica, now_ms)
  local stored = redis.call('HMGET', owner, 'epoch', 'replica')
  local fence_epoch = tonumber(stored[1] or '0')
  if fence_epoch > epoch or (fence_epoch == epoch and stored[2] ~= replica) then
    return {'fenced', stored[1], stored[2]}
  end
  if stored[2] ~= replica then redis.call('HSET', owner, 'since', now_ms) end
  if fence_epoch ~= epoch or stored[2] ~= replica then
    redis.call('HSET', owner, 'epoch', epoch, 'replica', replica)
  end
  return nil
end
