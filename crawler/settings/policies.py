"""Turns settings into the values that replicas use, and commands that make the same decisions as a replica."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from crawler.errors import UserError
from crawler.fetch.address_policy import AddressPolicy, HostMap, judge_address
from crawler.hooks import load
from crawler.scope.extract_rules import ExtractRule, declared
from crawler.scope.scope import Scope, Scorer, breadth_first
from crawler.settings.load import GLOB, CrawlSettings, Settings, at, raise_for
from frontier.urls import UrlPattern, UrlRules
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy, ThrottlePolicy
from politeness.policy import PolitenessPolicy, UsagePolicy
from politeness.rate_limit import RateLimitPolicy
from politeness.robots_fetch import RobotsPolicy

DOMAINS_WORTH = 10
"""The default rate of a network address, in domains: it gets as many requests as this many domains may."""

SCORERS = "peercrawl.scorers"
"""Entry points of installed packages that offer scorers."""


def check(settings: CrawlSettings) -> None:
    """Raises UserError for settings that do not work together, and for networks of `--allow`. Each other value has been
    checked when it was loaded. Code that the settings name is not imported, because it need not be installed on this
    machine (see `crawler.app.crawl_settings`)."""
    raise_for(unusable(settings))
    addresses(settings)


def unusable(settings: CrawlSettings) -> Iterator[str]:
    """Return one line for each setting that does not work with the others."""
    kind = settings.scope.kind
    if kind in ("domains", "hosts") and not settings.scope.domains:
        example = '["www.example.org"]' if kind == "hosts" else '["example.org"]'
        reason = f'"{kind}" needs the list scope.domains, such as domains = {example}, or every link is out of scope'
        yield located(settings, "scope.kind", reason)
    for pattern in filter(_is_in_every_url, settings.scope.exclude):
        yield located(
            settings, "scope.exclude", f"{pattern!r} is found in every URL, so nothing would be fetched{GLOB}"
        )
    if settings.extract and not settings.archive.pages:
        yield located(settings, "extract", "needs archive.pages = true: items are written in the lines of pages")
    try:
        declared(extract_rules(settings))
    except UserError as error:
        yield located(settings, "extract", str(error))
    if settings.handlers.app and not settings.archive.pages:
        yield located(settings, "handlers.app", "needs archive.pages = true: items are written in the lines of pages")


_LOOKS_AHEAD = re.compile(r"\(\?|\(\*|\$|\\[bBzZKG]|[*+?}]\+")
"""Parts of a pattern that may be found in the beginning of a URL, but not in the whole."""


def _is_in_every_url(pattern: str) -> bool:
    """Whether `pattern` is certainly found in each URL, because it is found in how all of them begin."""
    return not _LOOKS_AHEAD.search(pattern) and all(map(UrlPattern(pattern).is_in, ("http://", "https://")))


def located(settings: CrawlSettings, name: str, problem: str) -> str:
    """Return the `problem` of the setting `name`, with the place where it was set if `settings` know it."""
    return at(settings.place_of(name) if isinstance(settings, Settings) else "", f"{name}: {problem}")


def url_rules(settings: CrawlSettings) -> UrlRules:
    """Which query and session parameters are removed from URLs. The same on all replicas."""
    return UrlRules(settings.scope.strip_params, settings.scope.session_params)


def scope(settings: CrawlSettings) -> Scope:
    table = settings.scope
    return Scope.of(
        kind=table.kind,
        names=table.domains,
        include=table.include,
        exclude=table.exclude,
        max_depth=table.max_depth,
        max_hops=table.max_hops,
    )


def addresses(settings: CrawlSettings) -> AddressPolicy:
    """Which addresses and ports may be connected to. Raises UserError for an invalid network or port."""
    fetch = settings.fetch
    return AddressPolicy.of(fetch.allow, fetch.allow_private, fetch.ports)


def not_allowed(origin: str, settings: CrawlSettings) -> list[str]:
    """Why the settings forbid requests to `origin`, as far as this is known without the DNS. Empty if they do not."""
    parts, policy = urlsplit(origin), addresses(settings)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if HostMap.parse(settings.fetch.host_map).find(host) is not None:
        return []
    reasons = [] if port in policy.ports else [f"port {port} is not in fetch.ports"]
    address = judge_address(host, policy)
    if address not in (None, "not_an_address"):
        reasons.append(f"fetch.allow does not list {host} ({address})")
    return reasons


def extract_rules(settings: CrawlSettings) -> tuple[ExtractRule, ...]:
    return tuple(table.rule() for table in settings.extract)


def politeness_policy(settings: CrawlSettings) -> PolitenessPolicy:
    polite = settings.politeness
    backoff = BackoffPolicy(
        base_s=polite.backoff_base, max_s=polite.backoff_max, forgive_after_s=polite.backoff_forgiven
    )
    delay = DelayPolicy(
        min_delay_s=polite.delay,
        crawl_delay_cap_s=polite.crawl_delay_cap,
        # A delay of 0 is for your own sites. A share of the response time would still be a delay, so it is off too.
        response_share=polite.response_share if polite.delay else 0.0,
        response_share_cap_s=polite.response_share_cap,
    )
    return PolitenessPolicy(
        throttle=ThrottlePolicy(delay, backoff, 1 if polite.shared else polite.parallel),
        robots=RobotsPolicy(
            max_age_s=max(polite.robots_max_age, _least_age_s(polite.delay)),
            min_age_s=max(RobotsPolicy().min_age_s, _least_age_s(polite.delay)),
            retry=msgspec.structs.replace(backoff, give_up_after=None),
        ),
        tries=polite.tries,
        rate_limit=rate_limit_policy(settings),
        usage=usage_policy(settings),
        shares_delays=polite.shared,
    )


NO_LIMIT, LOWEST_RATE = 1e6, 1e-9
"""Requests per second. An interval of less than a microsecond cannot be computed with milliseconds since 1970."""


def _least_age_s(delay_s: float) -> float:
    """How old a robots.txt may get: less than the delay before the first page, and it would be fetched again instead."""
    return max(1.0, 2 * delay_s)


def usage_policy(settings: CrawlSettings) -> UsagePolicy:
    purpose, mode = frozenset(settings.politeness.purpose), settings.politeness.tdmrep
    return UsagePolicy(purpose, mode == "always" or (mode == "auto" and bool(purpose - {"search"})))


def rate_limit_policy(settings: CrawlSettings) -> RateLimitPolicy | None:
    """The rate limit that all domains at one network address share, or None for no limit."""
    polite = settings.politeness
    if polite.address_rate_limit == "off" or (polite.address_rate is None and not polite.delay):
        return None
    rate = polite.address_rate or DOMAINS_WORTH / polite.delay
    if rate > NO_LIMIT:
        return None
    rate = max(rate, LOWEST_RATE)
    return RateLimitPolicy(rate, polite.address_burst, shared=polite.address_rate_limit == "crawl")


def scorer(name: str) -> Scorer:
    """The scorer `name` (`crawler.hooks.load`), or the default for "". Raises UserError if it cannot be loaded."""
    return load(name, SCORERS) if name else breadth_first
