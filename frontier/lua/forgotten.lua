-- forgotten: part of other scripts. Whether a domain was forgotten (`forget_domain`): nothing of it may enter the shard again.
--
-- stats  hash  forgotten: the marks of forgotten domains, the SHA-1 of each, separated by spaces
--
-- is_refused counts what it refuses, and count_refused adds that to the counters.

local refused = 0

local function is_forgotten(marks, domain)
  return marks and string.find(marks, redis.sha1hex(domain), 1, true) ~= nil
end

local function is_refused(marks, domain, number)
  if not is_forgotten(marks, domain) then return false end
  refused = refused + number
  return true
end

local function count_refused(stats)
  if refused > 0 then redis.call('HINCRBY', stats, 'drop:forgotten', refused) end
end
