-- fence: part of `lease`. Refuse a caller whose view of the shard's owner is outdated, and store the owner of a newer view.
--
-- owner  hash  epoch and replica that leased last, since when; call and granted of that replica
-- known  table: what `read_owner` returned
--
-- Returns nil | {"fenced", epoch, replica}

local function fence(owner, known, epoch, replica, now_ms)
  local fence_epoch = tonumber(known.epoch or '0')
  if fence_epoch > epoch or (fence_epoch == epoch and known.replica ~= replica) then
    return {'fenced', known.epoch, known.replica}
  end
  if known.replica ~= replica then
    redis.call('HSET', owner, 'since', now_ms, 'call', 0, 'granted', '')
    known.call = 0
  end
  if fence_epoch ~= epoch or known.replica ~= replica then
    redis.call('HSET', owner, 'epoch', epoch, 'replica', replica)
  end
  return nil
end
