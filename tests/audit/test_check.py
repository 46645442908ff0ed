"""The audit passes on a polite archive, and reports each rule on an archive that violates it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from crawler.audit.check import Report, Rules, audit
from crawler.audit.records import read_archive
from crawler.errors import UserError
from crawler.page import Exchange
from crawler.sinks.forget import DomainRewriter, add_mark
from politeness.delay import DelayPolicy
from politeness.rate_limit import RateLimitPolicy
from politeness.usage import combined, statement
from tests.sinks.test_forget import GONE, fill
from tests.sinks.values import NOON, archived, archiving, exchange, page

RULES = Rules(DelayPolicy(min_delay_s=1.0), RateLimitPolicy(rate_per_s=4, burst=2), "peercrawl", tolerance_s=0.001)
ROBOTS = b"# the rules of this site\n" * 60 + b"User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n"


def made(url: str, at: float, body: bytes = b"text", status: int = 200, *headers: bytes) -> Exchange:
    """An exchange that started `at` seconds after noon and took 0.25 s."""
    whole = exchange("x", body, *headers)
    head = whole.response_head.replace(b"200 OK", b"%d Told" % status)
    return structs.replace(whole, url=url, status=status, response_head=head, started_at=NOON + at, elapsed=0.25)


def polite() -> list[Exchange]:
    """Two sites. The robots.txt of one is requested twice and redirects to the other."""
    return [
        made("https://a.test/robots.txt", 0, ROBOTS),
        made("https://b.test/robots.txt", 0.5, b"", 301, b"Location: https://a.test/shared"),
        made("https://a.test/1", 2.25),
        made("https://a.test/shared", 4.5, ROBOTS),
        made("https://b.test/1", 6.75),
        made("https://a.test/2", 6.75),
        made("https://b.test/2", 9, b"", 503, b"Retry-After: 5"),
        made("https://a.test/robots.txt", 9, ROBOTS),
        made("https://a.test/3", 11.25),
        made("https://b.test/2", 14.25),
    ]


async def report(folder: Path, exchanges: list[Exchange], rules: Rules = RULES) -> Report:
    """The audit of an archive of `exchanges`, split over two replicas."""
    for replica, share in (("one", exchanges[::2]), ("two", exchanges[1::2])):
        about = (("http-header-user-agent", "peercrawl/1 (+https://example.org)"),)
        async with archiving(folder, replica=replica, about=about) as archive:
            robots = [one for one in share if one.url.endswith("/robots.txt")]
            await archive.write([page(one) for one in share if one not in robots], robots)
    return audit(read_archive(folder), rules)


async def test_a_polite_archive_passes(tmp_path: Path) -> None:
    found = await report(tmp_path, polite())
    assert found.ok, found.breaches
    assert (found.requests, found.domains, found.addresses, found.robots, found.unasked) == (10, 2, 1, 3, 0)
    assert found.closest["a.test"] == pytest.approx(2.0)


Doctor = Callable[[list[Exchange]], list[Exchange]]


@pytest.mark.parametrize(
    ("rule", "url", "doctor"),
    [
        ("too_close", "https://a.test/extra", lambda all_: [*all_, made("https://a.test/extra", 12)]),
        ("too_close", "https://b.test/2", lambda all_: [*all_, made("https://b.test/during", 14.3)]),
        ("denied", "https://a.test/private/x", lambda all_: [*all_, made("https://a.test/private/x", 20)]),
        # The rules of b.test are those that its robots.txt redirects to.
        ("denied", "https://b.test/private/x", lambda all_: [*all_, made("https://b.test/private/x", 20)]),
        ("unrested", "https://b.test/early", lambda all_: [*all_, made("https://b.test/early", 11.5)]),
        (
            "address_rate",
            "https://s7.test/",
            lambda all_: [*all_, *(made(f"https://s{n}.test/", 30 + n / 100) for n in range(8))],
        ),
    ],
)
async def test_each_rule_is_seen_when_it_is_broken(tmp_path: Path, rule: str, url: str, doctor: Doctor) -> None:
    """Given a polite archive with one more request, then only that request and its rule are reported."""
    found = await report(tmp_path, doctor(polite()))
    assert {name for name, count in found.counts.items() if count} == {rule}, found.breaches
    breaches = [breach for breach in found.breaches if breach.rule == rule]
    assert breaches
    assert url in {breach.url for breach in breaches} or rule in ("too_close", "address_rate")


async def test_without_a_delay_so_many_may_be_in_flight_as_the_settings_allow(tmp_path: Path) -> None:
    together = [made(f"https://c.test/{number}", number / 100) for number in range(4)]
    rules = Rules(DelayPolicy(min_delay_s=0.0), None, "peercrawl", parallel=3)
    found = await report(tmp_path, together, rules)
    assert [breach.url for breach in found.breaches] == ["https://c.test/3"]
    assert (await report(tmp_path / "2", together[:3], rules)).ok
    assert not (await report(tmp_path / "3", together[:3], replace(rules, parallel=2))).ok
    assert not (await report(tmp_path / "4", together[:3], replace(rules, delay=DelayPolicy(min_delay_s=0.01)))).ok


async def test_a_robots_txt_of_nothing_but_a_crawl_delay_counts(tmp_path: Path) -> None:
    asked = made("https://c.test/robots.txt", 0, b"User-agent: *\nCrawl-delay: 5\n")
    found = await report(tmp_path, [asked, made("https://c.test/1", 6), made("https://c.test/2", 9)])
    (breach,) = found.breaches
    assert breach.detail.endswith("required: 5 s")


async def test_a_slow_answer_is_counted_to_its_end(tmp_path: Path) -> None:
    """The delay starts at the end of a response. The archive contains the elapsed time."""
    slow = [structs.replace(made("https://c.test/1", 0), elapsed=5.0), made("https://c.test/2", 5.5)]
    found = await report(tmp_path, slow)
    assert found.counts["too_close"] == 1
    assert found.breaches[0].detail.startswith("0.500 s after ")


async def test_a_page_that_is_in_the_json_lines_alone_is_judged_too(tmp_path: Path) -> None:
    async with archiving(tmp_path) as archive:
        await archive.write(
            [page(made("https://c.test/1", 0)), page(made("https://c.test/2", 0.5), noarchive=True, domain="c.test")]
        )
    found = audit(read_archive(tmp_path), RULES)
    assert found.requests == 2
    assert found.counts["too_close"] == 1


async def test_an_origin_without_an_archived_robots_txt_is_told(tmp_path: Path) -> None:
    found = await report(tmp_path, [made("https://c.test/1", 0)])
    assert (found.ok, found.unasked) == (True, 1)


DOWN = made("https://c.test/robots.txt", 0, b"", 503)
UP, MISSING = made("https://c.test/robots.txt", 70, ROBOTS), made("https://c.test/robots.txt", 70, b"", 404)


@pytest.mark.parametrize("down", [DOWN, made("https://c.test/robots.txt", 0, b"", 429)])
async def test_a_site_whose_robots_txt_is_unreachable_must_not_be_requested(tmp_path: Path, down: Exchange) -> None:
    found = await report(tmp_path, [down, made("https://c.test/1", 5), UP, made("https://c.test/2", 75)])
    assert [(breach.rule, breach.url, breach.detail) for breach in found.breaches] == [
        ("denied", "https://c.test/1", "https://c.test/robots.txt was unreachable, and no earlier one is known")
    ]
    assert found.unasked == 0


@pytest.mark.parametrize(
    ("exchanges", "unasked"),
    [
        ([DOWN, UP, made("https://c.test/1", 75)], 0),
        ([DOWN, MISSING, made("https://c.test/1", 75)], 0),
        # The copy of before is used as long as the file is unreachable,
        ([UP, structs.replace(DOWN, started_at=NOON + 90_000), made("https://c.test/1", 90_005)], 0),
        # also if its file is not here any more.
        ([made("https://c.test/1", -5), DOWN, made("https://c.test/2", 5)], 1),
        # A 404 is not a copy, but other replicas may not know yet that the file is unreachable.
        ([MISSING, structs.replace(DOWN, started_at=NOON + 90_000), made("https://c.test/1", 90_005)], 1),
        # After 30 days, everything is allowed.
        ([DOWN, made("https://c.test/1", 30 * 86_400 + 1)], 1),
        # The target of the redirect may be in another folder.
        ([made("https://c.test/robots.txt", 0, b"", 301, b"Location: /shared"), made("https://c.test/1", 5)], 1),
    ],
)
async def test_requests_that_may_have_been_allowed_are_no_breach(
    tmp_path: Path, exchanges: list[Exchange], unasked: int
) -> None:
    found = await report(tmp_path, exchanges)
    assert (found.counts["denied"], found.unasked) == (0, unasked), found.breaches


async def test_a_retry_after_counts_up_to_the_longest_backoff(tmp_path: Path) -> None:
    told = [made("https://c.test/1", 0, b"", 503, b"Retry-After: 3600"), made("https://c.test/1", 605)]
    assert (await report(tmp_path / "1", told)).counts["unrested"] == 1
    assert (await report(tmp_path / "2", told, replace(RULES, backoff_max_s=600))).ok
    assert not (await report(tmp_path / "3", told, replace(RULES, backoff_max_s=610))).ok


def test_an_empty_folder_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        read_archive(tmp_path)


async def test_folders_are_judged_together(tmp_path: Path) -> None:
    """A domain that moves from a replica to another on a second machine is requested too soon there."""
    first, second = tmp_path / "one", tmp_path / "two"
    robots = made("https://a.test/robots.txt", 0, b"")
    await report(first, [robots, made("https://a.test/1", 1.5)])
    await report(second, [made("https://a.test/2", 2.0), made("https://a.test/3", 3.5)])
    assert all(audit(read_archive(folder), RULES).ok for folder in (first, second))
    found = audit(read_archive(first, second), RULES)
    assert [breach.url for breach in found.breaches] == ["https://a.test/2"]
    assert found.files == sum(audit(read_archive(folder), RULES).files for folder in (first, second))


WISHES = b"User-agent: *\nDisallow: /no\nContent-Usage: /own/ search=n\nContent-Usage: /ai/ train-ai=n\n"


def obedient() -> list[Exchange]:
    return [
        made("https://a.test/robots.txt", 0, WISHES),
        made("https://a.test/.well-known/tdmrep.json", 2, b'[{"location":"/mined/","tdm-reservation":1}]'),
        made("https://a.test/page", 4, b"<p>text", 200, b"Content-Usage: search=y"),
    ]


@pytest.mark.parametrize(
    ("purpose", "extra", "detail"),
    [
        ("search", made("https://a.test/own/x", 6), "robots.txt line 3: Content-Usage: /own/ search=n"),
        ("train-ai", made("https://a.test/ai/x", 6), "robots.txt line 4: Content-Usage: /ai/ train-ai=n"),
        ("ai-use", made("https://a.test/mined/x", 6), "tdmrep.json rule 1: tdm-reservation: 1"),
        (
            "search",
            made("https://a.test/x", 6, b"x", 200, b"Content-Usage: search=n"),
            "header Content-Usage: search=n",
        ),
        ("train-ai", made("https://a.test/x", 6, b"<meta name=robots content=noai>"), "meta robots: noai"),
        ("train-ai", made("https://a.test/x", 6, b"", 200, b"X-Robots-Tag: peercrawl: noai"), "X-Robots-Tag: noai"),
        ("train-ai", made("https://a.test/x", 6, b"<meta name=tdm-reservation content=1>"), "meta: tdm-reservation: 1"),
    ],
)
async def test_what_owners_refuse_must_not_be_in_the_archive(
    tmp_path: Path, purpose: str, extra: Exchange, detail: str
) -> None:
    rules = replace(RULES, purpose=frozenset({purpose}))
    await report(tmp_path / "good", obedient(), rules)
    assert audit(read_archive(tmp_path / "good", usage=True), rules).ok
    await report(tmp_path / "bad", [*obedient(), extra], rules)
    found = audit(read_archive(tmp_path / "bad", usage=True), rules)
    assert [(breach.rule, breach.url, breach.detail) for breach in found.breaches] == [
        ("refused", extra.url, f"its owner refuses {purpose}: {detail}")
    ]
    # Without a purpose, preferences are recorded and not obeyed.
    assert audit(read_archive(tmp_path / "bad"), RULES).ok


async def test_a_withheld_page_is_no_breach_and_a_kept_line_is_one(tmp_path: Path) -> None:
    rules = replace(RULES, purpose=frozenset({"search"}))
    said = combined([statement("header Content-Usage", b"search=n")])
    kept = page(made("https://a.test/x", 6, b"x"), usage=said, domain="a.test", noarchive=True)
    for name, one, breaches in (("withheld", kept.withheld(), 0), ("kept", kept, 1)):
        await archived(tmp_path / name, [one], exchanges=obedient()[:1])
        found = audit(read_archive(tmp_path / name, usage=True), rules)
        assert found.counts["refused"] == breaches, name


@pytest.mark.parametrize("target", ["https://a.test/private/tdm.json", "https://b.test/private/tdm.json"])
async def test_a_redirect_of_tdmrep_json_is_no_excuse(tmp_path: Path, target: str) -> None:
    """Only robots.txt itself may be fetched wherever it redirects to."""
    found = await report(
        tmp_path,
        [
            made("https://a.test/robots.txt", 0, ROBOTS),
            made("https://b.test/robots.txt", 0, ROBOTS),
            made("https://a.test/.well-known/tdmrep.json", 4, b"", 302, b"Location: " + target.encode()),
            made(target, 8, b"[]"),
        ],
    )
    assert [(breach.rule, breach.url) for breach in found.breaches] == [("denied", target)]


WITHOUT_DELAY = Rules(DelayPolicy(min_delay_s=0.0), None, "peercrawl", parallel=64)


def breaches_in(folder: Path) -> int:
    report = audit(read_archive(folder), WITHOUT_DELAY)
    assert all(breach.url.startswith(("https://gone.test", "https://www.gone.test")) for breach in report.breaches)
    return report.counts["forgotten"]


def test_whatever_is_left_is_found(tmp_path: Path) -> None:
    fill(tmp_path)
    assert breaches_in(tmp_path) == 0  # nobody objected
    add_mark(tmp_path, GONE)
    assert breaches_in(tmp_path) == 1
    # in the lines alone,
    kept = {path: path.read_bytes() for path in tmp_path.iterdir() if ".jsonl" not in path.name}
    warcs = [path for path in kept if ".warc" in path.name or path.suffix == ".cdxj"]
    for path in warcs:
        path.unlink()
    assert breaches_in(tmp_path) == 1
    for path in warcs:
        path.write_bytes(kept[path])
    # and no more when it was removed,
    DomainRewriter(tmp_path, GONE).rewrite()
    assert breaches_in(tmp_path) == 0
    # unless an index still has it.
    (index, *_) = (path for path in warcs if path.suffix == ".cdxj" and b"gone" in kept[path])
    index.write_bytes(kept[index])
    assert breaches_in(tmp_path) == 1


async def test_a_date_before_1970_is_no_breach(tmp_path: Path) -> None:
    found = await report(tmp_path, [made("https://c.test/1", -NOON - 99)])
    assert (found.requests, found.ok) == (1, True)
