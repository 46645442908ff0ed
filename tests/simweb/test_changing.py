"""The server's changing pages, their validators and sitemaps."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from tests.simweb.features import Change, Features, RobotsKind, Validity
from tests.simweb.server import RequestLog, SimWebServer
from tests.simweb.world import World

NOW = 1_700_000_000.0


def world(**features: Any) -> World:
    plain = replace(Features.plain(), answers={}, robots={}, private=0, links=2, abroad=0.0)
    return World(1, 2, 20, replace(plain, **features))


def asked(server: SimWebServer, url: str, now: float = NOW, **fields: str) -> tuple[int, str, bytes]:
    """Status, head and body of the answer to a request for `url`."""
    host, _, path = url.removeprefix("http://").partition("/")
    request = {name.replace("_", "-"): value for name, value in fields.items()}
    answer = server.answer(host, f"/{path}", request, now)
    head, _, body = b"".join(step for step in answer.steps if isinstance(step, bytes)).partition(b"\r\n\r\n")
    return answer.status, head.decode("latin-1"), body


def test_a_page_changes_and_its_etag_tells_it() -> None:
    web = world(changes={Change.PERIODIC: 1.0}, change_s=(60.0, 60.0), validities={Validity.ETAG: 1.0})
    server = SimWebServer(web, RequestLog())
    url = web.sites[0].slot(3).url
    status, head, body = asked(server, url)
    etag = re.search(r'ETag: ("\w+")', head)
    assert status == 200 and etag and b"<p>version " in body
    assert [asked(server, url, NOW + late, if_none_match=etag[1])[0] for late in (0.0, 60.0)] == [304, 200]
    assert asked(server, url, NOW + 60)[2] != body


def test_a_304_may_have_a_body_that_nobody_should_read() -> None:
    web = world(changes={Change.NEVER: 1.0}, validities={Validity.WORDY: 1.0})
    server = SimWebServer(web, RequestLog())
    url = web.sites[0].slot(3).url
    etag = web.resource(url).changing.fields(NOW)["ETag"]  # type: ignore[union-attr]
    status, head, body = asked(server, url, if_none_match=etag)
    assert status == 304 and f"Content-Length: {len(body)}" in head and b"<html" in body


@pytest.mark.parametrize("lying", [0.0, 1.0])
def test_a_sitemap_says_when_its_pages_have_changed_or_lies(lying: float) -> None:
    web = world(
        changes={Change.PERIODIC: 1.0},
        change_s=(600.0, 600.0),
        sitemaps=1.0,
        robots={RobotsKind.ALLOW: 1.0},
        dated=True,
        lying=lying,
    )
    server = SimWebServer(web, RequestLog())
    _, _, body = asked(server, "http://d00000.test/sitemap-0.xml.gz")
    text = gzip.decompress(body).decode()
    found = dict(re.findall(r"<loc>([^<]*)</loc><lastmod>([^<]*)</lastmod>", unescape(text)))
    pages = [web.resource(url) for url in found]
    assert len(pages) > 5 and all(page and page.changing for page in pages)
    assert ({*found.values()} == {"2023-11-14T22:13:20+00:00"}) == bool(lying)
