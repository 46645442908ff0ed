"""Notes on standard error about domains and reasons that a crawl does not know: they are often typing errors."""

from __future__ import annotations

from collections.abc import Iterable

from crawler.cli.completion import REASONS
from crawler.cli.terminal import Terminal
from crawler.errors import closest
from crawler.observe import summary
from frontier.clock import ServerClock, SystemClock, crawl_ms
from frontier.control import Control
from frontier.counters import Counters
from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.lookup import UrlLookup
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import command
from frontier.store import RedisStore

AT_ONCE = 500
"""Domains that one call asks for."""


def note(text: str) -> None:
    """Print a note on standard error."""
    Terminal(stderr=True).tell(f"note: {text}")


async def unknown_domain(store: RedisStore, crawl: Crawl, domain: str) -> str:
    """Return that `crawl` has no URL of `domain`, with a similar one that it has; "" if it has one. Raises RedisAway."""
    now_ms = crawl_ms(store, crawl.keys.peers)
    clock = ServerClock(SystemClock(), now_ms)
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    if (await UrlLookup(store, frontier).domain(domain)).accepted:
        return ""
    found = await summary.take(store, crawl.keys, int(await now_ms()), "", ())
    known = [line.domain for lines in (found.busiest, found.overdue, found.resting) for line in lines]
    return f"{domain} is not known to this crawl{did_you_mean(domain, known)}"


async def unknown_domains(store: RedisStore, crawl: Crawl, domains: Iterable[str]) -> list[str]:
    """Return those of `domains` of which `crawl` has no URL and has not forgotten any. Raises RedisAway."""
    control = Control(store, crawl.keys)
    await control.refresh()
    asked = [domain for domain in domains if not control.rules.is_forgotten(domain)]
    shards = crawl.keys.shards
    counts: list[object] = []
    for at in range(0, len(asked), AT_ONCE):
        keys = [shards[shard_of(domain, len(shards))].domain(domain) for domain in asked[at : at + AT_ONCE]]
        counts += await store.send([command("HGET", key, "accepted") for key in keys])
    return [domain for domain, count in zip(asked, counts, strict=True) if not count]


async def unknown_reason(store: RedisStore, crawl: Crawl, reason: str) -> str:
    """Return that no URL of `crawl` has failed for `reason`, with a similar one; "" if one has. Raises RedisAway."""
    counts = await Counters(store, crawl.keys).counts()
    seen = {name.partition(":")[2] for name in counts.reasons if name.startswith(("dead:", "denied:"))}
    if reason in seen:
        return ""
    return f"no URL has the reason {reason!r}{did_you_mean(reason, seen if reason in REASONS else [*seen, *REASONS])}"


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """Return a question in parentheses for the closest of `known`, or "" if none is close to what was typed."""
    near = closest(typed, (one for one in known if one != typed))
    return f" (did you mean {near[0]}?)" if near else ""
