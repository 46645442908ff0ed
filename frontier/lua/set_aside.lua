-- set_aside: part of other scripts. Let a key of a wrong type, which somebody else has written over, cost only its domain. The
-- same holds for packed URLs that are gone, because the server has evicted them.
--
-- The first command that uses such a key fails, and would end the script: what it has done for other domains would stay half
-- done, and each further call would fail at the same place. So scripts carry out the step of each domain in a `pcall`, and
-- set the domain aside if it fails: the domain is no longer due, and the key is named for the operator.
--
-- It is not leased until the shard is repaired. A lease on it is still valid: it ends as usual.
--
-- base  the prefix of due zset, urgent zset, revisits zset, stats hash (wrong_type: the names of such keys, at most MOST_NAMED);
--       q:<domain> zset, inflight:<domain> zset, blocks:<domain> zset, block:<block>:<domain> string, visits:<domain> zset,
--       d:<domain> hash, known:<domain> hash
-- problem  what the step has raised
--
-- set_aside sets the domain aside. It raises `problem` again unless a key of the domain explains it
-- attempt carries out a step with its arguments, and returns whether it was done; otherwise the domain is set aside

local MOST_NAMED = 16
local TYPES = {{'d', 'hash'}, {'q', 'zset'}, {'inflight', 'zset'}, {'blocks', 'zset'}, {'visits', 'zset'}, {'known', 'hash'}}

local function is_wrong(key, expected)
  local found = redis.call('TYPE', key).ok
  return found ~= expected and found ~= 'none'
end

-- The name of the first key of the domain that has a wrong type, or whose packed URLs are gone, nil if there is none.
local function wrong_key(base, domain)
  for _, of in ipairs(TYPES) do
    local name = of[1] .. ':' .. domain
    if is_wrong(base .. name, of[2]) then return name end
  end
  local first = redis.call('ZRANGE', base .. 'blocks:' .. domain, 0, 0)[1]
  local name = first and 'block:' .. first .. ':' .. domain
  if first and redis.call('TYPE', base .. name).ok ~= 'string' then return name end
  return not first and redis.call('HEXISTS', base .. 'd:' .. domain, 'packed') == 1 and 'blocks:' .. domain or nil
end

local function set_aside(base, domain, problem)
  local text = type(problem) == 'table' and problem.err or tostring(problem)
  local is_of_key = string.find(text, 'WRONGTYPE', 1, true) or string.find(text, 'MISSING', 1, true)
  local name = is_of_key and wrong_key(base, domain)
  -- What is no number there ends a calculation.
  for _, verb in ipairs({'perform', 'compare', 'concat'}) do
    if not name and string.find(text, 'attempt to ' .. verb, 1, true) then name = 'd:' .. domain end
  end
  -- As a table, so that the server puts no "ERR" before "OOM" and the like.
  if not name then error(type(problem) == 'table' and problem or {err = problem}, 0) end
  for _, key in ipairs({'due', 'urgent', 'revisits'}) do redis.call('ZREM', base .. key, domain) end
  local names, number = redis.call('HGET', base .. 'stats', 'wrong_type') or '', 0
  for known in string.gmatch(names, '%S+') do
    if known == name then return end
    number = number + 1
  end
  if number < MOST_NAMED then redis.call('HSET', base .. 'stats', 'wrong_type', names .. name .. ' ') end
end

local function attempt(base, domain, step, ...)
  local is_done, problem = pcall(step, ...)
  if not is_done then set_aside(base, domain, problem) end
  return is_done
end
