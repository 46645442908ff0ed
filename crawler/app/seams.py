"""The external dependencies of the engine: Redis, the clock, random numbers, HTTP, the sink, and event listeners."""

from __future__ import annotations

import random

import msgspec

from crawler.app.request_setup import RequestSetup
from crawler.events import Events
from crawler.fetch.client import HttpClient
from crawler.handlers.lifecycle import Context
from crawler.handlers.router import Router
from crawler.sinks.sink import DurableSink
from frontier.clock import Clock, CrawlTime
from frontier.crawls import Crawl
from frontier.store import Store


class Seams(msgspec.Struct, frozen=True):
    """The external dependencies of the engine of the replica `replica`. `time`: that of the engine before, if it continues
    the work of another one of this process. `setup`: what the machine adds to requests. `router`: the handlers of
    pages, None if there are none; `context`: what they share."""

    replica: str
    crawl: Crawl
    store: Store
    clock: Clock
    rng: random.Random
    http: HttpClient
    sink: DurableSink
    events: Events
    time: CrawlTime | None = None
    setup: RequestSetup = RequestSetup()
    router: Router | None = None
    context: Context = msgspec.field(default_factory=Context)
