-- leave: remove a replica from the open epoch, so that the next view no longer includes it.
--
-- KEYS[1] peers  string  the open epoch
-- also   peers:roster:<epoch>  hash  replica -> "index capacity address"
-- ARGV[1] replica
--
-- Returns {"left"} | {"absent"}

local function roster_key(epoch) return KEYS[1] .. ':roster:' .. epoch end

local open = redis.call('GET', KEYS[1])
if open and redis.call('HDEL', roster_key(open), ARGV[1]) == 1 then
  return {'left'}
end
return {'absent'}
