"""Has a domain requested again at once, for an operator who knows that its site works again: `crawler retry`."""

from __future__ import annotations

from crawler.settings.load import CrawlSettings
from crawler.settings.policies import politeness_policy
from frontier.control import RetryReply, retry_now
from frontier.crawls import Crawl, crawl_clock
from frontier.domains import shard_of
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import command
from frontier.store import RedisStore
from politeness.delay import delay_ms
from politeness.robots_cache import RobotsCache


async def retry_domain(store: RedisStore, crawl: Crawl, domain: str) -> RetryReply:
    """End the backoff of `domain`, and have its waiting URLs and each robots.txt that was unreachable requested now. Its
    delay stays. Raises RedisAway."""
    clock = await crawl_clock(store, crawl)
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    robots = crawl.keys.shards[shard_of(domain, crawl.shards)].robots(domain)
    (origins,) = await store.send([command("HKEYS", robots)])
    # First, or a URL could be postponed again because of the old record.
    await RobotsCache(store, frontier, "").forget_failures({one.decode(): domain for one in origins}, clock.now_ms())
    policy = politeness_policy(CrawlSettings.from_json(crawl.settings)).throttle.delay
    return await retry_now(store, crawl.keys, domain, clock.now_ms(), delay_ms(policy, None, None, 0.0))
