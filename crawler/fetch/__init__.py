"""One guarded HTTP exchange: a URL in, an exchange or `FetchFailed` out.

In the order in which data flows:

1. `client` receives a canonical URL and sends exactly one GET. It follows no redirect and decompresses nothing.
2. `request_rules` makes the head of the request: the fields that every request gets, and what the operator's rules add. It
   puts `[redacted]` for the rules' secrets into
   what is recorded. `cookies` has those that the site has set.
3. `resolver` finds the addresses of the host in the host map, its cache or the DNS. `address_policy` judges each address,
   because a page must not lead the crawler into the operator's own network.
4. `connection` judges the address once more at the moment of connecting, and limits the duration of the exchange. `proxy`
   opens connections through a proxy. `tls` has the certificates that servers should have sent.
5. `response` reads the response from bytes and limits each part of it. A body that is too long is cut and kept; a head that
   is too long is a failure.

`library_privates` changes internals of asyncio.
"""
