"""The HTTP server of a replica. It is read-only: the state of a crawl can only be changed through Redis.

`server` listens. With the first connection it imports `routes`, which limits connections, and serves these pages after a
check of the Host header, so that no page of a site can read them in the browser of an operator. `live.html` is the live
page, and `pages` has those about a domain, a replica and a URL (`answer.html`).

`/` is the live page, which gets its data as server-sent events from `/events`. `/domain/NAME`, `/replica/NAME` and
`/why?url=` are pages about a domain, a replica and a URL. `/metrics` is for Prometheus, which discovers all replicas
through `/sd` of any one. `/healthz` and `/readyz` are for process supervisors; what `/readyz` says is decided in
`crawler.app.engine` (`Engine.readiness`).

Data for the live page: each replica writes a health record to Redis, and one replica writes the crawl's summary
(`crawler.observe.summary`). While at least one page is open, `feed` reads these records once a second and sends
them to all open pages. The cost is a few small reads per second, regardless of the size of the crawl and the number of
open pages.
"""

from crawler.observe.web.feed import Live
from crawler.observe.web.pages import StatePages
from crawler.observe.web.server import ServerAddress, StatusServer

__all__ = ["Live", "ServerAddress", "StatePages", "StatusServer"]
