"""Who the crawler is, in a form that sites can check: signed requests, a key directory, address ranges and a page.

In the order in which data flows:

1. `signing_keys` makes and reads the Ed25519 keys of an operator.
2. `message_signatures` is RFC 9421: what exactly is signed, and whether a signature fits a message.
3. `web_bot_auth` is the draft of the working group Web Bot Auth: it signs requests and the key directory, and says what
   makes a signature valid.
4. `address_ranges` is the draft for published address ranges, and `about_page` writes the page that explains the crawler.
   `published` says by which URLs, and in which field of an archive, the public part is found.

`signing_keys`, `message_signatures` and `web_bot_auth` need packages that are optional (`pip install
'peercrawl[identity]'`), so they are imported only where a key or a signature is used. What sends requests knows a
signer only as a function (`crawler.fetch.request_rules.Signer`).

Other rooms import: `about_page`, `address_ranges`, `message_signatures`, `published`, `signing_keys`, `web_bot_auth`.
"""
