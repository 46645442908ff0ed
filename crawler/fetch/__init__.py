"""One guarded HTTP exchange: a URL in, an exchange or `FetchFailed` out.

In the order in which data flows:

1. `client` receives a canonical URL and sends exactly one GET. It follows no redirect and decompresses nothing.
2. `client` has the fields that every request gets, such as User-Agent and Accept, and `request` joins them with the
   request line and Host. `request_rules` adds what the operator's rules say, and puts `[redacted]` for their secrets
   into what is recorded (`request_secret` keeps them out of logs). `cookies` has those that the site has set.
   `scheduled_validators` remembers the headers that ask for what is fetched on a schedule, such as sitemaps, only if it
   has changed.
3. `resolver` finds the addresses of the host in the host map, its cache or the DNS (`dns`). `address_policy` judges each
   address, because a page must not lead the crawler into the operator's own network.
4. `connection` judges the address once more at the moment of connecting, and limits the duration of the exchange.
   `tunnel` opens connections through a `proxy`.
5. `response` reads the response from bytes and limits each part of it. A body that is too long is cut and kept
   (`connection`, `Exchange.truncated`); a head that is too long is a failure.
6. `client` returns the exchange. `fd_limit` calculates how many connections may stay open. `library_patches` changes
   internals of asyncio, and `aiohttp_late` imports aiohttp quickly.

Other rooms import: `address_policy`, `client`, `dns`, `fd_limit`, `library_patches`, `proxy`, `request`,
`request_rules`, `request_secret`, `scheduled_validators`.
"""
