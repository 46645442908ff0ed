"""The HTTP server of a replica. It is read-only: the state of a crawl can only be changed through Redis.

`server` listens. With the first connection it imports `routes`, which limits connections and checks the Host header, so
that no page of a site can read these pages in the browser of an operator. `live.html` is the live page, and `pages` has
those about a domain, a replica and a URL (`answer.html`). `/metrics` is for Prometheus, which discovers all replicas
through `/sd` of any one. `/healthz` and `/readyz` are for process supervisors (`Engine.readiness`).

While a live page is open, `feed` reads the health records and the summary of the crawl once a second and sends them as
server-sent events (`/events`): a few small reads, whatever the size of the crawl and the number of pages.
"""

from crawler.observe.web.feed import Live
from crawler.observe.web.pages import StatePages
from crawler.observe.web.server import ServerAddress, StatusServer

__all__ = ["Live", "ServerAddress", "StatePages", "StatusServer"]
