"""The screens count everything in plain English, whether there are none, one or two of it."""

from __future__ import annotations

import io
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from crawler import logs
from crawler.app.supervisor import _tell
from crawler.cli import screens
from crawler.cli.crawl import NOTHING_TO_CRAWL, _resumed
from crawler.cli.screens import ThisRun, live_view, summary, summary_of_run
from crawler.observe.health import HealthRecord
from crawler.observe.status import NOTHING_LEFT, Snapshot, Status, condition_of
from crawler.observe.summary import DomainLine, Summary
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import LimitsTable, RecrawlTable
from frontier.counters import Counts

COUNTED = (
    *("addresses", "crawls", "domains", "failures", "files", "hosts", "letters", "links", "machines", "masters"),
    *("nodes", "origins", "pages", "ports", "problems", "records", "redirects", "replicas", "requests", "responses"),
    *("results", "rows", "seeds", "settings", "shards", "tries", "URLs", "volumes"),
)
NOW_MS = 1_800_000_000_000
EVERY_DAY = RecrawlTable(rules=("every=1d",))
DISAGREES = re.compile(
    rf"(?<![\d,.])1 (?:(?!runs )\w+ )?(?:{'|'.join(COUNTED)})\b(?!/)|\(s\)|\b1 (?:are|have|wait|cannot)\b"
)


def replicas(number: int) -> list[HealthRecord]:
    return [
        HealthRecord(
            f"r{one}", "127.0.0.1:9410", 9, one + 1, number, number, number, number, float(number), 50.0, False
        )
        for one in range(number)
    ]


def summary_of(number: int, failing: bool = False) -> Summary:
    """`failing`: domains whose failures keep the whole crawl waiting."""
    line = DomainLine("a.test", number, "waiting", NOW_MS + 9_000, number, 1_000, number, "timeout")
    return Summary(
        crawl="news",
        at_ms=NOW_MS,
        writer="r1",
        shards=number,
        shards_unowned=number,
        owned={},
        open=number,
        leased=0 if failing else number,
        domains_due=0 if failing else number,
        domains_resting=number,
        oldest_due_ms=0,
        busiest=[line] * number,
        overdue=[],
        resting=[line] * (3 + number if failing else number),
        shards_away=number,
        outbox=number,
        waiting=number,
        done=number,
        denied=number,
        dead=number,
        retried=number,
        accepted=number,
        domains=number,
        received_bytes=number,
        duplicates=number,
        reasons={"done:200": number, "dead:timeout": number},
        cut={"links": number},
        dropped={"cap": number},
        visits={"new": number, "changed": number} if number else {},
        known=number,
        visits_due=number,
        first_ms=NOW_MS - 1_000 * number,
        last_ms=NOW_MS,
    )


def statuses(number: int) -> list[Status]:
    found = []
    for one in (summary_of(number), summary_of(number, failing=True)):
        for records in (replicas(number), []):
            told = condition_of("run", records, one, number)
            fields = {name: getattr(one, name) for name in one.__struct_fields__}
            rest = {"state": "run", "condition": told, "replicas": records, "rules": [], "settings_revision": number}
            found.append(Status(**fields, **rest, max_pages=number))
    return found


def texts(number: int) -> list[RenderableType]:
    made: list[RenderableType] = []
    for found in statuses(number):
        snapshot = Snapshot("news", "", "run", found.condition, found.replicas, summary=found)
        made += [
            screens.status(found),
            live_view(found, number),
            summary(found, Path("out")),
            summary_of_run(found, ThisRun(Counts(), number)),
            screens.top(snapshot),
        ]
    limits = [CrawlSettings(limits=LimitsTable(max_pages=limit)) for limit in (0, number)]
    made += [
        _resumed(Counts(done=number), number, running, settings, "") for running in (0, number) for settings in limits
    ]
    made += [
        _resumed(Counts(known=number), 0, 0, CrawlSettings(recrawl=rules), "") for rules in (RecrawlTable(), EVERY_DAY)
    ]
    return [
        *made,
        screens.shards([screens.ShardLine("r1", list(range(number)), NOW_MS, NOW_MS)], max(1, number), NOW_MS),
    ]


def test_known_pages_are_visited_again_only_by_rules() -> None:
    """As after a repair without the settings of the crawl."""
    without, by_rule = (
        _resumed(Counts(known=2), 0, 0, CrawlSettings(recrawl=rules), "") for rules in (RecrawlTable(), EVERY_DAY)
    )
    assert without == f"{NOTHING_TO_CRAWL}; no rule of [recrawl] has it visit its 2 known pages again"
    assert by_rule == "visits those of 2 known pages that are due"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_nouns_agree_with_their_numbers(number: int) -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    for screen in texts(number):
        console.print(screen)
    text = console.export_text()
    assert [line for line in text.splitlines() if DISAGREES.search(line)] == []
    assert number != 2 or "2 shards" in text


