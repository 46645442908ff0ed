-- urgent: part of `lease`. Among the domains that are due, those whose best URL has a priority above 0 come first, the one
-- with the highest priority before the others. All others are leased in the order in which they became due.
--
-- The zset is a hint: `push` writes the highest priority that was queued, and what is no longer right is mended here, when a
-- domain is due. LOOKED_AT domains are looked at. If none of them is due, order is that of time.
--
-- base  the prefix of urgent zset (domain -> minus the highest priority), due zset, leases zset, q:<domain> zset
--
-- urgent_first returns up to `most` domains that are due, the urgent ones first

local LOOKED_AT, HIGHEST = 128, 1e11  -- above HIGHEST are known pages (visits.lua)

local function urgent_domains(base, now_ms, most)
  local urgent, names, found = base .. 'urgent', redis.call('ZRANGE', base .. 'urgent', 0, LOOKED_AT - 1), {}
  if #names == 0 then return found end
  local due = redis.call('ZMSCORE', base .. 'due', unpack(names))
  for i, domain in ipairs(names) do
    if #found >= most then break end
    if not due[i] then
      if not redis.call('ZSCORE', base .. 'leases', domain) then redis.call('ZREM', urgent, domain) end
    elseif tonumber(due[i]) <= now_ms then
      local best = redis.pcall('ZREVRANGEBYSCORE', base .. 'q:' .. domain, HIGHEST, '(0', 'WITHSCORES', 'LIMIT', 0, 1)
      if best[1] then
        redis.call('ZADD', urgent, 'XX', 0 - best[2], domain)
        found[#found + 1] = domain
      else
        redis.call('ZREM', urgent, domain)
      end
    end
  end
  return found
end

local function urgent_first(base, now_ms, most)
  local domains, is_listed = urgent_domains(base, now_ms, most), {}
  for _, domain in ipairs(domains) do is_listed[domain] = true end
  for _, domain in ipairs(redis.call('ZRANGEBYSCORE', base .. 'due', '-inf', now_ms, 'LIMIT', 0, most)) do
    if #domains >= most then break end
    if not is_listed[domain] then domains[#domains + 1] = domain end
  end
  return domains
end
