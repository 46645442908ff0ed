"""Code of users that turns pages into items, and decides which links are followed.

1. `router` says which function handles a page. `load_router` finds the router that `handlers.app` names.
2. `parsed_page` is what the function receives: a page with selectors, and a `Handle` that collects items and links.
   `requests` makes its requests and saves its downloads, and `values` has what all replicas share.
3. `runner` limits the number of calls and the time of each, and never raises what the function raises. `middlewares`
   calls the functions that see each request, response and item. `recorded` saves pages for tests of handlers.

The worker applies the result (`crawler.worker.page`): items are written in the line of the page, so they are durable
before the page is settled, and appear once if the page does.
"""
