-- save_settings: replace a crawl's settings and increment the revision, unless nothing changes. If the settings have
-- changed since the caller read them, nothing is written.
--
-- KEYS[1] meta  hash  settings, revision
-- ARGV[1] settings   ARGV[2] revision that the caller read
--
-- Returns {"saved" | "unchanged" | "outdated", revision}

local stored = redis.call('HMGET', KEYS[1], 'settings', 'revision')
local revision = tonumber(stored[2] or '1')
if stored[1] == ARGV[1] then
  return {'unchanged', revision}
end
if not stored[1] or revision ~= tonumber(ARGV[2]) then
  return {'outdated', revision}
end
redis.call('HSET', KEYS[1], 'settings', ARGV[1], 'revision', revision + 1)
return {'saved', revision + 1}
