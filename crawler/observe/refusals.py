"""Says why a URL was never queued, what allows one that the settings deny, and what its owner says about its use. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from crawler.settings.load import CrawlSettings
from crawler.settings.policies import not_allowed
from frontier.urls import Url
from politeness.robots_cache import OriginRobots
from politeness.usage_preferences import NO_USAGE, Usage


def why_unseen(url: Url, accepted: int, settings: CrawlSettings, in_scope: str, trap: str) -> str:
    """Return why `url` was never queued. `accepted`: URLs of its domain in the crawl; `in_scope`: whether it is in scope;
    `trap`: why it looks like a trap, or ""."""
    if in_scope.startswith("no"):
        return f"out of scope ({_out_of_scope(in_scope.partition(': ')[2], settings)})"
    if trap:
        return f"looks like a trap ({trap})"
    forbidden = not_allowed(url.origin, settings)
    also = f"; it would be denied, because {', and '.join(forbidden)}" if forbidden else ""
    if settings.scope.kind == "seeds" and not accepted:
        return (
            f"no seed is on its domain, {url.domain}, and links to other domains are not followed with "
            f'scope.kind = "seeds"{also}'
        )
    cap = settings.limits.domain_cap
    if 0 < cap <= accepted:
        return f"{url.domain} has as many URLs as limits.domain_cap allows; links to others are dropped{also}"
    return f"no page that was crawled links to it, or a limit dropped the link{also}"


def _out_of_scope(reason: str, settings: CrawlSettings) -> str:
    """Return `reason`, with the setting that decides if it is that the URL is outside."""
    if reason != "outside":
        return reason
    return f'outside: scope.domains does not list its host, and scope.kind is "{settings.scope.kind}"'


def usage_said(line: Mapping[str, Any] | None, robots: OriginRobots | None, url: str) -> Usage:
    """Return what the owner says about the use of `url`: as in its JSON `line`, otherwise as far as it is known from
    `robots`, the files of its site."""
    if line is not None and line.get("usage_statements"):
        return Usage.recorded(line.get("usage") or "", line["usage_statements"], line.get("tdm_policy") or "")
    if robots is None or (robots.rules is not None and not robots.rules.decide(url).allowed):
        return NO_USAGE
    return robots.usage(url).combined()


def remedy(reason: str, origin: str = "") -> str:
    """Return what to do about URLs that the settings deny for `reason`, for that of `origin` if it is given. "" if it is
    another reason."""
    port = urlsplit(origin).port or "N"
    option = {"forbidden_port": f"--port {port}", "forbidden_address": "--allow NET"}.get(reason)
    if option is None:
        return ""
    return (
        f"to allow it, repeat the command with {option} --apply-settings, then `crawler dead requeue --reason {reason}`"
    )
