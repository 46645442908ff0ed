"""Who the crawler is, in a form that sites can check: signed requests and a key directory.

In the order in which data flows:

1. `keys` makes and reads the Ed25519 keys of an operator.
2. `web_bot_auth` is the draft of the working group Web Bot Auth: it signs requests and the key directory.
3. `published` says by which URLs, and in which field of an archive, the public part is found.

All but `published` need packages that are optional (`pip install 'peercrawl[identity]'`), so they are imported only where a
key or a signature is used. What sends requests knows a signer only as a function (`crawler.fetch.request_rules.Signer`).
"""
