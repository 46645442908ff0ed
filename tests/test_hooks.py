"""What other people's code may do in a crawl, and what it cannot break."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crawler.errors import SinkFull, UserError
from crawler.events import DefectFound, Events, HookFailed
from crawler.hooks import PAGE_HOOKS, PageHooks, load
from crawler.page import Exchange, Outcome, Page, Written
from crawler.sinks import SinkContext
from crawler.sinks.archive import Archive
from crawler.sinks.sink import CombinedSink
from tests.sinks import readers
from tests.sinks.values import exchange, page, settings

HERE = f"{__name__}:"


def words(page: Page) -> dict[str, Any]:
    return {"words": len(page.title.split())}


def nothing(page: Page) -> None:
    """Says nothing."""


def no_body(page: Page) -> bool:
    return False


def broken(page: Page) -> None:
    raise RuntimeError("out of order")


def unspeakable(page: Page) -> dict[str, Any]:
    return {"page": object()}


def talkative(page: Page) -> str:
    return "three"


class Listing:
    """A sink that lists URLs in a file."""

    def __init__(self, context: SinkContext) -> None:
        self._path = context.folder / "listing.txt"

    async def start(self) -> None:
        """Nothing to make ready."""

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{page.url}\n" for page in pages)

    async def stop(self) -> None:
        """Nothing to finish."""


async def crawled(folder: Path, *names: str) -> tuple[dict[str, object], list[HookFailed], Path]:
    """The line of a page that the hooks `names` were asked about, their failures, the WARC file."""
    hooks = PageHooks.named(HERE + name for name in names)
    failures: list[HookFailed] = []
    events = Events()
    events.subscribe(failures.append, HookFailed)  # type: ignore[arg-type]
    archive = Archive(settings(folder), hooks=hooks, events=events)
    await archive.start()
    await archive.write([page(exchange("a", b"a"), title="three little words"), page(exchange("b", b"b"))])
    await archive.stop()
    (file,) = readers.warc_files(folder) or [folder]
    return readers.lines(folder)[0], failures, file


async def test_fields_go_into_the_line(tmp_path: Path) -> None:
    line, failures, _ = await crawled(tmp_path, "words", "nothing")
    assert line["extra"] == {"words": 3}
    assert failures == []


async def test_a_hook_can_keep_the_body_out_of_the_archive(tmp_path: Path) -> None:
    line, failures, _ = await crawled(tmp_path, "no_body", "words")
    assert (line["warc"], line["extra"], line["size"]) == (None, {"words": 3}, 1)
    assert readers.warc_files(tmp_path) == []
    assert failures == []


async def test_a_hook_that_fails_is_told_of_and_costs_nothing_else(tmp_path: Path) -> None:
    line, failures, file = await crawled(tmp_path, "broken", "unspeakable", "talkative", "words")
    assert line["extra"] == {"words": 3}
    assert {record.url for record in readers.by_warcio(file) if record.type == "response"} == {
        "https://site.test/a",
        "https://site.test/b",
    }
    assert [(failed.hook.removeprefix(HERE), failed.url[-1]) for failed in failures] == [
        ("broken", "a"),
        ("unspeakable", "a"),
        ("talkative", "a"),
        ("broken", "b"),
        ("unspeakable", "b"),
        ("talkative", "b"),
    ]
    assert failures[0].error == "RuntimeError: out of order"


@pytest.mark.parametrize("name", ["tests.none:x", HERE + "none", "not-installed", HERE + "Any.x"])
def test_names_that_lead_nowhere_are_the_operators_to_mend(name: str) -> None:
    with pytest.raises(UserError, match=r"imported|installed"):
        load(name, PAGE_HOOKS)


class FullAtFirst(Listing):
    """Has no room for anything `refusals` times."""

    def __init__(self, context: SinkContext, refusals: int) -> None:
        super().__init__(context)
        self.refusals = refusals

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> None:
        if self.refusals:
            self.refusals -= 1
            raise SinkFull("no room")
        await super().write(pages, exchanges)


async def test_a_group_that_a_further_sink_had_no_room_for_is_not_written_twice(tmp_path: Path) -> None:
    context = SinkContext(tmp_path, "news", "host-1a2b")
    combined = CombinedSink(Archive(settings(tmp_path)), [sink := FullAtFirst(context, 0)])
    await combined.start()
    same = b"the same everywhere " * 100
    assert await combined.write([page(exchange("a", same))]) == Written()
    pages = [page(exchange("b", same)), page(exchange("c", b"c"))]
    sink.refusals = 2
    for _ in range(2):
        with pytest.raises(SinkFull):
            await combined.write(pages)
    assert await combined.write(pages) == Written(frozenset({"https://site.test/b"}))
    await combined.stop()
    assert [str(line["url"])[-1] for line in readers.lines(tmp_path)] == ["a", "b", "c"]
    assert [url[-1] for url in (tmp_path / "listing.txt").read_text().split()] == ["a", "b", "c"]
    assert combined.written_bytes > 0


class Picky(Listing):
    """Raises for `b` and for the robots.txt of `d`, and is full when it first gets `c` alone."""

    is_full = True

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> None:
        if self.is_full and [one.url[-1] for one in pages] == ["c"]:
            self.is_full = False
            raise SinkFull("no room")
        if any(one.url[-1] in "bd" for one in (*pages, *exchanges)):
            raise KeyError("b")
        await super().write(pages, exchanges)


async def test_a_further_sink_that_raises_costs_only_the_page_for_which_it_raises(tmp_path: Path) -> None:
    context = SinkContext(tmp_path, "news", "host-1a2b")
    found: list[tuple[str, str]] = []
    events = Events()
    events.subscribe(lambda event: found.append((event.stage, event.url[-1])), DefectFound)  # type: ignore[union-attr]
    combined = CombinedSink(Archive(settings(tmp_path)), [Picky(context)], events)
    await combined.start()
    group = [page(exchange(name, name.encode())) for name in "abc"], [exchange("d", b"d"), exchange("e", b"e")]
    with pytest.raises(SinkFull):
        await combined.write(*group)
    assert await combined.write(*group) == Written(failed=frozenset({"https://site.test/b"}))
    await combined.stop()
    assert found == [("record", "b"), ("record", "d")]
    assert [
        (str(line["url"])[-1], line["outcome"], line["reason"], line["cut"]) for line in readers.lines(tmp_path)
    ] == [
        ("a", "done", "ok", []),
        ("b", "dead", "defect", ["defect"]),
        ("c", "done", "ok", []),
    ]
    assert [url[-1] for url in (tmp_path / "listing.txt").read_text().split()] == ["a", "c"]


class NoErrors(Listing):
    """Raises for each response that is not successful."""

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> None:
        if any(one.outcome is not Outcome.DONE for one in pages):
            raise ValueError("not a page")
        await super().write(pages, exchanges)


async def test_a_further_sink_gets_no_url_that_is_tried_again(tmp_path: Path) -> None:
    """Such a page is not its URL's last, and a sink that raises for it would end the URL."""
    combined = CombinedSink(Archive(settings(tmp_path)), [NoErrors(SinkContext(tmp_path, "news", "host-1a2b"))])
    await combined.start()
    later = page(exchange("b", b"busy"), outcome=Outcome.RETRY, reason="http_503")
    assert await combined.write([page(exchange("a", b"a")), later]) == Written()
    assert await combined.write([later]) == Written()
    await combined.stop()
    assert [url[-1] for url in (tmp_path / "listing.txt").read_text().split()] == ["a"]
