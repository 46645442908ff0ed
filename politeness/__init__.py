"""May this URL be fetched, and when?

In the order of a request:

- `robots_cache` loads what is known of an origin's robots.txt. If nothing is known, or the record is too old,
  `robots_fetch` determines what to request and what the response means. What then becomes of a URL is decided in
  `crawler.worker`.
- `robots_syntax` parses the file and extracts what applies to this crawler, and `robots_match` decides about the URL.
- `usage` reads and combines what the owner says about the use of a page, also by the TDM Reservation Protocol (`tdmrep`).
- `rate_limit` reserves a time for the request at the network address of the domain.
- After the response, `delay` determines the time until the next request to the domain; after a failure, `backoff`
  does, with what Retry-After says.

`policy` has the settings of all of them as one value. Only the cache and the shared rate limiter do I/O. The other modules
are pure: time and random numbers are arguments.
"""
