"""What becomes of a URL without a request, by its robots.txt."""

from __future__ import annotations

import pytest

from crawler.page import Outcome
from crawler.worker.verdict import NO_SUCH_HOST_TRIES, UrlResult, verdict_by_robots
from politeness.robots_cache import OriginRobots
from politeness.robots_fetch import RobotsRecord
from politeness.robots_match import Rules
from politeness.tdmrep import TdmFile

URL = "https://example.com/private/page"


@pytest.mark.parametrize(
    ("reason", "failures", "expected"),
    [
        ("timeout", 1, UrlResult(Outcome.RETRY, "robots_unreachable")),
        ("timeout", 4, UrlResult(Outcome.RETRY, "robots_unreachable")),
        ("timeout", 5, UrlResult(Outcome.DEAD, "robots_unreachable")),
        ("http_503", 5, UrlResult(Outcome.DEAD, "robots_unreachable")),
        ("no_such_host", NO_SUCH_HOST_TRIES - 1, UrlResult(Outcome.RETRY, "no_such_host")),
        ("no_such_host", NO_SUCH_HOST_TRIES, UrlResult(Outcome.DEAD, "no_such_host")),
        ("forbidden_address", 1, UrlResult(Outcome.DENIED, "forbidden_address")),
    ],
)
def test_a_url_waits_for_an_unreachable_robots_txt_as_often_as_for_a_page(
    reason: str, failures: int, expected: UrlResult
) -> None:
    record = RobotsRecord("disallow", reason, None, 0, 0, failures=failures)
    assert verdict_by_robots(URL, OriginRobots(record, None), 5) == expected


def test_a_url_is_requested_only_if_rules_and_delay_allow_it() -> None:
    record = RobotsRecord("rules", "ok", 200, 0, 0)
    denied, allowed = (
        Rules.parse(f"User-agent: *\nDisallow: {path}".encode(), "bot") for path in ("/private", "/other")
    )
    assert verdict_by_robots(URL, OriginRobots(record, denied), 5) == UrlResult(Outcome.DENIED, "robots")
    assert verdict_by_robots(URL, OriginRobots(record, allowed), 5) is None


def test_what_the_purpose_may_not_have_is_not_requested() -> None:
    body = b"User-agent: *\nDisallow: /no\nContent-Usage: /private/ search=n\n"
    record = RobotsRecord("rules", "ok", 200, 1, 2)
    known = OriginRobots(record, Rules.parse(body, "peercrawl"))
    assert verdict_by_robots(URL, known, 5) is None
    assert verdict_by_robots(URL, known, 5, {"train-ai"}) is None
    assert verdict_by_robots(URL, known, 5, {"train-ai", "search"}) == UrlResult(Outcome.DENIED, "usage")
    assert verdict_by_robots("https://example.com/x", known, 5, {"search"}) is None
    assert verdict_by_robots("https://example.com/no", known, 5, {"search"}) == UrlResult(Outcome.DENIED, "robots")


def test_an_unreachable_tdmrep_json_is_not_taken_for_permission() -> None:
    def verdict(failures: int, purpose: set[str], tdm: bytes | None = None) -> UrlResult | None:
        record = RobotsRecord("allow", "http_404", 404, 1, 2, tdm=tdm, tdm_failures=failures)
        return verdict_by_robots(URL, OriginRobots(record, None), 5, purpose)

    assert verdict(1, {"train-ai"}) == UrlResult(Outcome.RETRY, "usage_unreachable")
    assert verdict(4, {"ai-use", "search"}) == UrlResult(Outcome.RETRY, "usage_unreachable")
    assert verdict(5, {"train-ai"}) == UrlResult(Outcome.DEAD, "usage_unreachable")
    assert verdict(1, {"search"}) is None  # about which the file says nothing
    assert verdict(1, set()) is None
    assert verdict(1, {"train-ai"}, TdmFile(()).pack()) is None  # the last copy stays in force


def test_a_reservation_in_tdmrep_json_is_known_before_the_request() -> None:
    file = TdmFile.parse(b'[{"location":"/private/","tdm-reservation":1}]')
    known = OriginRobots(RobotsRecord("allow", "http_404", 404, 1, 2), None, tdm=file)
    assert verdict_by_robots(URL, known, 5, {"search"}) is None
    assert verdict_by_robots(URL, known, 5, {"train-ai"}) == UrlResult(Outcome.DENIED, "usage")
