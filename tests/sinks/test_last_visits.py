"""The last visit of a page decides what an export has of it, and files that need no change stay as they are."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from crawler.page import Content, Item, Link, Outcome, Page
from crawler.sinks.last_visits import unlinked
from crawler.sinks.lines import Line, PageLines, Row
from tests.e2e.harness import ROOT
from tests.parse.test_text import HTML
from tests.sinks.values import NOON, archiving, exchange, page
from tests.typed import Typed

WEEK_S = 7 * 86_400
HTML_PAGE: dict[str, Any] = {"content_type": "text/html", "charset": "utf-8", "title": "T", "links": ()}


def visited(name: str, week: int, body: bytes = HTML, *headers: bytes, **more: Any) -> Page:
    """The page at `name`, as it was in a week."""
    at = NOON + week * WEEK_S
    status = more.pop("status", 200)
    media_type = more.get("content_type", "text/html").encode()
    head = b"\r\n".join([b"HTTP/1.1 %d X" % status, b"Content-Type: " + media_type, *headers, b"", b""])
    made = exchange(name, body, *headers, status=status, started_at=at, response_head=head)
    return page(made, **{**HTML_PAGE, "settled_at": at + 1, **more})


def denied(name: str, week: int, reason: str = "robots") -> Page:
    return page(None, name, outcome=Outcome.DENIED, reason=reason, settled_at=NOON + week * WEEK_S, links=())


async def crawl(folder: Path, week: int, *pages: Page) -> None:
    async with archiving(folder, lambda: NOON + week * WEEK_S, metadata=True) as archive:
        for one in pages:
            await archive.write([one])


def export(typed: Typed, *words: str) -> str:
    done = typed("export", "crawl-out", "--format", "markdown", "--out", "notes", "--processes", "1", *words)
    assert done.code == 0, done.err
    return done.out + done.err


def notes(folder: Path) -> dict[str, tuple[str, int]]:
    """The text without the time of fetching, and the time of each file, by URL."""
    found = {}
    for path in (folder / "notes").rglob("*.md"):
        lines = path.read_text().splitlines()
        url = next(line for line in lines if line.startswith("url: ")).strip('"').rpartition("/")[2]
        found[url] = "\n".join(line for line in lines if not line.startswith("fetched: ")), path.stat().st_mtime_ns
    return found


def other(name: str) -> bytes:
    return HTML.replace(b"A heading", name.encode())


async def test_a_folder_is_as_a_fresh_crawl_would_make_it(typed: Typed, tmp_path: Path) -> None:
    out = tmp_path / "crawl-out"
    kept = ("same", "validated", "flaky", "locked", "forbidden", "blocked", "excluded")
    names = (*kept, "changed", "deleted", "moved", "secret", "untrained", "back", "withheld")
    await crawl(out, 0, *(visited(name, 0, other(name)) for name in names))
    export(typed, "--usage", "train-ai")
    first = notes(tmp_path)
    assert first.keys() == set(names)
    await crawl(
        out,
        1,
        visited("same", 1, other("same")),
        visited("validated", 1, b"", status=304, body_at=NOON),
        visited("changed", 1, other("changed now")),
        visited("deleted", 1, b"gone", status=404),
        visited("moved", 1, b"", b"Location: /moved-to", status=301),
        visited("moved-to", 1, other("moved")),
        denied("secret", 1),
        visited("untrained", 1, other("untrained"), b"Content-Usage: train-ai=n"),
        visited("flaky", 1, b"sorry", status=503),
        visited("locked", 1, b"log in", status=401),
        visited("forbidden", 1, b"no", status=403),
        denied("blocked", 1, "blocked"),
        denied("excluded", 1, "excluded"),
        visited("back", 1, b"gone", status=410),
        denied("withheld", 1, "usage"),
        visited("new", 1, other("new")),
        visited("style", 1, b"p { color: red }", content_type="text/css"),
    )
    said = export(typed, "--usage", "train-ai")
    second = notes(tmp_path)
    assert second.keys() == {*kept, "changed", "moved-to", "new"}
    assert {name for name in second.keys() & first if second[name] != first[name]} == {"changed"}
    assert "changed now" in second["changed"][0]
    assert "removed, because of earlier visits: 6 files" in said
    assert "left out, because their owners refuse train-ai: 1 page" in said
    assert "without main text" not in said
    await crawl(out, 2, visited("back", 2, other("back")), visited("untrained", 2, other("untrained")))
    export(typed, "--usage", "train-ai", "--since", "2026-10-01", "--changes")
    third = notes(tmp_path)
    assert third.keys() == second.keys() | {"back", "untrained"}
    assert {name: third[name] for name in second} == second
    export(typed, "--usage", "train-ai")
    assert notes(tmp_path) == third


def lines(*about: tuple[str, int, int | None, Sequence[str] | None], **more: Any) -> bytes:
    """Lines of pages with these names, depths, statuses and links, an hour apart."""
    made = (
        {
            "url": f"https://site.test/{name}",
            "depth": depth,
            "outcome": "dead" if status is None else "done",
            "status": status,
            "links": links and [f"https://site.test/{link}" for link in links],
            "content_type": "application/xml" if name.endswith("xml") else "text/html",
            "fetched_at": f"2026-09-21T{hour:02}:00:00Z",
            **more,
        }
        for hour, (name, depth, status, links) in enumerate(about)
    )
    return b"".join(msgspec.json.encode(line) + b"\n" for line in made)


@pytest.mark.parametrize(
    ("later", "wanted"),
    [
        ([], set()),
        ([("", 0, 200, ["a", "c"])], {"b"}),
        ([("", 0, 200, ["b"])], {"a", "below"}),  # a and the page below it link to each other only
        ([("", 0, 503, []), ("", 0, None, []), ("", 0, 304, [])], set()),
        ([("a", 1, 301, ["moved"]), ("moved", 1, 200, [])], {"below"}),
        ([("a", 1, 404, [])], {"below"}),
        ([("map.xml", 1, 200, [])], {"mapped"}),
        ([("map.xml", 1, 304, []), ("mapped", 1, 304, [])], set()),
    ],
)
def test_pages_that_no_links_lead_to_are_found(
    later: list[tuple[str, int, int | None, list[str]]], wanted: set[str], tmp_path: Path
) -> None:
    first = [("", 0, 200, ["a", "b"]), ("a", 1, 200, ["below"]), ("b", 1, 200, []), ("below", 2, 200, ["a"])]
    mapped = [("map.xml", 1, 200, ["mapped"]), ("mapped", 1, 200, [])]
    (file := tmp_path / "x.pages.jsonl").write_bytes(lines(*first, *mapped, *later))
    assert unlinked([file]) == {f"https://site.test/{name}" for name in wanted}


@pytest.mark.parametrize("cut", ["disconnect", "links"])
def test_a_page_whose_links_may_be_missing_keeps_those_before(cut: str, tmp_path: Path) -> None:
    (file := tmp_path / "x.pages.jsonl").write_bytes(
        lines(("", 0, 200, ["a"]), ("a", 1, 200, []))
        + lines(("", 0, 200, []), fetched_at="2026-09-22T00:00:00Z", cut=[cut])
    )
    assert unlinked([file]) == set()


async def test_a_body_that_was_cut_off_replaces_no_whole_one(typed: Typed, tmp_path: Path) -> None:
    await crawl(tmp_path / "crawl-out", 0, visited("a", 0, other("whole")))
    cut = visited("a", 1, HTML[:-60]), visited("b", 1, HTML[:-60])
    broken = [msgspec.structs.replace(one.exchange, truncated="disconnect") for one in cut]
    await crawl(tmp_path / "crawl-out", 1, *(page(one, **HTML_PAGE, cut=("disconnect",)) for one in broken))
    export(typed)
    found = notes(tmp_path)
    assert found.keys() == {"a", "b"} and "# whole" in found["a"][0]


def test_pages_that_handlers_queue_are_linked(tmp_path: Path) -> None:
    (file := tmp_path / "x.pages.jsonl").write_bytes(
        lines(("", 0, 200, []), followed={"product": ["https://site.test/a"]}) + lines(("a", 1, 200, []))
    )
    assert unlinked([file]) == set()


async def test_files_of_unlinked_pages_are_removed_if_asked_for(typed: Typed, tmp_path: Path) -> None:
    names = ("", "a", "b", "orphan")
    pages = [visited(name, 0, other(name or "home"), depth=min(1, len(name))) for name in names]
    links = (Link("https://site.test/a"), Link("https://site.test/b"), Link("https://site.test/orphan"))
    await crawl(tmp_path / "crawl-out", 0, msgspec.structs.replace(pages[0], links=links), *pages[1:])
    assert "4 files" in export(typed, "--skip-unlinked")
    await crawl(tmp_path / "crawl-out", 1, visited("", 1, other("home"), depth=0, links=links[:2]))
    assert "removed" not in export(typed)
    before = notes(tmp_path)
    assert "removed, because of earlier visits: 1 file" in export(typed, "--skip-unlinked")
    after = notes(tmp_path)
    assert after == {name: before[name] for name in ("", "a", "b")}


def test_lines_without_links_are_refused(typed: Typed, tmp_path: Path) -> None:
    asyncio.run(crawl(tmp_path / "crawl-out", 0, visited("a", 0)))
    for file in (tmp_path / "crawl-out").glob("*.pages.jsonl"):
        file.write_bytes(lines(("a", 0, 200, None)))
    words = "--format", "markdown", "--skip-unlinked"
    done = typed("export", "crawl-out", *words)
    assert done.code == 2 and "archive.links" in done.err
    (warc,) = (tmp_path / "crawl-out").glob("*.warc.gz")
    done = typed("export", str(warc), *words)
    assert done.code == 2 and "name its output folder" in " ".join(done.err.split())


async def test_files_of_pages_that_were_only_confirmed_stay(typed: Typed, tmp_path: Path) -> None:
    """Also if the WARC file with their text is not looked at, or is not there any more."""
    out = tmp_path / "crawl-out"
    await crawl(out, 0, visited("a", 0))
    export(typed)
    first = notes(tmp_path)
    (old,) = out.glob("*.warc.gz")
    await crawl(out, 1, visited("a", 1, b"", status=304, body_at=NOON))
    assert "left" not in export(typed, "--since", "2026-09-25")
    assert notes(tmp_path) == first
    old.unlink()
    assert "left as they were, because their text is in other WARC files: 1 page" in export(typed)
    assert notes(tmp_path) == first


async def test_a_file_of_a_page_under_another_name_is_removed(typed: Typed, tmp_path: Path) -> None:
    await crawl(tmp_path / "crawl-out", 0, visited("a", 0))
    export(typed)
    (file,) = (tmp_path / "notes").rglob("*.md")
    own = file.with_name("mine.md")
    own.write_text("my own text")
    copies = [shutil.copytree(file.parent, tmp_path / "notes" / name) / file.name for name in ("backup", "of/b.test")]
    file.rename(file.with_name(f"old-{file.name}"))
    assert "removed, because of earlier visits: 1 file" in export(typed)
    assert {file, own, *copies} <= set((tmp_path / "notes").rglob("*.md"))
    assert not list(file.parent.glob("old-*"))
    await crawl(tmp_path / "crawl-out", 1, visited("a", 1, b"", status=410))
    assert "removed, because of earlier visits: 1 file" in export(typed)
    assert not file.exists()
    assert all(copy.exists() for copy in copies)


async def test_a_body_that_was_archived_for_another_url_counts(typed: Typed, tmp_path: Path) -> None:
    body = HTML + b"<p>" + b"The same long text on two pages. " * 60
    async with archiving(tmp_path / "crawl-out", revisits=8) as archive:
        for one in visited("a", 0, body), visited("copy", 1, body):  # records of one group do not refer to each other
            await archive.write([one])
    (path,) = (tmp_path / "crawl-out").glob("*.warc.gz")
    assert gzip.decompress(path.read_bytes()).count(b"WARC-Type: revisit") == 1
    export(typed)
    assert notes(tmp_path).keys() == {"a", "copy"}
    await crawl(tmp_path / "crawl-out", 2, visited("copy", 2, b"", status=304, body_at=NOON + WEEK_S))
    for path in (tmp_path / "notes").rglob("*.md"):
        path.unlink()
    export(typed)
    assert notes(tmp_path).keys() == {"a", "copy"}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_rows_obey_the_last_word_of_owners(typed: Typed, tmp_path: Path, form: str) -> None:
    out = tmp_path / "crawl-out"
    await crawl(out, 0, visited("a", 0), visited("b", 0, HTML, b"Content-Usage: train-ai=n"))
    words = ("export", "crawl-out", "--format", form, "--usage", "train-ai")
    assert "1 row from 1 WARC file" in typed(*words).out
    await crawl(out, 1, visited("a", 1, HTML, b"Content-Usage: train-ai=n"), visited("b", 1))
    assert "2 rows from 2 WARC files" in typed(*words).out  # both of b, none of a
    assert "already exported" in typed(*words).out


async def test_rows_and_items_since_a_time(typed: Typed, tmp_path: Path) -> None:
    out = tmp_path / "crawl-out"
    item = Item("shop", b'{"sku":1,"price":2}')
    await crawl(out, 0, visited("a", 0, items=(item,), visit="new"))
    await crawl(
        out, 1, visited("a", 1, items=(Item("shop", b'{"sku":1,"price":3}'), Item("shop", b"{}")), visit="changed")
    )
    assert "1 row from 2 WARC files" in typed("export", "crawl-out", "--since", "2026-09-25").out
    assert len(list((tmp_path / "export").glob("*.pages.jsonl"))) == 1
    latest, since = ("--latest", "--key", "sku"), ("--since", "2026-09-25")
    for words, prices in ((latest, [3, None]), (since, [3, None]), ((), [2, 3, None])):
        assert typed("export", "crawl-out", "--items", "shop", *words).code == 0
        rows = [msgspec.json.decode(line) for line in (tmp_path / "export/shop.jsonl").read_bytes().splitlines()]
        assert [row.get("price") for row in rows] == prices
    assert rows[0] == {"sku": 1, "price": 2, "fetched_at": "2026-09-21T14:13:20.123Z", "visit": "new"}


def test_a_key_that_no_item_has_is_refused(typed: Typed, tmp_path: Path) -> None:
    asyncio.run(crawl(tmp_path / "crawl-out", 0, visited("a", 0, items=(Item("shop", b'{"sku":1}'),))))
    done = typed("export", "crawl-out", "--items", "shop", "--latest", "--key", "url")
    assert done.code == 2
    assert "no item of 'shop' has a field 'url'; there is sku" in " ".join(done.err.split())


def test_rules_and_handlers_find_items_on_archived_pages(typed: Typed, tmp_path: Path) -> None:
    pages = visited("a", 0, b"<h1>Lamp</h1><p>1.50"), visited("b", 0, b"", status=404)
    asyncio.run(crawl(tmp_path / "crawl-out", 0, *pages))
    (tmp_path / "shop.toml").write_text('[[extract]]\nname = "shop"\nfields = { name = { css = "h1" } }\n')
    (tmp_path / "handled_pages.py").write_text(
        "from crawler import Router\nrouter = Router()\n@router.on_start\ndef start(crawl): crawl.state['unit'] = 'EUR'\n"
        "@router.handler()\nasync def handle(page, crawl):\n"
        "    await crawl.push('prices', {'price': page.select_text('p'), 'unit': crawl.state['unit']})\n"
        "@router.on_item\ndef change(name, item, crawl):\n"
        "    return item | {'of': 'us'} if name == 'prices' else None\n"
    )
    words = ("--settings", "shop.toml", "--app", "handled_pages:router")
    assert typed("export", "crawl-out", "--out", "again", *words).code == 0
    (file,) = (tmp_path / "again").glob("*.pages.jsonl")
    first, _ = map(msgspec.json.decode, file.read_bytes().splitlines())
    assert first["items"] == {"shop": [{"name": "Lamp"}], "prices": [{"price": "1.50", "unit": "EUR", "of": "us"}]}
    assert typed("export", "again", "--items", "shop", "--format", "csv").code == 0
    assert (tmp_path / "again/shop.csv").read_text().splitlines()[1] == "Lamp,2026-09-21T14:13:20.123Z,"
    (tmp_path / "export").mkdir()
    (own := tmp_path / "export/shop.jsonl").write_text("of the crawl")
    assert typed("export", str(file), "--items", "shop").code == 0
    assert own.read_text() == "of the crawl" and "Lamp" in (tmp_path / "again/shop.jsonl").read_text()
    (warc,) = (tmp_path / "crawl-out").glob("*.warc.gz")
    printed = typed("extract", str(warc), "--settings", "shop.toml")
    assert '"items":{"shop":[{"name":"Lamp"}]}' in printed.out
    refused = typed("extract", str(warc), "--settings", "none.toml")
    assert refused.code != 0


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs/how-to" / page).read_text()
    return re.findall(r"^```sql\n(.*?);\n^```", text, re.MULTILINE | re.DOTALL)


def test_the_view_for_duckdb_knows_all_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are null in all lines that DuckDB looks at."""
    monkeypatch.chdir(tmp_path)
    view = blocks("query-output.md")[0]
    assert re.findall(r"(\w+): '", view) == list(Line.__struct_fields__)
    encoder = PageLines(with_links=True, replica="r")
    row = Row(visited("a", 0))
    early = encoder.encode(row, lambda url, error: None)
    late = visited("a", 1, visit="changed", handler_error="x", items=(Item("shop", b'{"n":1}'),))
    (tmp_path / "crawl-out").mkdir()
    lines = [early] * 20_500 + [encoder.encode(Row(late), lambda url, error: None)]
    (tmp_path / "crawl-out/x.pages.jsonl").write_bytes(b"".join(lines))
    database = duckdb.connect()
    database.sql(view)
    found = database.sql("SELECT visit, handler_error, items->'shop'->0->>'n' FROM pages WHERE visit IS NOT NULL")
    assert found.fetchall() == [("changed", "x", "1")]


