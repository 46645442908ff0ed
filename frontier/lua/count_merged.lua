-- count_merged: part of other scripts. Count a URL that was accepted twice, and of which both entries became one.
--
-- This happens to a URL that is seeded again while it waits. It can be settled once, so it is counted as settled here, or
-- the crawl would never end. No counter goes down, and readers subtract what was queued again (`requeue`).
--
-- stats  the key of a hash  denied, denied:merged, requeued:denied:merged

local function count_merged(stats)
  for _, name in ipairs({'denied', 'denied:merged', 'requeued:denied:merged'}) do
    redis.call('HINCRBY', stats, name, 1)
  end
end
