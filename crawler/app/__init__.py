"""The composition root and the process lifecycle: this package builds a replica from the other packages and runs it.

How a replica lives, in the order in which data flows:

1. `run` opens the store and the crawl. Without Redis, `embedded_valkey` starts a server on this machine. `start_settings`
   decides what happens if the settings of the start are not those of the crawl, `seed_check` which seeds it may fetch, and
   `installation_check` checks that this machine has what the settings need.
2. If several replicas are wanted, `supervisor` runs each in its own process and replaces those that crash.
   `listen_addresses` gives each a port. `signals` registers what a signal, or the end of the supervisor, calls; it also
   ends other commands at a signal.
3. `build` creates what the settings decide: the fetcher, the sinks (`archive_setup`), and the rules by which pages are
   parsed. `request_setup` is what the machine adds to requests: signatures with the keys of `[identity]`
   (`identity_setup`), and the rules in `[[requests]]` with secrets from the environment. `seams` is everything outside the
   process that the engine needs.
4. `engine` creates the other parts and connects all of them. It starts the `background_tasks`, finds the end of the crawl,
   and stops everything in a fixed order. Before it closes the files, it waits until servers keep the `last_writes`.
5. `replica` adds metrics, the log, the health record and the status server.
6. While the crawl is given another number of shards, the replica waits and continues as a new one (`reshard_wait`).
7. Meanwhile, `settings_reload` applies changed settings, which `kept_settings` writes down beside the output.
   `scheduled_duties` reads seed files for new URLs and queues sitemaps again on schedule, `gc_schedule` runs the garbage
   collector in small steps, and `progress_log` logs how far the crawl is.

`crawl` is the same replica in a program of a user (`crawler.Crawl`), and `seeding` queues its seeds and those of commands.
`trial` fetches a single page with it, and `trial_findings` says why nothing was found there.

The command line starts crawls with it. Its commands also set the delay of a domain (`domain_delay`), end its backoff
(`domain_retry`) and queue failed URLs again (`requeue`). `key_server` serves the key directory of `[identity]`, and
`key_lookup` fetches one as a site would.

Other rooms import: `archive_setup`, `build`, `crawl`, `domain_delay`, `domain_retry`, `embedded_valkey`,
`identity_setup`, `installation_check`, `kept_settings`, `key_lookup`, `key_server`, `listen_addresses`,
`progress_log`, `request_setup`, `requeue`, `run`, `seed_check`, `seeding`, `settings_reload`, `signals`,
`start_settings`, `supervisor`, `trial`.
"""
