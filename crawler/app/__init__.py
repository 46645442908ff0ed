"""The composition root and the process lifecycle: this package builds a replica from the other packages and runs it.

How a replica lives, in the order in which data flows:

1. `run` opens the store and the crawl. Without Redis, `embedded_valkey` starts a server on this machine. If several
   replicas are wanted, `supervisor` runs each in its own process and replaces those that crash. `stopping` waits for
   signals, and for the end of the supervisor.
   `start_settings` decides what happens if the settings of the start are not those of the crawl, and `seed_check` which
   seeds it may fetch.
2. `build` creates the parts that depend on the settings: the fetcher, the sinks, and what pages are parsed with.
3. `engine` creates the other parts and connects all of them. It starts the tasks, finds the end of the crawl, and stops
   everything in a fixed order.
4. `replica` adds metrics, the log, the health record and the status server.
5. Meanwhile, `settings_reload` applies changed settings, `periodic` queues seed files and sitemaps again on schedule,
   and `gc_schedule` runs the garbage collector in small steps.

The command line starts crawls with it. Other rooms import: `build`, `domain_delay`, `embedded_valkey`, `installed`,
`listen_addresses`, `requeue`, `run`, `seed_check`, `settings_reload`, `start_settings`, `stopping`, `supervisor`.
"""
