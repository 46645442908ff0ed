"""Sites that are configured badly: what browsers read of them is read, and what cannot be read has a reason in words."""

from __future__ import annotations

import gzip
import json
import socket
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from typing import Any

import pytest

from crawler import Crawl, LinkKind, Page
from crawler.errors import UserError
from tests.fetch.loopback import LoopbackServer

MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class RawSite(LoopbackServer):
    """Answers a request for a path with the bytes in `responses`."""

    def __init__(self, responses: dict[str, bytes], **options: Any) -> None:
        super().__init__(**options)
        self.responses = responses
        self.asked: list[str] = []

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        self.asked.append(path)
        writer.write(self.responses.get(path, MISSING))
        await writer.drain()


def response(body: bytes, *lines: bytes, media: bytes = b"text/html") -> bytes:
    head = (b"HTTP/1.1 200 OK", b"Content-Type: " + media, b"Content-Length: %d" % len(body), *lines, b"", b"")
    return b"\r\n".join(head) + body


async def pages_of(site: RawSite, folder: Path, seed: str = "http://a.test/", **tables: Any) -> dict[str, Page]:
    """The pages of a crawl from `seed`, by path."""
    settings = {
        "fetch": {"host_map": [f"*=127.0.0.1:{site.port}"]},
        "politeness": {"delay": 0, "tries": 1, "backoff_base": 0.01},
        "replica": {"data_dir": str(folder / "data"), "out": str(folder / "out")},
    }
    async with Crawl([seed], settings=settings | tables) as crawl:
        return {"/" + page.url.split("/", 3)[3]: page async for page in crawl}


def lines_in(folder: Path) -> dict[str, dict[str, Any]]:
    texts = [path.read_text() for path in (folder / "out").glob("*.pages.jsonl")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return {"/" + line["url"].split("/", 3)[3]: line for line in lines}


async def test_what_was_repaired_is_in_the_line_and_is_counted(tmp_path: Path) -> None:
    page = b"<a href=/next-of-%b>next</a>"
    names = {
        "head": response(page % b"head", b"X-XSS-Protection=1;"),
        "framing": response(page % b"framing", b"Content-Length: %d" % len(page % b"framing")),
        "coding": response(page % b"coding", b"Content-Encoding: utf-8"),
        "unnamed": response(gzip.compress(page % b"unnamed")),
        "both": response(page % b"both", b"no colon", b"Content-Encoding: gzip"),
        "good": response(gzip.compress(page % b"good"), b"Content-Encoding: gzip"),
    }
    start = response("".join(f"<a href=/{name}>" for name in names).encode())
    async with RawSite({"/": start} | {f"/{name}": sent for name, sent in names.items()}) as site:
        pages = await pages_of(site, tmp_path)
    assert {f"/next-of-{name}" for name in names} <= set(site.asked)
    repaired = {
        "/head": ("head",),
        "/framing": ("framing",),
        "/coding": ("coding",),
        "/unnamed": ("coding",),
        "/both": ("head", "coding"),
    }
    assert {path: page.repaired for path, page in pages.items() if page.repaired} == repaired
    assert {path: tuple(line["repaired"]) for path, line in lines_in(tmp_path).items() if line["repaired"]} == repaired


async def test_a_refresh_in_the_header_is_a_link_like_one_in_a_meta_element(tmp_path: Path) -> None:
    sent = {
        "/": response(b"<a href=/quoted><a href=/no><a href=/bad>", b"Refresh: 0; url=http://a.test/to-plain"),
        "/quoted": response(b"%PDF", b"Refresh: 3;URL='/to-quoted'", media=b"application/pdf"),
        "/no": response(b"<meta name=robots content=nofollow>", b"Refresh: 0; url=/to-no"),
        "/bad": response(b"", b"Refresh: 0; url=javascript:void(0)"),
        "/to-plain": response(b"", b"Refresh: 5"),
    }
    async with RawSite(sent) as site:
        pages = await pages_of(site, tmp_path)
    assert {path for path in site.asked if path.startswith("/to-")} == {"/to-plain", "/to-quoted"}
    assert [(link.url, link.kind) for link in pages["/quoted"].links] == [("http://a.test/to-quoted", LinkKind.LINK)]


async def test_bytes_in_a_location_are_sent_back_as_they_are(tmp_path: Path) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"
    targets = {
        b"/caf\xe9": "/caf%E9",
        "/café".encode(): "/caf%C3%A9",
        b"/\xe9/\xc3\xa9": "/%E9/%C3%A9",
        b"/q?s=\xcd\xbc": "/q?s=%CD%BC",
    }
    sent = {f"/{number}": moved % target for number, target in enumerate(targets)}
    sent["/empty"] = moved.replace(b"Content-Length: 0\r\n\r\n", b"Content-Length: 18\r\n\r\n<title>here</title>") % b""
    sent["/"] = response("".join(f"<a href={path}>" for path in sent).encode())
    async with RawSite(sent) as site:
        pages = await pages_of(site, tmp_path)
    assert (pages["/empty"].reason, site.asked.count("/empty")) == ("redirect", 1)
    assert set(targets.values()) <= set(site.asked)
    assert pages["/0"].detail == "to http://a.test/caf%E9"
    assert lines_in(tmp_path)["/0"]["detail"] == "to http://a.test/caf%E9"


async def test_a_rule_names_the_encoding_of_a_site(tmp_path: Path) -> None:
    page = "<meta charset=utf-8><title>Библиотека</title><a href='/q?s=я'>".encode("windows-1251")
    async with RawSite({"/": response(page)}) as site:
        rules = [{"host": "b.test", "encoding": "koi8-r"}, {"host": "a.test", "encoding": "windows-1251"}]
        pages = await pages_of(site, tmp_path, requests=rules)
    assert (pages["/"].title, pages["/"].charset) == ("Библиотека", "windows-1251")
    assert site.asked == ["/robots.txt", "/", "/q?s=%FF"]
    (records,) = (tmp_path / "out").glob("*.warc.gz")
    assert site.responses["/"] in gzip.decompress(records.read_bytes())  # the head is as it was sent


async def test_a_rule_with_an_unknown_encoding_stops_the_start(tmp_path: Path) -> None:
    async with RawSite({}) as site:
        with pytest.raises(UserError, match=r"requests\.0\.encoding: klingon is no encoding"):
            await pages_of(site, tmp_path, requests=[{"host": "a.test", "encoding": "klingon"}])


async def test_why_a_request_failed_is_said_in_words(tmp_path: Path) -> None:
    sent = {
        "/": response(b"<a href=/two><a href=/none><a href=/long>"),
        "/two": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "/none": b"",
        "/long": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    }
    async with RawSite(sent) as site:
        await pages_of(site, tmp_path)
    details = {path: (line["reason"], line["detail"]) for path, line in lines_in(tmp_path).items() if path != "/"}
    assert details == {
        "/two": ("protocol", "several values of Content-Length"),
        "/none": ("disconnected", "the server closed the connection"),
        "/long": ("protocol", "the response does not begin with HTTP/"),
    }


async def test_a_robots_txt_that_cannot_be_fetched_says_why_on_each_of_its_pages(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with RawSite({}) as site:
        site.port = port
        pages = await pages_of(site, tmp_path)
    assert pages["/"].reason == "robots_unreachable"
    assert pages["/"].detail == "robots.txt: refused"
