"""May this URL be fetched, and when?

In the order of a request:

- `robots_cache` loads what is known of an origin's robots.txt. If nothing is known, or the record is too old,
  `robots_fetch` determines what to request and what the response means. What then becomes of a URL is decided in
  `crawler.worker.url_verdict`.
- `robots_syntax` parses the file, `robots_excerpt` extracts what applies to this crawler, and `robots_rules` decides about
  the URL, with `robots_patterns` for paths that contain `*`.
- `content_usage` and `tdmrep` find what the owner says about the use of a page, `structured_fields` parses a statement, and
  `usage_preferences` combines them. `site_usage` has what the files of a site say about a page, and `licence_urls` brings
  the URLs of licence offers into one form.
- `address_rate_limit` reserves a time for the request at the network address of the domain.
- After the response, `delay` determines the time until the next request to the domain; after a failure, `backoff`
  does, with what Retry-After says.

`policy` has the settings of all of them as one value, and `errors` the errors.

Only the cache and the shared rate limiter do I/O. The other modules are pure: time and random numbers are arguments.
"""