def test_one_row_per_url_has_the_text_that_a_304_confirms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    view, query = (next(one for one in blocks("query-output.md") if word in one) for word in ("VIEW", "max_by"))
    with_text = Content(text="The text")
    pages = [
        Row(visited("a", 0), content=with_text),
        Row(visited("a", 1, b"", status=304, title="")),
        Row(visited("b", 0), content=with_text),
        Row(visited("b", 1, b"", status=404, title="")),
    ]
    (tmp_path / "crawl-out").mkdir()
    encoder = PageLines(with_links=True, replica="r")
    lines = [encoder.encode(row, lambda url, error: None) for row in pages]
    (tmp_path / "crawl-out/x.pages.jsonl").write_bytes(b"".join(lines))
    database = duckdb.connect()
    database.sql(view)
    confirmed = ("https://site.test/a", 304, {"title": "T", "text": "The text"})
    assert database.sql(query).fetchall() == [confirmed, ("https://site.test/b", 404, None)]


def test_the_recipe_has_the_text_of_pages_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = Content(markdown="The text")
    later = {
        "same": Row(visited("same", 1, b"", status=304, title="")),
        "changed": Row(visited("changed", 1), content=Content(markdown="New text")),
        "gone": Row(visited("gone", 1, b"", status=404, title="")),
        "flaky": Row(visited("flaky", 1, b"", status=503, title="")),
        "locked": Row(visited("locked", 1, b"", status=401, title="")),
        "secret": Row(denied("secret", 1)),
        "blocked": Row(denied("blocked", 1, "blocked")),
    }
    encoder = PageLines(with_links=True, replica="r")
    rows = [*(Row(visited(name, 0), content=text) for name in later), *later.values()]
    (tmp_path / "crawl-out").mkdir()
    early = encoder.encode(Row(visited("image", 0, content_type="image/png", title="")), lambda url, error: None)
    lines = [early] * 20_500  # from which DuckDB would guess the types
    lines += [encoder.encode(row, lambda url, error: None) for row in rows]
    (tmp_path / "crawl-out/x.pages.jsonl").write_bytes(b"".join(lines))
    (query,) = blocks("recipe-site-to-markdown.md")
    texts = {url.rpartition("/")[2]: text for url, _, text in duckdb.sql(query).fetchall()}
    assert texts == {**dict.fromkeys(("same", "flaky", "locked", "blocked"), "The text"), "changed": "New text"}
