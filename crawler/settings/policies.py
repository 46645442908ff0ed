"""From settings to values: what a replica goes by, and a command that judges as a replica would."""

from __future__ import annotations

import importlib

import msgspec

from crawler.errors import UserError
from crawler.fetch.address_policy import AddressPolicy, HostMap
from crawler.scope.link_filter import Scorer, breadth_first
from crawler.scope.scope import Scope
from crawler.settings.model import CrawlSettings
from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize
from politeness.address_rate_limit import RateLimitPolicy
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy, ThrottlePolicy
from politeness.policy import PolitenessPolicy
from politeness.robots_fetch import RobotsPolicy

DOMAINS_WORTH = 10
"""An address may be asked as often as this many domains, unless the settings say a rate."""


def check(settings: CrawlSettings) -> None:
    """Raises UserError or BadInput for values that are of the right type and that no replica could use all the same. Code
    that the settings name is not looked for: it need not be installed here."""
    scope(settings)
    addresses(settings)
    host_map(settings)
    refetched(settings)
    politeness_policy(settings)


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


def addresses(settings: CrawlSettings) -> AddressPolicy:
    """What may be connected to. Raises UserError for a network or port that is none."""
    fetch = settings.fetch
    return AddressPolicy.of(fetch.allow, fetch.allow_private, fetch.ports)


def host_map(settings: CrawlSettings) -> HostMap:
    """Where to connect in place of some hosts' own addresses. Raises UserError for a malformed entry."""
    return HostMap.parse(settings.fetch.host_map)


def politeness_policy(settings: CrawlSettings) -> PolitenessPolicy:
    """How the crawl treats sites."""
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
    return PolitenessPolicy(
        throttle=ThrottlePolicy(delay, backoff, polite.parallel),
        robots=RobotsPolicy(
            max_age_s=polite.robots_max_age, retry=msgspec.structs.replace(backoff, give_up_after=None)
        ),
        tries=polite.tries,
        rate_limit=rate_limit_policy(settings),
    )


def rate_limit_policy(settings: CrawlSettings) -> RateLimitPolicy | None:
    """The rate that the domains behind one address share, or None for no limit."""
    polite = settings.politeness
    if polite.address_rate_limit == "off" or (polite.address_rate is None and not polite.delay):
        return None
    rate = polite.address_rate or DOMAINS_WORTH / polite.delay
    return RateLimitPolicy(rate, polite.address_burst, shared=polite.address_rate_limit == "cluster")


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
