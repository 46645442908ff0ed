"""The frontier: which URLs are to be fetched, and which replica may fetch them. It works without the crawler.

In data-flow order:

- `urls` and `domains` give each URL its canonical form, its domain and its shard.
- `peers`: each replica learns the roster of an epoch, which assigns the shards to the replicas in it. `clock` keeps the
  crawl time that they share.
- `queue` pushes, leases, settles and releases URLs with the scripts in `lua/` of these names. URLs of a domain are leased
  by priority, which the caller has computed (`crawler.scope.scope`). `entries` defines how Redis stores a queued
  URL, `settle` has leases and how their URLs ended, and `packing` compresses the tails of long queues.
- `known_pages` are visited again: `lua/visits.lua` plans their visits and queues them.
- Faults: `recent_writes` keeps what may have to be repeated after a restart of the server. Links to shards whose nodes are
  away go to `outboxes`. `shards` marks each shard with its crawl, finds shards that have lost their data, and knows the
  node of each. `repair` restores them.
- Shared by replicas: `budget` divides the page limit, and `reservations` allows single requests to a domain that another
  replica has leased.
- Commands of operators: `crawls`, `control`, `dead_letters`, `forget`, and `reshard`, which copies what `shard_contents`
  lists.
- Read-only: `counters` of all shards, and whether the crawl has ended; `lookup` of one URL or domain.
- Redis: `store` is the interface, `connection` one server, `cluster` many, and `redis_url` how they are named. `scripts`
  loads the scripts, and `keys` builds the keys. `errors` has all exceptions.

The names that other programs need most can be imported from here. They are loaded when they are used, so that a command
that needs none of them starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frontier.clock import ServerClock as ServerClock
    from frontier.clock import SystemClock as SystemClock
    from frontier.counters import Counters as Counters
    from frontier.crawls import Crawl as Crawl
    from frontier.crawls import create_crawl as create_crawl
    from frontier.crawls import open_crawl as open_crawl
    from frontier.entries import Entry as Entry
    from frontier.peers import PeerLoop as PeerLoop
    from frontier.peers import PeerSettings as PeerSettings
    from frontier.peers import View as View
    from frontier.queue import Frontier as Frontier
    from frontier.queue import FrontierSettings as FrontierSettings
    from frontier.settle import Lease as Lease
    from frontier.settle import Settlement as Settlement
    from frontier.store import RedisStore as RedisStore
    from frontier.store import connect as connect
    from frontier.urls import canonicalize as canonicalize

_MODULES = {
    **dict.fromkeys(("ServerClock", "SystemClock"), "clock"),
    "Counters": "counters",
    **dict.fromkeys(("Crawl", "create_crawl", "open_crawl"), "crawls"),
    "Entry": "entries",
    **dict.fromkeys(("PeerLoop", "PeerSettings", "View"), "peers"),
    **dict.fromkeys(("Frontier", "FrontierSettings"), "queue"),
    **dict.fromkeys(("Lease", "Settlement"), "settle"),
    **dict.fromkeys(("RedisStore", "connect"), "store"),
    "canonicalize": "urls",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(f"frontier.{_MODULES[name]}"), name)
