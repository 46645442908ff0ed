"""A scheduled sitemap is fetched again only if it has changed, and the archive says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.harness import crawling, quick, wait_until
from tests.sinks import readers
from tests.site import Reply, Request, Site

pytestmark = pytest.mark.e2e

ETAG = '"version-1"'
SITEMAP = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://site.test/listed</loc></url></urlset>'
BODIES = {"/": b"<p>home", "/listed": b"<p>listed", "/map.xml": SITEMAP}


def respond(request: Request) -> Reply | None:
    """It knows validators."""
    if request.headers["If-None-Match"] == ETAG:
        return Reply(status=304, headers={"ETag": ETAG})
    media = "text/xml" if request.path.endswith(".xml") else "text/html"
    body = BODIES.get(request.path)
    return Reply(body or b"", 404 if body is None else 200, {"Content-Type": media, "ETag": ETAG})


def test_a_sitemap_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    with Site(respond) as site:
        schedule = '\n[[schedule]]\nevery = "1s"\nsitemap = "http://site.test/map.xml"\n'
        with crawling(tmp_path, "http://site.test/", quick(tmp_path, site.host_map("site.test")) + schedule):
            wait_until(lambda: site.times("/map.xml") >= 3 and site.times("/listed"), "three readings of the sitemap")
    asked = [(request.path, request.headers["If-None-Match"]) for request, _ in site.answered]
    conditions = [condition for path, condition in asked if path == "/map.xml"]
    assert conditions[0] is None
    assert set(conditions[1:]) == {ETAG}
    assert {condition for path, condition in asked if path != "/map.xml"} == {None}
    assert site.times("/listed") == 1
    (file,) = readers.warc_files(tmp_path / "out")
    readers.check(file)
    of_sitemap = [record for record in readers.by_warcio(file) if record.url.endswith("/map.xml")]
    first, *later = [record for record in of_sitemap if record.type in ("response", "revisit")]
    assert (first.type, first.payload) == ("response", SITEMAP)
    assert len(later) >= 2
    for record in later:
        assert record.headers["WARC-Profile"].endswith("/revisit/server-not-modified")
        assert record.headers["WARC-Refers-To"] == first.headers["WARC-Record-ID"]
    statuses = [line["status"] for line in readers.lines(tmp_path / "out") if str(line["url"]).endswith("/map.xml")]
    assert statuses == [200] + [304] * len(later)
