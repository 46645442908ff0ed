"""The JSON lines."""

from __future__ import annotations

from pathlib import Path

from crawler.page import Link, Outcome
from crawler.sinks.archive import Archive
from crawler.sinks.warc import sha1
from tests.sinks import readers
from tests.sinks.values import NOON, exchange, page, settings, varied_exchanges


async def test_each_line_finds_its_response_in_the_warc_file(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await archive.write([page(made) for made in varied_exchanges()], [exchange("robots.txt", b"User-agent: *")])
    await archive.write([page(exchange("later", b"later"))])
    await archive.stop()
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
    archive = Archive(settings(folder, **more), wall=lambda: NOON)
    await archive.start()
    await archive.write(pages)  # type: ignore[arg-type]
    await archive.stop()
    return readers.lines(folder)
