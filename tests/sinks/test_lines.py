"""The JSON lines: what they have, which are of a crawl, and the last visits of pages."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crawler.errors import UserError
from crawler.page import Link, Outcome
from crawler.scope.next_visit import Visits
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.files import LINES
from crawler.sinks.lines import SETTINGS, SortedVisits, VisitLine, crawls_in, files_of, has_lines, iso_time
from crawler.sinks.warc import sha1
from frontier.entries import tag_of
from frontier.known_pages import KnownPage
from tests.sinks import readers
from tests.sinks.values import NOON, archiving, exchange, page, varied_exchanges


async def test_each_line_finds_its_response_in_the_warc_file(tmp_path: Path) -> None:
    async with archiving(tmp_path) as archive:
        await archive.write([page(made) for made in varied_exchanges()], [exchange("robots.txt", b"User-agent: *")])
        await archive.write([page(exchange("later", b"later"))])
    (file,) = readers.warc_files(tmp_path)
    lines = readers.lines(tmp_path)
    assert len(lines) == len(varied_exchanges()) + 1
    for line in lines:
        place = line["warc"]
        assert isinstance(place, dict)
        assert place["file"] == file.name
        alone = tmp_path / "one.record"
        alone.write_bytes(file.read_bytes()[place["offset"] :][: place["length"]])
        (record,) = readers.by_fastwarc(alone)
        assert (record.type, record.url) == ("response", line["url"])
        assert record.headers["WARC-Payload-Digest"] == line["digest"]


async def test_a_line_holds_all_that_is_known(tmp_path: Path) -> None:
    made = exchange("a", b"body", truncated="length", status=206)
    known = page(
        made,
        depth=3,
        tries=2,
        content_type="text/html",
        charset="utf-8",
        title="Żółw \N{TURTLE}\n",
        lang="pl",
        canonical="https://site.test/c",
        decoded_size=12,
        links=(Link("https://a.test/"), Link("https://b.test/")),
        licenses=("https://site.test/license.xml",),
    )
    (line,) = await lines_of(tmp_path, known)
    place = line.pop("warc")
    assert isinstance(place, dict)
    assert line == {
        "url": "https://site.test/a",
        "domain": "site.test",
        "status": 206,
        "outcome": "done",
        "reason": "ok",
        "depth": 3,
        "tries": 2,
        "settled_at": "2026-09-21T14:13:21.123Z",
        "fetched_at": "2026-09-21T14:13:20.123Z",
        "elapsed_ms": 250,
        "content_type": "text/html",
        "charset": "utf-8",
        "title": "Żółw \N{TURTLE}\n",
        "lang": "pl",
        "canonical": "https://site.test/c",
        "size": 4,
        "decoded_size": 12,
        "digest": sha1(b"body"),
        "truncated": "length",
        "cut": [],
        "licenses": ["https://site.test/license.xml"],
        "noarchive": False,
        "noindex": False,
        "link_count": 2,
        "links": ["https://a.test/", "https://b.test/"],
        "replica": "host-1a2b",
        **dict.fromkeys(("description", "text", "markdown", "json_ld", "opengraph")),
        **dict.fromkeys(
            ("simhash", "near_of", "soft_404", "via", "extra", "items", "handler_error", "visit", "previous_visit")
        ),
        **dict.fromkeys(("next_visit", "visit_state", "detail")),
        **dict.fromkeys(("text_by", "published", "content_language", "last_modified")),
        **dict.fromkeys(("rendered", "rendered_why", "render_ms", "resources", "refused")),
        "repaired": [],
        "usage": None,
        "usage_statements": [],
        "tdm_policy": None,
        "rejected": [],
        "rejected_count": 0,
        "rejected_items": None,
        "label": None,
        "payload": None,
        "followed": None,
    }


async def test_a_url_that_was_never_fetched_has_a_line_with_its_reason(tmp_path: Path) -> None:
    (line,) = await lines_of(tmp_path, page(None, "private", outcome=Outcome.DENIED, reason="robots", links=()))
    assert (line["status"], line["outcome"], line["reason"]) == (None, "denied", "robots")
    assert (line["warc"], line["fetched_at"], line["elapsed_ms"], line["digest"]) == (None, None, None, "")


async def test_a_page_that_asks_for_it_is_not_archived(tmp_path: Path) -> None:
    made = exchange("secret", b"do not keep")
    (line,) = await lines_of(tmp_path, page(made, noarchive=True))
    assert (line["warc"], line["noarchive"], line["digest"]) == (None, True, sha1(b"do not keep"))
    assert readers.warc_files(tmp_path) == []


async def test_a_page_that_will_be_retried_leaves_its_exchange_and_no_line(tmp_path: Path) -> None:
    made = exchange("busy", b"come back later", status=503)
    assert await lines_of(tmp_path, page(made, outcome=Outcome.RETRY, reason="http_503")) == []
    (file,) = readers.warc_files(tmp_path)
    assert [record.type for record in readers.by_warcio(file)] == ["warcinfo", "request", "response"]


async def test_links_can_be_left_out_but_are_counted(tmp_path: Path) -> None:
    (line,) = await lines_of(tmp_path, page(exchange("a", b"a")), links=False)
    assert (line["link_count"], line["links"]) == (1, None)


async def test_either_file_can_be_left_out(tmp_path: Path) -> None:
    (line,) = await lines_of(tmp_path / "lines", page(exchange("a", b"a")), warc=False)
    assert (line["warc"], line["digest"]) == (None, sha1(b"a"))
    assert readers.warc_files(tmp_path / "lines") == []
    assert await lines_of(tmp_path / "warc", page(exchange("a", b"a")), pages=False) == []
    assert len(readers.warc_files(tmp_path / "warc")) == 1


async def test_a_lone_surrogate_does_not_hold_up_the_crawl(tmp_path: Path) -> None:
    bad = page(exchange("bad", b"a"), title="lone \ud800", links=(Link("https://a.test/\udfff"),))
    first, second = await lines_of(tmp_path, bad, page(exchange("good", b"b"), title="Żółw"))
    assert (first["title"], first["links"]) == ("lone ?", ["https://a.test/?"])
    assert second["title"] == "Żółw"


async def lines_of(folder: Path, *pages: object, **more: object) -> list[dict[str, object]]:
    async with archiving(folder, **more, wall=lambda: NOON) as archive:
        await archive.write(pages)  # type: ignore[arg-type]
    return readers.lines(folder)


def write(folder: Path, crawl: str, replica: str, outcome: str = "done") -> Path:
    """Write a volume with one line, as the replica `replica` of `crawl` does."""
    stem = f"{crawl}-{replica}-20260101000000-00001"
    line = {"url": "https://a.test/", "outcome": outcome, "decoded_size": 10, "replica": replica, "items": {}}
    (folder / f"{stem}.warc.gz").write_bytes(bytes(100))
    path = folder / f"{stem}.pages.jsonl"
    path.write_text(json.dumps(line) + "\n")
    return path


@pytest.mark.parametrize(
    ("crawl", "replica", "of"),
    [
        ("news", "h-1", "news"),
        ("news-two", "h-1", "news-two"),
        ("news", "two-1", "news"),
        ("news.two", "h-1", "news.two"),
    ],
)
def test_output_is_found_for_its_own_crawl_only(tmp_path: Path, crawl: str, replica: str, of: str) -> None:
    write(tmp_path, crawl, replica)
    assert {name for name in ("news", "news-two", "news-two-h", "news.two") if has_lines(tmp_path, name)} == {of}


@pytest.mark.parametrize("end", ["", ".open"])
def test_a_warc_file_is_of_the_crawl_of_the_lines_of_its_volume(tmp_path: Path, end: str) -> None:
    """The crawl news has a replica two-1, whose files are named like those of the crawl news-two. Without lines, names
    count."""
    for crawl in ("news", "news-two"):
        (tmp_path / f"{crawl}{SETTINGS}").touch()
    lines = write(tmp_path, "news", "two-1")
    (warc,) = tmp_path.glob("*.warc.gz")
    lines, warc = (path.rename(path.with_name(path.name + end)) for path in (lines, warc))
    assert crawls_in(tmp_path) == {"news"}
    assert files_of(tmp_path, (*WARC_SUFFIXES, LINES), "news") == [lines, warc]
    lines.unlink()
    assert files_of(tmp_path, WARC_SUFFIXES, "news-two") == [warc]


def test_the_files_of_a_crawl_are_found_in_a_large_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is listed once for its files, and once for its settings."""
    (tmp_path / f"news{SETTINGS}").touch()
    written = [write(tmp_path, "news", f"h-{number}") for number in range(30)]
    listed = []
    scandir, listdir = os.scandir, os.listdir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or listdir(path))
    assert files_of(tmp_path, (LINES,), "news") == sorted(written)
    assert 0 < len(listed) <= 4


