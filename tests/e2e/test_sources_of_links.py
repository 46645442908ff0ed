"""Where a crawl finds pages besides in links: sitemaps, feeds and headers; and what it says if it finds none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.site import TEXT, Reply, Site
from tests.typed import Typed

pytestmark = pytest.mark.e2e

XML = {"Content-Type": "text/xml"}
BLOG = {
    "/robots.txt": Reply("Sitemap: /index.xml\n", headers=TEXT),
    "/": Reply("<link rel=alternate type=application/rss+xml href=/rss>", headers={"Link": "</next>; rel=next"}),
    "/index.xml": Reply("<sitemapindex><sitemap><loc>/list.txt</loc></sitemap><sitemap><loc>/map</loc>", headers=XML),
    "/list.txt": Reply("http://blog.test/in-list\nno URL\n", headers=TEXT),
    "/map": Reply("<urlset><url><loc>/in-map?a&b</loc></url><url><loc>/after</loc></url></urlset>"),
    "/rss": Reply("<rss><item><link>/in-feed</link></item></rss>", headers={"Content-Type": "application/rss+xml"}),
    "/in-feed": Reply("<link rel=alternate type=application/rss+xml href=/comments>"),
}
FOUND = ["/next", "/in-list", "/in-map?a&b", "/after", "/in-feed"]
ITEMS = ["/item0", "/item1", "/item2"]


def crawl(typed: Typed, site: Site, code: int = 0, **more: str) -> str:
    environment = {
        "CRAWLER_FETCH__HOST_MAP": json.dumps(site.host_map("*")),
        "CRAWLER_POLITENESS__DELAY": "0.01",
        **more,
    }
    done = typed("crawl", "http://blog.test/", "--quiet", environment=environment)
    assert done.code == code, done.err
    return done.out + done.err


def test_pages_are_found_in_sitemaps_feeds_and_headers(tmp_path: Path, typed: Typed) -> None:
    with Site(lambda request: BLOG.get(request.path, Reply("page") if request.path in FOUND else None)) as site:
        said = crawl(typed, site)
    assert sorted(site.asked) == sorted({*BLOG, *FOUND})
    assert "nofollow" not in said
    assert "sitemap: 1" in said.replace("\N{NO-BREAK SPACE}", " ")  # the index breaks off


@pytest.mark.parametrize(("robots", "guessed"), [("", True), ("User-agent: *\nDisallow: /sitemap", False)])
def test_a_sitemap_is_looked_for_where_robots_txt_names_none(
    tmp_path: Path, typed: Typed, robots: str, guessed: bool
) -> None:
    pages = {
        "/": Reply("<a href=http://other.blog.test/>other</a>"),
        "/sitemap.xml": BLOG["/map"],
        **({"/robots.txt": Reply(robots, headers=TEXT)} if robots else {}),
    }
    listed = ["/after", "/in-map?a&b"] if guessed else []
    with Site(lambda request: pages.get(request.path)) as site:
        crawl(typed, site, CRAWLER_SCOPE__GUESS_SITEMAPS="true")
        asked = [request.path for request, _ in site.answered if request.host == "blog.test"]
        others = [request.path for request, _ in site.answered if request.host != "blog.test"]
    assert sorted(asked) == sorted(["/", "/robots.txt", *listed, *(["/sitemap.xml"] if guessed else [])])
    assert sorted(others) == ["/", "/robots.txt"]


@pytest.mark.parametrize("answer", [None, Reply("<title>Front</title>Welcome"), Reply("", 503), Reply("", 403)])
def test_a_guessed_sitemap_that_is_none_is_no_page_and_no_news(
    tmp_path: Path, typed: Typed, answer: Reply | None
) -> None:
    pages = {"/": Reply("<title>Front</title>Welcome"), "/sitemap.xml": answer}
    with Site(lambda request: pages.get(request.path)) as site:
        said = crawl(typed, site, CRAWLER_SCOPE__GUESS_SITEMAPS="true", CRAWLER_POLITENESS__TRIES="1")
    assert "/sitemap.xml" in site.asked
    assert "no page but the seeds was found" in " ".join(said.split())
    assert "404" not in said
    assert "sitemap" not in said.replace("give its sitemap", "")
    found = json.loads(typed("status", "--json").out)
    assert (found["done"], found["denied"], found["dead"]) == (1, 1, 0)
    assert "no_sitemap" in typed("why", "http://blog.test/sitemap.xml").out


def test_a_crawl_that_finds_only_its_seed_says_what_may_help(tmp_path: Path, typed: Typed) -> None:
    anchors = "".join(f"<a href={href}>" for href in ("#top", "/x", "/y", "/x"))
    front = f"<meta name=robots content='index,nofollow'><link rel=canonical href=/c>{anchors}"
    with Site(lambda request: Reply(front) if request.path == "/" else None) as site:
        said = " ".join(crawl(typed, site).split())
        assert "no page but the seeds was found: 2 links say nofollow" in said
        assert json.loads(typed("status", "--json").out)["dropped"] == {"nofollow": 2}
        assert "the link says nofollow, as 2 links" in " ".join(typed("why", "http://blog.test/x").out.split())
        about = typed("why", "http://blog.test/").out
        assert "canonical" in about
        assert "http://blog.test/c" in about


def test_a_crawl_whose_handlers_fail_says_how_to_go_on(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / "fails.py").write_text(
        "from crawler import Router\nrouter = Router()\n@router.handler('/item')\ndef item(page, crawl): page.no[1]\n"
    )
    pages = {"/": "".join(f"<a href=/item{number}>" for number in range(3)), **dict.fromkeys(ITEMS, "An item")}
    with Site(lambda request: pages.get(request.path)) as site:
        said = " ".join(crawl(typed, site, CRAWLER_HANDLERS__APP="fails:router").split())
    assert "3 pages failed in handlers: repair them, then `crawler dead requeue --reason handler_failed`" in said
    assert "no page but the seeds" not in said


def test_a_crawl_that_gets_only_a_login_page_says_so(typed: Typed) -> None:
    """All pages redirect to the login page, as they do when a session has ended."""
    login = Reply("<title>Log in</title><form><input name=user></form><a href=/inside>back</a>")
    with Site(lambda request: login if request.path == "/login" else Reply("", 302, {"Location": "/login"})) as site:
        said = " ".join(crawl(typed, site).split())
    assert "2 URLs redirected: if to a login, the session that a rule in [[requests]] sends may have ended" in said


@pytest.mark.parametrize(("status", "words"), [(401, "401 (Unauthorized)"), (403, "403 (Forbidden)")])
def test_a_site_that_refuses_its_front_page_is_told(typed: Typed, status: int, words: str) -> None:
    with Site(lambda request: Reply("no", status) if request.path == "/" else None) as site:
        said = " ".join(crawl(typed, site, code=1).split())
    assert f"the site refused 1 with {words}: if it wants a login, a rule in [[requests]] sends one" in said
