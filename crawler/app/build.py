"""Builds the parts of a replica that depend on the settings."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import msgspec

from crawler.app.archive_setup import Fields, archive_settings
from crawler.app.request_setup import RequestSetup
from crawler.app.seams import Seams
from crawler.events import Events
from crawler.fetch import fd_limit, library_patches
from crawler.fetch.address_policy import HostMap
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.handlers.lifecycle import Context, app_settings
from crawler.handlers.router import Router, load_router
from crawler.handlers.runner import HandlerRunner, RunnerSettings
from crawler.hooks import SINKS, PageHooks, load
from crawler.parse.html import ExtractPolicy
from crawler.parse.offload import DocumentOffloader
from crawler.scope.link_filter import LinkFilter
from crawler.scope.next_visit import parse_rules
from crawler.scope.recent_urls import RecentUrls
from crawler.scope.traps import TrapPolicy
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import (
    addresses,
    extract_rules,
    scope,
    scorer,
    url_rules,
)
from crawler.settings.tables import ReplicaTable
from crawler.sinks import SinkContext
from crawler.sinks.archive import Archive
from crawler.sinks.sink import DurableSink
from crawler.sinks.tee import Tee
from crawler.sinks.types_file import save_types
from crawler.worker.content_extractor import ContentExtractor
from crawler.worker.extractor import Extractor, ExtractSettings
from crawler.worker.item_type_check import ItemTypes
from crawler.worker.next_turn import Turns
from crawler.worker.page_builder import BuildSettings, PageBuilder
from crawler.worker.page_handling import PageHandling
from crawler.worker.page_items import PageItems
from crawler.worker.runtime import Runtime
from frontier.clock import SystemClock
from frontier.crawls import Crawl, FieldTypes
from frontier.peers import new_replica_id
from frontier.queue import FrontierSettings
from frontier.store import Store

RECENT_URLS = 200_000
"""URLs that are remembered to avoid pushing them to Redis again; typical ones take about 30 MB."""


class PageRules(msgspec.Struct, frozen=True):
    """How pages are parsed, which of their links are followed, and what is extracted from them."""

    build: BuildSettings
    links: LinkFilter
    extract: ExtractSettings


def seams(
    crawl: Crawl,
    store: Store,
    settings: CrawlSettings,
    local: ReplicaTable,
    replica: str = "",
    setup: RequestSetup = RequestSetup(),
) -> Seams:
    """Return the external dependencies of a replica in production. `replica`: its id, or "" for a new one. `setup`: what
    its machine adds to requests. Raises UserError if a hook or sink in the settings cannot be loaded."""
    library_patches.install()
    replica = replica or new_id()
    clock, events = SystemClock(), Events()
    max_idle = fd_limit.raise_fd_limit(local.concurrency)
    router = load_router(settings.handlers.app) if settings.handlers.app else None
    signer, about = (setup.identity.signer, setup.identity.about) if setup.identity else (None, ())
    fetch = msgspec.structs.replace(fetch_settings(settings, max_idle), rules=setup.rules)
    return Seams(
        replica=replica,
        crawl=crawl,
        store=store,
        clock=clock,
        rng=random.Random(),
        http=Fetcher(fetch, clock, signer=signer),
        sink=sink(crawl.name, replica, settings, local, events, about),
        events=events,
        setup=setup,
        router=router,
        context=context(router, settings, crawl.name, replica),
    )


def context(router: Router | None, settings: CrawlSettings, crawl: str, replica: str) -> Context:
    """Return what the functions of `router` share in the replica `replica`. Raises UserError if `[app]` does not fit."""
    return Context(app_settings(router, settings.app) if router else None, crawl, replica)


def new_id() -> str:
    """Return an id for a replica on this machine."""
    return new_replica_id(socket.gethostname().partition(".")[0])


def page_rules(settings: CrawlSettings, recent: RecentUrls) -> PageRules:
    """Return the rules that follow from `settings`. Raises the errors of `crawler.settings.policies.check`."""
    links = ExtractPolicy(
        obey_nofollow=settings.scope.nofollow,
        user_agent=settings.fetch.user_agent,
        max_links=settings.limits.max_links,
        max_link_bytes=settings.limits.max_link_bytes,
        rules=url_rules(settings),
    )
    return PageRules(
        BuildSettings(
            links,
            settings.limits.max_decoded,
            settings.scope.sitemaps,
            settings.archive.via,
            parse_rules(settings.recrawl.rules),
        ),
        LinkFilter(scope(settings), TrapPolicy(), scorer(settings.frontier.scorer), recent),
        extraction(settings),
    )


def page_items(
    seams: Seams, runtime: Runtime, settings: CrawlSettings, out: Path, offload: DocumentOffloader
) -> PageItems:
    """Return what extracts and checks items. `out`: the output folder, where the types of their fields are written down."""
    extract, crawl = extraction(settings), seams.crawl
    types = ItemTypes(runtime, FieldTypes(seams.store, crawl.keys), lambda found: save_types(out, crawl.name, found))
    return PageItems(Extractor(extract, offload, seams.events), types, extract)


def page_handling(
    seams: Seams,
    settings: CrawlSettings,
    builder: PageBuilder,
    items: PageItems,
    contents: ContentExtractor,
    turns: Turns,
) -> PageHandling:
    """Return what has `items` and `contents` extracted from the pages of `builder`, and passes these to the handlers of
    users, if there are any."""
    limits = RunnerSettings(settings.handlers.concurrency, settings.handlers.timeout)
    runner = None if seams.router is None else HandlerRunner(seams.router, limits, seams.context)
    return PageHandling(builder, items, contents, runner, turns.handing_on, seams.events)


def extraction(settings: CrawlSettings) -> ExtractSettings:
    """Return what is extracted from pages."""
    return ExtractSettings(extract_rules(settings), settings.limits.max_decoded)


def fetch_settings(settings: CrawlSettings, max_idle: int) -> FetchSettings:
    """Return the settings for requests. `max_idle`: the most idle connections of the process."""
    fetch = settings.fetch
    return FetchSettings(
        user_agent=fetch.user_agent_header,
        max_body_bytes=settings.limits.max_body,
        connect_timeout_s=fetch.connect_timeout,
        read_timeout_s=fetch.read_timeout,
        total_timeout_s=fetch.timeout,
        max_idle=max_idle,
        verify_tls=fetch.verify_tls,
        parallel=settings.politeness.parallel,
        addresses=addresses(settings),
        host_map=HostMap.parse(settings.fetch.host_map),
    )


def sink(
    crawl: str, replica: str, settings: CrawlSettings, local: ReplicaTable, events: Events, about: Fields = ()
) -> DurableSink:
    """Return the archive, together with the additional sinks in the settings. `about`: more fields of its warcinfo records.
    Raises UserError if a sink cannot be loaded."""
    hooks = PageHooks.named(settings.archive.on_page)
    archive = Archive(archive_settings(crawl, replica, settings, local, about), hooks=hooks, events=events)
    if not settings.archive.sinks:
        return archive
    context = SinkContext(local.out, crawl, replica)
    return Tee(archive, [load(name, SINKS)(context) for name in settings.archive.sinks], events)


def frontier_settings(settings: CrawlSettings) -> FrontierSettings:
    """Return the settings of the frontier."""
    return FrontierSettings(
        lease_ms=int(settings.frontier.lease * 1000),
        batch=settings.frontier.batch,
        domain_cap=settings.limits.domain_cap,
        delay_ms=int(settings.politeness.delay * 1000),
        replicas_ack=settings.frontier.replicas_ack,
        pack_above=settings.frontier.pack_above,
        known_share=settings.recrawl.share if settings.recrawl.rules else None,
    )
