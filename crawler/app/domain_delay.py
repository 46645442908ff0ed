"""The delay that an operator sets for a domain: `crawler delay`."""

from __future__ import annotations

import contextlib

from crawler.settings.load import CrawlSettings
from crawler.settings.policies import politeness_policy
from frontier.control import Control
from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.errors import RedisAway
from frontier.scripts import command
from frontier.store import RedisStore
from politeness.delay import delay_ms, with_set_delay
from politeness.robots_cache import longest_asked_delay


async def set_domain_delay(store: RedisStore, crawl: Crawl, domain: str, seconds: float | None) -> None:
    """Set the delay of `domain`, None for that of the crawl. The stored delay, which commands show and the next lease uses,
    is replaced at once. Otherwise it would be that of the last response until the next one. Raises RedisAway, and has then
    changed nothing."""
    control = Control(store, crawl.keys)
    robots = crawl.keys.shards[shard_of(domain, crawl.shards)].robots(domain)
    (records,) = await store.send([command("HVALS", robots)])
    await control.set_delay(domain, seconds)
    policy = politeness_policy(CrawlSettings.from_json(crawl.settings)).throttle.delay
    shown_ms = delay_ms(with_set_delay(policy, seconds), longest_asked_delay(records), None, 0.0)
    with contextlib.suppress(RedisAway):  # the delay is set, and shown after the next response
        await control.show_delay(domain, shown_ms)
