"""A domain that is seeded during the crawl belongs to it from then on, including links that were seen before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.harness import CRAWLER, Running, crawling, quick, wait_until
from tests.site import Request, Site

pytestmark = pytest.mark.e2e


class Web(Site):
    """Two sites: a.test has pages without end, and each links to the same page of b.test."""

    def respond(self, request: Request) -> str | None:
        if request.host == "a.test" and request.path[1:].isdigit():
            return f'<a href=/{int(request.path[1:]) + 1}><a href="http://b.test/linked">'
        return None if request.path == "/robots.txt" else "<p>a page"

    def pages_of(self, host: str) -> list[str]:
        return [one.path for one, status in self.answered if one.host == host and status == 200]


def test_links_to_a_domain_that_is_seeded_later_are_followed(tmp_path: Path) -> None:
    with Web() as web:
        settings = quick(tmp_path, web.host_map("*.test"), scope={"kind": "seeds"})
        with crawling(tmp_path, "http://a.test/0", settings) as options:
            wait_until(lambda: len(web.pages_of("a.test")) >= 5, "pages that link to a domain outside the crawl")
            assert not web.pages_of("b.test")
            seeded = Running([*CRAWLER, "seed", *options, "http://b.test/"], tmp_path, "seed-b", {}).wait()
            assert seeded.code == 0, seeded.err
            wait_until(lambda: web.times("/linked"), "the page that was linked before")
    assert web.times("/linked") == 1
