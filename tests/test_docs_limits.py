"""docs/reference/limits.md has each limit, with the value that it has in the code."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest

from crawler import processes
from crawler.fetch import cookies, library_privates, proxy, resolver, response, tls
from crawler.fetch.client import FetchSettings
from crawler.fetch.resolver import ResolverSettings
from crawler.observe.web import routes
from crawler.parse import child, coding
from crawler.scope import scope
from crawler.scope.scope import TrapPolicy
from crawler.settings.load import CrawlSettings
from crawler.worker import commit, extra, leases, page, worker
from frontier.urls import UrlRules

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "limits.md").read_text()
NAMED = re.findall(r"`([\w.]+)`(\]\(settings\.md\))?: (?:one for each of )?([\d,]*\d)( [KM]iB)?", PAGE)
"""Each limit of the page: its name, the link of a setting, its number and unit."""

UNITS = {"": 1, " KiB": 1 << 10, " MiB": 1 << 20}

MODULES = (
    *(commit, coding, cookies, processes, library_privates, worker, extra),
    *(leases, scope, child, page, resolver, response, proxy, tls),
    routes,
)
FIELDS = (FetchSettings("bot"), ResolverSettings())


def in_code(name: str, is_setting: bool) -> set[object]:
    """The values that the limit `name` has in the code."""
    if is_setting:
        return {attrgetter(name)(CrawlSettings())}
    if "." in name:
        owner, field = name.split(".")
        return {getattr({"TrapPolicy": TrapPolicy(), "UrlRules": UrlRules()}[owner], field)}
    return {getattr(place, name) for place in (*MODULES, *FIELDS) if hasattr(place, name)}


@pytest.mark.parametrize(("name", "link", "number", "unit"), NAMED)
def test_a_limit_on_the_page_is_the_one_of_the_code(name: str, link: str, number: str, unit: str) -> None:
    assert in_code(name, bool(link)) == {int(number.replace(",", "")) * UNITS[unit]}


def test_the_limits_of_the_modules_are_on_the_page() -> None:
    limits = {name for module in MODULES for name in vars(module) if re.match("MAX_|BACKLOG|HANDED_ON", name)}
    assert len(limits) > 10
    assert limits - {name for name, *_ in NAMED} == set()