START = 1_790_000_000.0
STATES = [str(Visits(START + 60 * number, START, 3_600)) for number in range(6)]


def line(path: str, number: int, is_known: bool = True, first: bool | None = None, **more: object) -> VisitLine:
    """The line of visit `number` of a page, which is visited again if it `is_known`."""
    at, is_first = START + 60 * number, number == 0 if first is None else first
    return VisitLine(
        f"https://a.test/{path}",
        "a.test",
        2,
        settled_at=iso_time(at + 0.5),
        previous_visit=None if is_first else iso_time(at - 60),
        next_visit=datetime.fromtimestamp(at + 3_600, UTC) if is_known else None,
        visit_state=STATES[number] if is_known else None,
        **more,  # type: ignore[arg-type]
    )


@contextmanager
def pages(folder: Path, lines: Iterable[VisitLine]) -> Iterator[list[KnownPage]]:
    with closing(SortedVisits([folder])) as visits:
        visits.add(lines)
        yield list(visits.pages())


ENDS: list[tuple[str, list[VisitLine], int | None]] = [
    ("visited", [line("p", 0), line("p", 1), line("p", 2)], 2),
    ("once", [line("p", 0)], 0),
    ("never", [line("p", 0, is_known=False)], None),
    ("forgotten", [line("p", 0), line("p", 1, is_known=False)], None),
    ("found-anew", [line("p", 0), line("p", 1, is_known=False), line("p", 2, first=True)], 2),
    ("queued-twice", [line("p", 0), line("p", 1), line("p", 2, first=True)], 1),
    ("queued-twice-and-failed", [line("p", 0), line("p", 1), line("p", 2, is_known=False, first=True)], 1),
    ("queued-twice-and-visited", [line("p", 0), line("p", 1, first=True), line("p", 2)], 2),
]
"""The lines of a page in their order, and the number of the visit that Redis has stored."""