def shown(screen: RenderableType) -> str:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(screen)
    return " ".join(console.export_text().split())


@pytest.mark.parametrize(
    ("visits", "known", "visits_due", "due", "due_without_replicas"),
    [
        ({"new": 60, "unchanged": 90, "failed": 1}, 50, 9, "9", "at least 9"),
        ({"new": 60}, 50, 0, "0", "unknown until a replica runs"),
        ({"new": 9}, 0, 9, "9", "9"),
        ({}, 50, 0, "0", "unknown until a replica runs"),  # as after a repair
    ],
)
def test_the_copies_of_known_pages_are_shown_once_there_are_some(
    visits: dict[str, int], known: int, visits_due: int, due: str, due_without_replicas: str
) -> None:
    """The sum of all known pages, and the visits due. Without replicas, nobody queues what is due."""
    due_visits = {"known": known, "visits_due": visits_due}
    status = msgspec.structs.replace(statuses(1)[0], visits=visits, **due_visits)
    alone = msgspec.structs.replace(status, replicas=[])
    for screen, number in (
        (screens.status(status), due),
        (screens.status(alone), due_without_replicas),
        (screens.top(Snapshot("news", "", summary=alone)), due_without_replicas),
    ):
        text = shown(screen)
        assert f"known pages {known + visits_due} visits due {number}" in text
        assert ("visits unchanged 90, new 60, failed 1" in text) == ("failed" in visits)


def test_a_crawl_without_known_pages_shows_none() -> None:
    status = msgspec.structs.replace(statuses(1)[0], visits={}, known=0, visits_due=0)
    assert "known pages" not in shown(screens.status(status))
    assert "known pages" not in shown(screens.top(Snapshot("news", "", summary=status)))


def test_a_guessed_sitemap_that_is_not_there_is_no_denied_url_on_any_screen() -> None:
    found = msgspec.structs.replace(statuses(1)[0], denied=3, reasons={"denied:robots": 1, "denied:no_sitemap": 2})
    assert "denied 1 (+2 no_sitemap)" in shown(screens.status(found))
    assert "denied 1 (+2 no_sitemap)" in shown(screens.top(Snapshot("news", "", summary=found)))
    assert "denied 1 robots: 1" in shown(summary(found, Path("out")))


def test_the_summary_says_how_to_allow_what_the_settings_denied() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    found = statuses(1)[0]
    console.print(summary(found, Path("out")))
    console.print(summary(msgspec.structs.replace(found, reasons={"denied:forbidden_address": 2}), Path("out")))
    lines = [line for line in console.export_text().splitlines() if "requeue" in line]
    assert lines == [
        "forbidden_address: to allow it, repeat the command with --allow NET --apply-settings, then `crawler dead requeue "
        "--reason forbidden_address`"
    ]


def test_replicas_that_wait_for_more_urls_are_shown_with_what_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the screens, and in the lines of progress."""
    ended = msgspec.structs.replace(summary_of(1), open=0, outbox=0, shards_away=0, shards_unowned=0)
    told = condition_of("run", replicas(1), ended, 0)
    assert (told.word, told.level, told.obstacles) == ("running", "good", [NOTHING_LEFT])
    assert NOTHING_LEFT not in condition_of("run", replicas(1), summary_of(1), 0).obstacles
    ended_by = NOTHING_LEFT.replace("stop`", "stop --crawl news`")
    assert f"waits_for={ended_by}" in logged(msgspec.structs.replace(statuses(1)[0], condition=told), monkeypatch)


def test_the_lines_of_progress_say_all_that_a_crawl_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its replicas wait for, failures, and responses that are not complete. Records have only some of the domains."""
    names, blocked = [f"{name}.test" for name in "bcdef"], "waits for the DNS: g.test: no answer"
    silent = [msgspec.structs.replace(replicas(1)[0], waits_for=names, blocked=blocked, pages_per_s=0.0)]
    told = logged(msgspec.structs.replace(statuses(1)[2], replicas=silent), monkeypatch)
    assert f": {blocked}; " in told
    assert "a.test has failed (timeout, 1 in a row), next try in" in told
    assert "if it works again: `crawler retry a.test --crawl news`" in told
    assert "; no complete response yet from b.test, c.test, d.test and others" in told


def logged(found: Status, monkeypatch: pytest.MonkeyPatch) -> str:
    """The line of progress about `found`."""
    monkeypatch.setattr(logs.logger, "handlers", [])
    written = io.StringIO()
    logs.configure("console", "info", written)
    _tell(found)
    return written.getvalue()
