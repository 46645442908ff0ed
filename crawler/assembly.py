"""From settings to parts: what a replica is built with."""

from __future__ import annotations

import importlib
import socket
from dataclasses import replace

from crawler.addresses import AddressPolicy, HostMap
from crawler.engine import Changed, Manners, Parts
from crawler.errors import UserError
from crawler.extract import ExtractPolicy
from crawler.fetch import Fetcher, FetchSettings
from crawler.hooks import SINKS, PageHooks, load
from crawler.links import LinkFilter, Scorer, breadth_first
from crawler.pages import BuildSettings, PageBuilder
from crawler.recent import RecentUrls
from crawler.rests import RestPolicy
from crawler.scope import Scope
from crawler.settings import CrawlSettings, ReplicaSettings
from crawler.sinks import Archive, ArchiveSettings, Keeper, SinkContext, Tee
from crawler.traps import TrapPolicy
from frontier.clock import SystemClock
from frontier.errors import BadUrl
from frontier.peers import new_replica_id
from frontier.urls import UrlRules, canonicalize
from politeness.address_gate import GatePolicy
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy
from politeness.robots_fetch import RobotsPolicy

RECENT_URLS = 200_000
"""URLs kept to spare Redis questions: about 30 MB of typical ones."""

DOMAINS_WORTH = 10
"""An address may be asked as often as this many domains, unless the settings say a rate."""


def assemble(crawl: str, settings: CrawlSettings, local: ReplicaSettings) -> Parts:
    """Raises UserError for settings that name what cannot be had."""
    replica = new_replica_id(socket.gethostname().partition(".")[0])
    recent = RecentUrls(RECENT_URLS)
    hooks = PageHooks.named(settings.archive.on_page)
    return Parts(
        replica=replica,
        sink=sink(crawl, replica, settings, local, hooks),
        hooks=hooks,
        refetched=refetched(settings),
        fetcher=Fetcher(fetch_settings(settings), SystemClock()),
        builder=PageBuilder(build_settings(settings), link_filter(settings, recent)),
        manners=manners(settings),
        recent=recent,
        rules=url_rules(settings),
    )


def changed(settings: CrawlSettings, recent: RecentUrls) -> Changed:
    """What a running replica needs to go by `settings` from now on. Raises as `check` does."""
    return Changed(settings, manners(settings), build_settings(settings), link_filter(settings, recent))


def check(settings: CrawlSettings) -> None:
    """Raises UserError or BadInput for values that are of the right type and that no replica could use all the same. Code
    that the settings name is not looked for: it need not be installed here."""
    scope(settings)
    fetch_settings(settings)
    refetched(settings)
    manners(settings)


def link_filter(settings: CrawlSettings, recent: RecentUrls) -> LinkFilter:
    """Which links are followed, and how early."""
    return LinkFilter(scope(settings), TrapPolicy(), scorer(settings.frontier.scorer), recent)


def url_rules(settings: CrawlSettings) -> UrlRules:
    """What may be changed about a URL: the same on all replicas."""
    return UrlRules(settings.scope.strip_params, settings.scope.session_params)


def refetched(settings: CrawlSettings) -> frozenset[str]:
    """The URLs that the clock has fetched again."""
    rules = url_rules(settings)
    try:
        return frozenset(canonicalize(duty.sitemap, None, rules).href for duty in settings.schedule if duty.sitemap)
    except BadUrl as error:
        raise UserError(f"schedule: sitemap: {error}") from error


def build_settings(settings: CrawlSettings) -> BuildSettings:
    """How pages are read."""
    extraction = ExtractPolicy(
        obey_nofollow=settings.scope.nofollow,
        user_agent=settings.fetch.user_agent,
        max_links=settings.limits.max_links,
        max_bytes=settings.limits.max_parsed,
        rules=url_rules(settings),
    )
    return BuildSettings(extraction, settings.limits.max_decoded, settings.scope.sitemaps, settings.archive.via)


def scope(settings: CrawlSettings) -> Scope:
    named = settings.scope
    return Scope.of(
        kind=named.kind,
        names=named.domains,
        include=named.include,
        exclude=named.exclude,
        max_depth=named.max_depth,
        max_hops=named.max_hops,
    )


def fetch_settings(settings: CrawlSettings) -> FetchSettings:
    fetch = settings.fetch
    return FetchSettings(
        user_agent=fetch.user_agent_header,
        max_body_bytes=settings.limits.max_body,
        connect_timeout_s=fetch.connect_timeout,
        read_timeout_s=fetch.read_timeout,
        total_timeout_s=fetch.timeout,
        verify_tls=fetch.verify_tls,
        parallel=settings.politeness.parallel,
        addresses=AddressPolicy.of(fetch.allow, fetch.allow_private, fetch.ports),
        host_map=HostMap.parse(fetch.host_map),
    )


def sink(crawl: str, replica: str, settings: CrawlSettings, local: ReplicaSettings, hooks: PageHooks) -> Keeper:
    """The archive, and the further sinks that the settings name. Raises UserError if one cannot be had."""
    archive = Archive(archive_settings(crawl, replica, settings, local), hooks=hooks)
    if not settings.archive.sinks:
        return archive
    context = SinkContext(local.out, crawl, replica)
    return Tee(archive, [load(name, SINKS)(context) for name in settings.archive.sinks])


def archive_settings(crawl: str, replica: str, settings: CrawlSettings, local: ReplicaSettings) -> ArchiveSettings:
    archive = settings.archive
    return ArchiveSettings(
        folder=local.out,
        crawl=crawl,
        replica=replica,
        warc=archive.warc,
        pages=archive.pages,
        max_bytes=archive.max_bytes,
        max_age_s=archive.max_age,
        fsync=archive.fsync,
        revisits=archive.revisits,
        compression=archive.compression,
        links=archive.links,
        noarchive=archive.noarchive,
        metadata=archive.metadata,
        text=archive.text,
        structured=archive.structured,
        simhash=archive.simhash,
        near_duplicates=archive.near_duplicates,
        soft_404=archive.soft_404,
        near_remembered=archive.near_remembered,
        parquet=archive.parquet,
        upload=archive.upload,
        keep_local=archive.keep_local,
        index=archive.index,
        refetched=refetched(settings),
        about=(("http-header-user-agent", settings.fetch.user_agent_header),),
    )


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


def manners(settings: CrawlSettings) -> Manners:
    polite = settings.politeness
    backoff = BackoffPolicy(
        base_s=polite.backoff_base, max_s=polite.backoff_max, forgive_after_s=polite.backoff_forgiven
    )
    delay = DelayPolicy(
        min_delay_s=polite.delay,
        crawl_delay_cap_s=polite.crawl_delay_cap,
        above_cap=polite.crawl_delay_above_cap,
        # Who sets the delay to 0 owns the site, and a share of the response time is a delay.
        response_share=polite.response_share if polite.delay else 0.0,
        response_share_cap_s=polite.response_share_cap,
    )
    return Manners(
        rests=RestPolicy(delay, backoff, polite.parallel),
        robots=RobotsPolicy(max_age_s=polite.robots_max_age, retry=replace(backoff, give_up_after=None)),
        tries=polite.tries,
        gate=gate_policy(settings),
    )


def gate_policy(settings: CrawlSettings) -> GatePolicy | None:
    """The rate that the domains behind one address share, or None for no limit."""
    polite = settings.politeness
    if polite.address_gate == "off" or (polite.address_rate is None and not polite.delay):
        return None
    rate = polite.address_rate or DOMAINS_WORTH / polite.delay
    return GatePolicy(rate, polite.address_burst, shared=polite.address_gate == "cluster")
