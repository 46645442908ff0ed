-- save_settings: replace a crawl's settings, and count it as a revision unless they are the same.
--
-- KEYS[1] meta  hash  settings, revision
-- ARGV[1] settings
--
-- Returns {"saved" | "unchanged", revision}

local revision = tonumber(redis.call('HGET', KEYS[1], 'revision') or '1')
if redis.call('HGET', KEYS[1], 'settings') == ARGV[1] then
  return {'unchanged', revision}
end
redis.call('HSET', KEYS[1], 'settings', ARGV[1], 'revision', revision + 1)
return {'saved', revision + 1}
