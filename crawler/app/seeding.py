"""Puts seeds into the queue of a crawl."""

from __future__ import annotations

from collections.abc import Sequence

from crawler.app.requeue import requeue_urls
from crawler.page import LinkKind
from crawler.scope.seeds import Seed
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import scorer
from frontier.control import Control
from frontier.crawls import Crawl, crawl_clock
from frontier.entries import Entry, PushMode
from frontier.queue import Frontier, FrontierSettings, PushReply
from frontier.store import RedisStore

SEED_CHUNK = 5_000
"""Seeds pushed in one round trip."""


async def queue_seeds(
    store: RedisStore, crawl: Crawl, seeds: Sequence[Seed], settings: CrawlSettings, mode: PushMode = "new"
) -> PushReply:
    """Queue `seeds` at depth 0, as `mode` says; in mode "again" those that are dead letters as `crawler dead requeue` does.
    `settings`: those of the crawl. Raises UserError if their scorer cannot be loaded."""
    clock = await crawl_clock(store, crawl)
    limits = FrontierSettings(
        domain_cap=settings.limits.domain_cap,
        replicas_ack=settings.frontier.replicas_ack,
        pack_above=settings.frontier.pack_above,
    )
    frontier = Frontier(store, crawl.keys, clock, limits, crawl.fingerprint_key)
    score = scorer(settings.frontier.scorer)
    entries = [
        Entry(
            seed.url.href,
            seed.url.domain,
            score(seed.url.href, 0, LinkKind.ANCHOR) if seed.priority is None else seed.priority,
            mode=mode,
        )
        for seed in seeds
    ]
    requeued = await requeue_urls(store, crawl, {entry.url for entry in entries}) if mode == "again" else set()
    entries = [entry for entry in entries if entry.url not in requeued]
    parts = [await frontier.push(entries[at : at + SEED_CHUNK]) for at in range(0, len(entries), SEED_CHUNK)]
    await Control(store, crawl.keys).seeded()
    accepted, seen, capped, outside = (
        sum(getattr(part, name) for part in parts) for name in ("accepted", "seen", "capped", "outside")
    )
    return PushReply(accepted + len(requeued), seen, capped, outside)
