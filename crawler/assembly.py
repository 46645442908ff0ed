"""From settings to parts: what a replica is built with."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable
from pathlib import Path

from crawler.errors import UserError
from crawler.extract import ExtractPolicy
from crawler.fetch import Fetcher, FetchSettings
from crawler.links import LinkFilter
from crawler.page import LinkKind
from crawler.pages import PageBuilder
from crawler.replica import Parts
from crawler.scope import Scope
from crawler.settings import CrawlSettings, ReplicaSettings
from crawler.sinks import ArchiveSettings, Archive
from crawler.turns import TurnSettings
from frontier.peers import new_replica_id
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy

Scorer = Callable[[str, int, LinkKind], float]
"""(url, depth, kind of the link) -> priority; higher is fetched earlier."""


def assemble(crawl: str, settings: CrawlSettings, local: ReplicaSettings) -> Parts:
    """Raises UserError for settings that name what cannot be had."""
    replica = new_replica_id(socket.gethostname().partition(".")[0])
    return Parts(
        replica=replica,
        sink=Archive(archive_settings(crawl, replica, settings, local.out)),
        fetcher=Fetcher(fetch_settings(settings, local.concurrency)),
        builder=PageBuilder(
            ExtractPolicy(obey_nofollow=settings.scope.nofollow, max_links=settings.limits.max_links),
            LinkFilter(scope(settings), scorer(settings.frontier.scorer)),
            settings.limits.max_decoded,
        ),
        turns=turn_settings(settings),
    )


def breadth_first(url: str, depth: int, kind: LinkKind) -> float:
    """The default scorer: nearer to a seed is earlier."""
    return -float(depth)


def scorer(name: str) -> Scorer:
    """The scorer at the import path `name` ("module:function"), or the default for an empty name."""
    if not name:
        return breadth_first
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"scorer {name!r} cannot be imported ({error}); write it as module:function") from error
    if not callable(found):
        raise UserError(f"scorer {name!r} is not a function")
    return found  # type: ignore[no-any-return]


def turn_settings(settings: CrawlSettings) -> TurnSettings:
    polite = settings.politeness
    return TurnSettings(
        delay=DelayPolicy(
            min_delay_s=polite.delay,
            crawl_delay_cap_s=polite.crawl_delay_cap,
            response_share=polite.response_share if polite.delay else 0.0,
            response_share_cap_s=polite.response_share_cap,
        ),
        backoff=BackoffPolicy(
            base_s=polite.backoff_base, max_s=polite.backoff_max, forgive_after_s=polite.backoff_forgiven
        ),
        tries=polite.tries,
    )
