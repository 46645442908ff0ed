"""Code of users that turns pages into items, and decides which links are followed.

In the order in which data flows:

1. `router` says which function handles a page. `load_router` finds the router that `handlers.app` names.
2. `parsed_page` is what the function receives: a page with selectors, and a `Handle` that collects items and links.
   `requests` makes its requests and saves its downloads, and `values` has what all replicas share.
3. `runner` limits the number of calls and the time of each, and never raises what the function raises. It also calls the
   functions that run when a replica starts and ends, and `middlewares` those that see each request, response and item.
4. `recorded` saves pages for tests of handlers.

The worker applies the result (`crawler.worker.page`): the items become part of the page, and are written in
the line of the page, in one group commit. So they are durable before the page is settled, and appear once if the page
does. It also decides what becomes of a page whose handler has failed: its URL is dead, and its links wait until it is
fetched again.
"""