@pytest.mark.parametrize(("lines", "last"), [end[1:] for end in ENDS], ids=[end[0] for end in ENDS])
def test_the_visit_that_was_stored_last_counts(tmp_path: Path, lines: list[VisitLine], last: int | None) -> None:
    others = [line("a", 3), line("p/x", 3), line("p2", 3)]  # sorted before and after it
    expected = [] if last is None else [(STATES[last], int(START) + 60 * last + 3_600)]
    for seed in range(5):
        mixed = [*lines, *others]
        random.Random(seed).shuffle(mixed)
        with pages(tmp_path, mixed) as found:
            of_page = [page for page in found if page.entry.url == "https://a.test/p"]
            assert [(page.entry.visit, page.due_s) for page in of_page] == expected
            assert len(found) == len(of_page) + 3


def test_a_page_comes_with_all_that_redis_stores_of_it(tmp_path: Path) -> None:
    with pages(tmp_path, [line("p", 1, via="https://b.test/", label="p", payload={"a b": [1]})]) as (page,):
        entry = page.entry
    assert (entry.domain, entry.depth, entry.via, entry.tag) == (
        "a.test",
        2,
        "https://b.test/",
        tag_of("p", {"a b": [1]}),
    )
    assert entry.priority == -((int(START) + 60 + 3_600) // 60)


def test_more_lines_than_fit_in_memory(tmp_path: Path) -> None:
    numbers = list(range(33_000))
    random.Random(1).shuffle(numbers)
    with pages(tmp_path, (line(f"{number:06}", visit) for visit in (1, 0) for number in numbers)) as found:
        assert [page.entry.url for page in found] == [f"https://a.test/{number:06}" for number in sorted(numbers)]
        assert {page.entry.visit for page in found} == {STATES[1]}


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    broken = line("p", 1)
    broken.visit_state = "f"
    with (
        pytest.raises(UserError, match=r"https://a\.test/p: its last line has a visit_state"),
        pages(tmp_path, [broken]),
    ):
        pass
    with closing(SortedVisits([tmp_path])) as visits:
        visits._database.execute("PRAGMA max_page_count = 4")
        with pytest.raises(UserError, match=r"disk is full: the visits of known pages are sorted there"):
            visits.add(line(f"{number}", 1) for number in range(1_000))
