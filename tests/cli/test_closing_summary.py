"""The closing summary of a crawl on a cluster says if its numbers are incomplete."""

from __future__ import annotations

import io
from pathlib import Path
from typing import cast

import msgspec
import pytest
from rich.console import Console

from crawler.cli.screens import SUMMARY_TRIES, ThisRun, live_view, summarize, summary_of_run
from crawler.observe.status import Status
from frontier.store import RedisStore
from tests.cli.test_counted import statuses

WHOLE = msgspec.structs.replace(statuses(2)[0], shards_away=0)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Status]:
    """What the next reads find; the last of them again and again."""
    found: list[Status] = []

    async def read(*_: object) -> Status:
        return found.pop(0) if len(found) > 1 else found[0]

    async def opened(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr("crawler.cli.screens.SUMMARY_PAUSE_S", 0.0)
    monkeypatch.setattr("crawler.cli.screens.open_crawl", opened)
    monkeypatch.setattr("crawler.cli.screens.read_status", read)
    return found


async def said() -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    await summarize(cast(RedisStore, None), "news", Path("out"), console, "--crawl news")
    return console.export_text()


async def test_shards_whose_node_is_back_are_read_again(reads: list[Status]) -> None:
    reads += [msgspec.structs.replace(WHOLE, shards_away=1)] * (SUMMARY_TRIES - 1) + [WHOLE]
    assert "cannot be read" not in await said()
    assert reads == [WHOLE]


async def test_shards_that_stay_away_are_named(reads: list[Status]) -> None:
    reads += [msgspec.structs.replace(WHOLE, shards_away=1)]
    assert (
        "1 of 2 shards cannot be read, so the numbers are too low: see `crawler status --crawl news` later"
        in await said()
    )


async def test_shards_that_are_lost_are_named(reads: list[Status]) -> None:
    reads += [msgspec.structs.replace(WHOLE, shards_lost=1)]
    assert "Redis has lost the data of 1 of 2 shards: run `crawler repair --crawl news`" in await said()


async def test_pages_that_a_repair_has_restored_are_not_in_the_rate(reads: list[Status]) -> None:
    crawled = {"first_ms": 1_000, "last_ms": 3_000, "running_ms": 0, "received_bytes": 5 << 10}
    reads += [msgspec.structs.replace(WHOLE, done=1_005, restored=1_000, **crawled)]
    told = " ".join((await said()).split())
    assert "1,000 of these restored by a repair" in told
    assert "1.0 KiB a page rate 2.0/s over 2.0 s" in told


async def test_directly_after_a_repair_there_is_no_rate(reads: list[Status]) -> None:
    reads += [msgspec.structs.replace(WHOLE, done=1_000, restored=1_000, received_bytes=0)]
    assert "/s" not in await said()


async def test_what_the_settings_denied_is_allowed_in_its_own_crawl(reads: list[Status]) -> None:
    reads += [msgspec.structs.replace(WHOLE, reasons={"denied:forbidden_address": 2})]
    assert "then `crawler dead requeue --reason forbidden_address --crawl news`" in " ".join((await said()).split())


def test_the_delay_is_blamed_only_if_it_took_most_of_the_time() -> None:
    def rate(domains: int, took_s: float) -> str:
        found = msgspec.structs.replace(WHOLE, domains=domains, done=WHOLE.done + 10, retried=0)
        console = Console(width=200, file=io.StringIO(), record=True)
        console.print(summary_of_run(found, ThisRun(WHOLE, took_s, delay_s=1.0)))
        return console.export_text()

    assert "as politeness.delay is 1 s" in rate(1, 9.5)
    assert "politeness.delay" not in rate(1, 30.0) + rate(2, 9.5) + rate(1, 2.0)


def test_the_bar_counts_towards_the_page_limit() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    found = msgspec.structs.replace(WHOLE, done=5, accepted=4_000, max_pages=1_000)
    console.print(live_view(found, 1.0))
    console.print(live_view(msgspec.structs.replace(found, max_pages=0), 1.0))
    told = console.export_text()
    assert "5 of at most 1,000 pages" in told and "of 4,000 seen URLs" in told


def test_what_this_run_denied_and_gave_up_is_not_that_of_earlier_runs() -> None:
    before = {"denied:robots": 2, "dead:timeout": 1}
    now = {"denied:robots": 2, "denied:blocked": 4, "dead:timeout": 3}
    found, earlier = (msgspec.structs.replace(WHOLE, reasons=reasons) for reasons in (now, before))
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(summary_of_run(found, ThisRun(earlier, 1.0)))
    told = " ".join(console.export_text().split())
    assert "errors 2 timeout: 2 denied 4 blocked: 4 time 1.0 s" in told
