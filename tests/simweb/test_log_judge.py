"""The judge sees every planted fault, and none where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.simweb.judge import Expected, JudgeLimits, JudgeReport, Visit, judge
from tests.simweb.server import Record, RequestLog, read_log

EXPECTED = Expected(
    visits={
        "http://a.test/": Visit(200, 1, 1, 0),
        "http://a.test/busy": Visit(200, 2, 2, 1),
        "http://b.test/": Visit(200, 1, 1, 0),
    },
    denied={"http://a.test/private"},
    auxiliary={"http://a.test/robots.txt", "http://b.test/robots.txt"},
)
LIMITS = JudgeLimits(delay=1.0)


def seen(start: float, url: str, status: int = 200, took: float = 0.1, retry_after: float | None = None) -> Record:
    """A request for `url` at `start`, answered within `took` seconds."""
    host, _, path = url.removeprefix("http://").partition("/")
    return Record(
        start=start,
        end=start + took,
        wall=1e9 + start,
        address="127.0.0.1:80",
        host=host,
        domain=host,
        method="GET",
        path=f"/{path}",
        status=status,
        retry_after=retry_after,
        client_port=1,
        agent="test",
    )


PERFECT = [
    seen(0, "http://a.test/robots.txt"),
    seen(1.2, "http://a.test/"),
    seen(2.4, "http://a.test/busy", 503, retry_after=2),
    seen(4.6, "http://a.test/busy"),
    seen(0, "http://b.test/robots.txt", 404),
    seen(1.1, "http://b.test/"),
]


def verdict_with(*extra: Record, without: int | None = None, limits: JudgeLimits = LIMITS) -> JudgeReport:
    """The verdict on the perfect crawl with records added, and one left out."""
    records = [record for index, record in enumerate(PERFECT) if index != without]
    return judge([*records, *extra], EXPECTED, limits)


def faults(result: JudgeReport) -> set[str]:
    """The names of the violations that were found."""
    return {name for name, found in result.findings() if found}


def test_a_perfect_crawl_passes() -> None:
    result = verdict_with()
    assert result.ok
    assert faults(result) == set()
    assert result.closest == pytest.approx({"a.test": 1.1, "b.test": 1.0})
    assert str(result).startswith("OK: 6 requests to 2 domains, 0 repeated, shortest gap 1.0000 s")


@pytest.mark.parametrize(
    ("fault", "record"),
    [
        ("too_often", seen(9, "http://a.test/")),
        ("unexpected", seen(9, "http://a.test/decoy")),
        ("denied", seen(9, "http://a.test/private")),
        ("wrong_status", seen(9, "http://a.test/busy", 503)),
        ("overlaps", seen(4.65, "http://a.test/robots.txt")),
        ("too_close", seen(5.0, "http://a.test/robots.txt")),
        ("unrested", seen(3.5, "http://a.test/robots.txt")),
        ("unasked", seen(9, "http://c.test/")),
    ],
)
def test_a_planted_request_is_found(fault: str, record: Record) -> None:
    result = verdict_with(record)
    assert fault in faults(result)
    assert not result.ok
    assert record.url in str(result)


@pytest.mark.parametrize(("fault", "index"), [("missing", 5), ("too_seldom", 2), ("unasked", 4)])
def test_a_request_left_out_is_found(fault: str, index: int) -> None:
    assert faults(verdict_with(without=index)) == {fault}


def test_an_overlap_with_a_long_answer_is_found_behind_a_short_one() -> None:
    """Given a long answer and two short ones within it, both overlap with the long one."""
    records = [
        seen(0, "http://a.test/robots.txt", took=10),
        seen(1, "http://a.test/", took=0.1),
        seen(5, "http://a.test/busy", took=0.1),
    ]
    overlaps = judge(records, EXPECTED, LIMITS).overlaps
    assert [(found.first.path, found.second.path) for found in overlaps] == [
        ("/robots.txt", "/"),
        ("/robots.txt", "/busy"),
    ]


def test_a_crawl_delay_counts_from_the_robots_txt_on() -> None:
    slow = replace(EXPECTED, crawl_delays={"a.test": 5.0})
    assert judge(PERFECT, slow, LIMITS).too_close[0].needed == 5.0


def test_the_delay_is_judged_with_tolerance() -> None:
    assert verdict_with(limits=JudgeLimits(delay=1.001)).ok
    assert faults(verdict_with(limits=JudgeLimits(delay=1.01))) == {"too_close"}


def test_repeats_are_allowed_up_to_a_number() -> None:
    twice = [seen(10, "http://a.test/"), seen(12, "http://a.test/")]
    assert verdict_with(*twice, limits=replace(LIMITS, repeats=2)).ok
    assert not verdict_with(*twice, limits=replace(LIMITS, repeats=1)).ok


def test_addresses_have_a_limit_of_their_own() -> None:
    result = verdict_with(limits=replace(LIMITS, address_in_flight=1))
    assert faults(result) == {"address_too_many"}
    assert result.peak_by_address == {"127.0.0.1:80": 2}


def test_a_log_is_read_while_it_grows(tmp_path: Path) -> None:
    """Given a file with two whole lines and a part of a third, the two records are read."""
    path = tmp_path / "requests.jsonl"
    log = RequestLog(path, keep=False)
    for record in PERFECT[:2]:
        log.append(record)
    assert list(read_log(path)) == []
    log.flush()
    with path.open("ab") as file:
        file.write(msgspec.json.encode(PERFECT[2])[:20])
    assert list(read_log(path)) == PERFECT[:2]
    assert log.records == []
    log.close()
