"""The frontier: which URLs are to be fetched, and which replica may fetch them. It works without the crawler.

In data-flow order:

- URLs: `urls` and `domains` give each URL its canonical form, its domain and its shard, by the `url_rules` of the crawl.
  `url_patterns` searches URLs for expressions that people write, in a limited time.
- Who owns which shard: `peer_loop` gives each replica the roster of an epoch, and says how soon a dead one is missed;
  `ring` assigns the shards to the replicas in it. `owners` stores the assignment from one epoch to the next. `health`
  stores what each replica reports. `crawl_time` keeps a clock that all replicas share (`clock`).
- The queues of a shard: `queue` pushes, leases, settles and releases URLs with the scripts in `lua/` of these names,
  within the limits of `frontier_settings`. URLs of a domain are leased by priority, which the caller has computed
  (`crawler.scope.link_filter`). A script has parts in files of their own (`scripts`): `lua/lease.lua` leases
  due domains, after `lua/take_back.lua` has ended expired leases, and `lua/fence.lua` refuses an older view. `entries`
  defines how Redis stores a queued URL. `settlements` has leases, and how their URLs ended. `packing` compresses the
  tails of long queues into `blocks`. `push_batches` splits long pushes, and `pipelining` sends many calls in parts.
- Visiting pages again: `known_pages` reads the pages that `lua/known_pages.lua` stores, in records
  (`lua/page_records.lua`). `lua/visits.lua` plans their visits and queues them.
- Faults: `recent_writes` keeps what may have to be repeated after a restart of the server. Links to shards whose nodes are
  away go to `outboxes`. `shard_identity` marks each shard with its crawl, and finds shards that have lost their data.
  `repair` restores these.
- Shared by the replicas of a crawl: `budget` divides the page limit and `duties` the periodic duties; with many replicas,
  each asks less often (`polling_period`). `reservations` allows single requests to a domain that another replica has
  leased. `field_types` keeps the types of the fields of data sets.
- Commands of operators: `crawls` creates and opens crawls, and `control` tells all replicas to pause, resume or stop, and
  what to do with single domains. `dead_letters` lists the URLs that failed, and queues them again. `retry_now` has a
  domain requested again at once, and `refreshing` known pages. `forgetting` removes a domain whose owner objected.
  `reshard` gives a crawl another number of shards: `layout_copy` copies what `shard_contents` lists and `key_pages` finds,
  and `standstill` measures how long it took. `durability` waits until servers have written to disk what they took.
- The state, read-only: `counters` of all shards, and whether the crawl has ended; `survey` for people who watch a crawl;
  `lookup` for one URL or domain.
- Redis: `store` is the interface, `scripts` loads the scripts, and `redis_keys` builds the keys. `calls` are what a
  store carries out. `redis_url` reads the URL of the store, and `redis_options` its options. Of the store, `servers`,
  `cluster_servers` and `sentinels` find the server of a key, `redis_server` holds the connections to one server
  (`redis_connection`), and `cluster_redirects` sends calls again after a MOVED or an ASK. `slot_map` reads which node
  serves which hash slots, and `shard_nodes` which shards. `node_facts` is what a node says about itself. `redis_errors`
  turns what goes wrong into `errors` of the frontier.
"""
