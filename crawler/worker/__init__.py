"""The life of a lease: take a domain, fetch its URLs, commit the results, return the domain.

In the order in which data flows:

1. `lease_manager` takes leases on due domains of the replica's shards, renews them, and returns them when a shard moves
   to another replica. `held_leases` has those in hand, each a `leased_domain`.
2. `delay_queue` orders the leased domains by the time of their next request.
3. `worker` takes the domain that has been due the longest and makes at most one request to it: `robots_lookup` makes a
   request for robots.txt if the next URL needs one (`tdmrep_lookup` for tdmrep.json), otherwise `url_handler` requests the
   page itself. `url_verdict` decides, by the domain and its robots.txt, which URLs are settled or retried later without a
   request.
   `allowance` has the permits of this replica if the crawl may fetch only so many pages (`limits.max_pages`).
4. Before the request, `address_limit` reserves a time slot at the network address. A redirect of robots.txt may lead to
   another domain; then `foreign_domains` first reserves a time slot there. `leased_fetch` sends the request, and
   `lease_timer` cancels it when the lease ends. When the response ends, `throttle` starts the domain's delay
   (`polite_fetch` does these steps in order).
   `time_slice` yields to the event loop when several responses arrive at once.
5. `outcomes` maps the response to an outcome for the URL and says whether the domain backs off. `page_builder` turns
   the response into a page and the links to follow. `page_handling` has items extracted (`extractor`), passes the
   page to handlers if the crawl has any, and has all items checked (`page_items`, `item_type_check`). With `[recrawl]`,
   `visit_planning` plans the next visit. `sitemap_hints` makes known pages due that a sitemap says have changed.
6. After a failure that is ours (of the DNS, this machine or the proxy), `own_failures` has the domain wait. After any
   other, `throttle` reads Retry-After and sets the domain's backoff (`politeness.robots_fetch` reads it for an unreachable
   robots.txt). `next_turn` returns the domain to the queue, or ends its lease.
7. `commit` collects the results in a `commit_group`, pushes their links (`link_pusher`), writes their pages to the sink,
   and settles their URLs (`group_settler`), in this order. Results whose lease has ended are dropped. `commit` also renews
   leases, in the way in which URLs are settled (`lease_manager` says when). `redis_restarts` repeats the last writes to a
   server that was restarted.
8. `outbox_delivery` delivers links that could not be pushed, because a node of a cluster was away.

`pool` runs the workers, and `runtime` has what all parts share: clocks, events, the policy. Calls to Redis go through
`crawler/redis_retry.py`, which repeats them and knows which nodes of a cluster are away. Others learn from events
(`crawler/events.py`) what happens here. The only other room that imports this one is `app`, which connects its parts.
Other rooms import: `address_limit`, `allowance`, `commit`, `delay_queue`, `extractor`, `foreign_domains`,
`held_leases`, `item_type_check`, `lease_manager`, `leased_domain`, `leased_fetch`, `next_turn`, `outbox_delivery`,
`page_builder`, `page_handling`, `page_items`, `polite_fetch`, `pool`, `robots_lookup`, `runtime`, `sitemap_hints`,
`throttle`, `url_handler`, `worker`.
"""
