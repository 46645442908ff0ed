"""The composition root and the process lifecycle: this package builds a replica from the other packages and runs it.

How a replica lives, in the order in which data flows:

1. `replica` opens the store and the crawl (`run_replicas`). Without Redis, `embedded_valkey` starts a server on this
   machine. `crawl_settings` decides what happens if the settings of the start are not those of the crawl, and checks that
   this machine has what the settings need.
2. If several replicas are wanted, `supervisor` runs each in its own process and replaces those that crash. `signals`
   registers what a signal, or the end of the supervisor, calls; it also ends other commands at a signal.
3. `engine` creates the parts that crawl and connects them. It starts the background tasks, finds the
   end of the crawl, and stops everything in a fixed order. `requests` is what the machine adds to requests:
   signatures with the keys of `[identity]`, and the rules in `[[requests]]` with secrets from the environment.
4. `replica` adds metrics, the log, the health record and the status server. While the crawl is given another number of
   shards, the replica waits and continues as a new one.
5. Meanwhile, `crawl_settings` applies changed settings, and writes them down beside the output.

If Redis comes back in an old state, `restore` adds what the output has. `archived_items` finds items on archived pages.

`program` is the same replica in a program of a user (`crawler.Crawl`). `trial` fetches a single page with it.

`operator` is what commands change in the queue: it checks and queues seeds, sets the delay of a domain, ends its
backoff, and queues failed URLs again. `keys` serves the key directory of `[identity]`, and fetches one as a site would.
"""
