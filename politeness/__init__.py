"""May this URL be fetched, and when?

In the order in which a visit asks: `robots_cache` finds what is known of an origin's robots.txt; where that is nothing,
or too old, `robots_fetch` says what to request and what the answer means; `robots` decides about the URL, on what
`robots_text` read. After the response `delay` says how long the domain rests, and after a failure `backoff` does. All but
the cache are pure: time and chance are arguments.
"""
