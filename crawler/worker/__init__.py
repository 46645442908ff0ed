"""The life of a lease: take a domain, fetch its URLs, commit the results, return the domain.

1. `lease_manager` takes leases on due domains of the replica's shards, renews them, and returns them when a shard moves
   to another replica. It has the permits of this replica for `limits.max_pages`.
2. `leases` has the leased domains in hand, and the queue that orders them by the time of their next request.
3. `worker` takes the domain that has been due the longest and makes at most one request to it: `robots` requests a
   robots.txt (or tdmrep.json) if the next URL needs one, otherwise `visit` requests the page. `verdict` says which URLs
   need no request, and what a response or a failure means.
4. `request` sends requests within the limits: each waits for a time slot at the network address, is cancelled when the
   lease ends, and starts the domain's delay or backoff.
5. `page` turns the response into a page and the links to follow. `rendering` has a browser run its scripts if
   `render_choice` says so. `items` extracts and checks items. `extra` makes the requests of browsers and handlers.
   `revisits` plans the next visit.
6. `commit` collects the results in a group, pushes their links, writes their pages to the sink, and settles their URLs,
   in this order. It also repeats the last writes to a server that was restarted.
7. `outbox` delivers links that could not be pushed, because a node of a cluster was away.

`runtime` has what all parts share. Calls to Redis go through `crawler/redis_retry.py`. Others learn from events
(`crawler/events.py`) what happens here. The only other package that imports this one is `app`.
"""
