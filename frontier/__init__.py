"""The frontier: which URLs are to be fetched, and which replica may fetch them. It works without the crawler.

In data-flow order:

- `urls` and `domains` give each URL its canonical form and its domain. `url_patterns` searches URLs for expressions that
  people write, in a limited time.
- `peer_loop` gives each replica the roster of an epoch, and `ring` assigns the shards to the replicas in it. `owners`
  stores the assignment from one epoch to the next. `health` stores what each replica reports.
- `crawl_time` keeps a clock that all replicas share (`clock`), and `nodes` knows which node of a cluster serves each shard.
- `queue` pushes, leases, settles and releases URLs with the scripts in `lua/`, and `settlements` and `entries` define how
  Redis stores them (`frontier_settings`: with which limits). `known_pages` reads the pages that are visited again, whose
  visits `lua/visits.lua` plans and queues;
  `lua/known.lua` stores them, in records (`lua/records.lua`).
  `packing` compresses the tails of long queues into `blocks`.
  `recent_writes` keeps what may have to be repeated after a restart of the server. Links to shards whose nodes are away
  go to `outboxes`. `push_batches` splits long pushes, and `pipelining` sends many calls in parts.
- `store`, `scripts` and `redis_keys` are the interface to Redis, and `calls` is what a store carries out. `redis_url`
  reads the URL of the store, and `redis_options` its options. Of the store, `servers`, `cluster` and `sentinels` find
  the server of a key, `redis_server` holds the connections to one server (`connection`), and `cluster_redirects`
  sends calls again after a MOVED or an ASK. `slot_map` reads which node serves which hash slots. `redis_errors` turns
  what goes wrong into `errors` of the frontier.
- `crawls` creates and opens crawls, and `shards` gives each shard the identity of its crawl. `repair` restores shards that
  have lost their data. `reshard` gives a crawl another number of shards: `layout_copy` copies what `shard_contents`
  lists. `budget` and `duties` divide the page limit and the periodic duties among the replicas; with many, each asks less
  often (`pace`). `reservations` allows single requests to a domain that another replica has leased.
- `forgetting` removes a domain whose owner objected.
- `field_types` keeps the types of the fields of data sets.
- `counters`, `survey` and `lookup` read the state, and `node_facts` what the nodes of a cluster say about themselves.
  `dead_letters` lists the URLs that failed, and queues them again. `retries` has a domain requested again at once,
  and `refreshing` known pages.
  `control` sends an operator's commands to all replicas.
"""
