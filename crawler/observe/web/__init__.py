"""The HTTP side of a replica. Read-only: nothing on the network changes a crawl's state but Redis.

`/` is the live page, fed by server-sent events at `/events`; `/domain/NAME` and `/why?url=` answer questions;
`/metrics` is for Prometheus, which finds all replicas by `/sd` of any one; `/healthz` and `/readyz` are for whoever
keeps the process alive.

How figures reach the page: each replica keeps a health record in Redis, one of them the crawl's summary
(`crawler.observe.summary_writer`). While at least one page is open, `live` reads these records once a second and hands them
to all open pages. So a page costs a few small reads a second, whatever the size of the crawl and however many pages are
open.
"""

from crawler.observe.web.answers import CrawlQueries
from crawler.observe.web.live import Live
from crawler.observe.web.server import StatusServer

__all__ = ["CrawlQueries", "Live", "StatusServer"]
