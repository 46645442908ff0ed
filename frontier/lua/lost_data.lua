-- lost_data: part of other scripts. Whether the shard has lost its data: a server that came back empty, or with another
-- crawl's data, must never be taken for a shard without URLs.
--
-- stats  hash  crawl: the identity of the crawl, stored when the crawl was created (identify_shard.lua)

local function is_lost(stats, crawl)
  return redis.call('HGET', stats, 'crawl') ~= crawl
end
