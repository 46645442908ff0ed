"""The composition root and the process lifecycle: this package builds a replica from the other packages and runs it.

1. `replica` opens the store and the crawl (`run_replicas`). Without Redis, `embedded_valkey` starts a server on this
   machine. `crawl_settings` decides what happens if the settings of the start are not those of the crawl.
2. If several replicas are wanted, `supervisor` runs each in its own process and replaces those that crash. `signals`
   registers what a signal, or the end of the supervisor, calls.
3. `engine` creates the parts that crawl, connects them, finds the end of the crawl, and stops everything in a fixed
   order. `requests` adds signatures and rules with secrets to requests.
4. `replica` adds metrics, the log, the health record and the status server.

`restore` adds what the output has if Redis comes back in an old state. `archived_items` finds items on archived pages.
`program` is a replica in a program of a user (`crawler.Crawl`), and `trial` fetches a single page. `operator` is what
commands change in the queue.
"""
