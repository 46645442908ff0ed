"""Rendering in a crawl: what scripts make of a page is the page, and what they ask for is as polite as the crawl."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fastwarc.warc import ArchiveIterator

from crawler import Crawl, Handle, ParsedPage, Router
from crawler.audit.check import Rules, audit
from crawler.audit.records import read_archive
from crawler.browser.process import find_browser
from crawler.errors import BrowserFailed
from crawler.identity.keys import make_key
from crawler.identity.web_bot_auth import key_set
from crawler.sinks.reader import read_rows
from politeness.delay import DelayPolicy
from tests.identity.signed_requests import DIRECTORY
from tests.identity.site import Site as Verifier
from tests.site import Reply, Request, Site
from tests.typed import Finished, Typed

try:
    find_browser()
except BrowserFailed:
    pytest.skip("needs Debian's chromium-headless-shell", allow_module_level=True)

APP = """fetch('/api/items').then(r => r.json()).then(async items => {
    document.title = 'Shop';
    for (const id of items) document.body.insertAdjacentHTML('beforeend', `<p><a href="/item/${id}">Item ${id}</a>`);
    for (const url of ['/private/x', 'http://cdn.test/private/y', 'http://cdn.test/data'])
        await fetch(url).catch(() => 0);
    await fetch('/api/order', {method: 'POST', body: 'x'}).catch(() => 0);
    history.pushState({}, '', '/pushed') })"""


def shop(request: Request) -> Reply | str | None:
    path = request.path
    if path == "/robots.txt":
        return "User-agent: *\nDisallow: /private"
    if path in ("/", "/item/1", "/item/2"):
        return "<title>Empty</title><a href=/static-link>x</a><iframe src=/frame></iframe><script src=/app.js></script>"
    if path == "/app.js":
        return Reply(APP, headers={"Content-Type": "text/javascript", "Cache-Control": "max-age=60"})
    if path == "/api/items":
        return Reply("[1, 2]", headers={"Content-Type": "application/json"})
    if path == "/data":
        return Reply("{}", headers={"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"})
    if path in ("/frame", "/static-link", "/pushed"):
        return f"<p>{path}"
    return None


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(shop) as site:
        yield site


@pytest.fixture
def settings(site: Site, tmp_path: Path) -> dict[str, dict[str, Any]]:
    settings = site.settings(tmp_path)
    settings["fetch"]["host_map"] = site.host_map("shop.test", "cdn.test")
    settings["render"] = {"mode": "always", "settle": 0.2}
    return settings


def crawled(settings: dict[str, Any], router: Router | None = None) -> Crawl:
    crawl = Crawl(["http://shop.test/"], handlers=router, settings=settings)
    crawl.run()
    return crawl


def test_a_rendered_page_has_its_links_data_and_records(
    site: Site, settings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    router = Router()

    @router.handler("test/$")
    def home(page: ParsedPage, crawl: Handle) -> None:
        (items,) = page.resources("xhr", "/api/items")
        assert page.rendered is not None and page.exchange is not None
        crawl.push(
            "homes",
            {
                "shown": len(page.select("p")),
                "sent": len(page.static.select("p")),
                "data": items.json(),
                "refused": dict(page.rendered.refused),
                "title": page.title,
                "body": b"Item" in page.exchange.body,
            },
        )

    crawl = crawled(settings, router)
    refused = {"robots": 2, "method": 1}
    home_item = {"shown": 2, "sent": 0, "data": [1, 2], "refused": refused, "title": "Shop", "body": False}
    assert list(crawl.items("homes")) == [home_item]
    assert crawl.stats.done == {"ok": 6}  # home, two items, the static link, the frame, and where the history led
    asked = [request.path for request, _ in site.answered if request.host == "shop.test"]
    assert asked.count("/app.js") == 1 and asked.count("/api/items") == 3
    assert not {"/private/x", "/api/order"} & set(asked) and not site.times("/private/y", host="cdn.test")
    assert site.times("/robots.txt", host="cdn.test") == 1

    (warc,) = (tmp_path / "out").glob("*.warc.gz")
    assert subprocess.run([sys.executable, "-m", "warcio.cli", "check", str(warc)], check=False).returncode == 0
    with warc.open("rb") as file:
        records = [record.headers.asdict() for record in ArchiveIterator(file, parse_http=False)]
    (dom,) = [one for one in records if one.get("WARC-Target-URI") == "urn:dom:http://shop.test/"]
    of_page = [one for one in records if one.get("WARC-Page-ID") == dom["WARC-Page-ID"]]
    types = {one.get("WARC-Resource-Type") for one in of_page if one["WARC-Type"] == "response"}
    assert types == {None, "script", "xhr", "frame"}
    rows = {row.page.url: row for row in read_rows(warc)}
    assert len(rows) == 6
    assert rows["http://shop.test/"].page.title == "Shop" and rows["http://shop.test/"].columns["rendered"] == "done"
    (lines,) = (tmp_path / "out").glob("*.pages.jsonl")
    line = next(one for one in map(json.loads, lines.read_text().splitlines()) if one["url"] == "http://shop.test/")
    assert (line["rendered"], line["refused"], line["cut"]) == ("done", 3, [])

    wacz = tmp_path / "shop.wacz"
    command = ["export", str(tmp_path / "out"), "--format", "wacz", "--out", str(wacz)]
    subprocess.run([sys.executable, "-m", "crawler", *command], check=True)
    with zipfile.ZipFile(wacz) as packed:
        files = ("pages/pages.jsonl", "pages/extraPages.jsonl")
        listed = [json.loads(one) for file in files for one in packed.read(file).splitlines()]
    assert len([one for one in listed if "url" in one]) == 6


LIST = """<title>{0}</title><p>{1}<script>fetch('/of/{0}').then(r => r.json()).then(ids => {{ for (const id of ids)
    document.body.insertAdjacentHTML('beforeend', `<a href="/thing/${{id}}">Thing</a> `) }})</script>"""


def mixed(request: Request) -> Reply | str | None:
    kind, _, number = request.path[1:].partition("/")
    if request.path == "/":
        paths = [f"/{kind}/{number}" for kind in ("doc", "list", "shell") for number in range(12)]
        return "<title>Home</title>" + "".join(f"<a href={path}>x</a>" for path in paths)
    if kind == "doc":
        return f"<title>{number}</title><p>{f'All of document {number} is here. ' * 40}<script>var x = 1</script>"
    if kind == "list":
        return LIST.format(number, f"Prose about the things of list {number}. " * 10)
    if kind == "of":
        ids = [f"{number}-{place}" for place in range(5)]
        return Reply(json.dumps(ids), headers={"Content-Type": "application/json"})
    if kind == "shell":
        fill = f"document.getElementById('root').innerHTML = '<p>All that there is to say of part {number}'"
        return f"<title>App</title><div id=root></div><script>{fill}</script>"
    return f"<title>{request.path}</title><p>A thing." if kind == "thing" else None


def test_with_auto_only_the_pages_that_need_it_are_rendered(
    settings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    with Site(mixed) as site:
        settings["fetch"] |= {"host_map": site.host_map("shop.test"), "ports": [site.port]}
        settings["render"]["mode"] = "auto"
        crawl = crawled(settings)
    assert crawl.stats.done == {"ok": 1 + 3 * 12 + 12 * 5}
    (lines,) = (tmp_path / "out").glob("*.pages.jsonl")
    why: dict[str, list[str]] = {"doc": [], "list": [], "shell": [], "thing": []}
    for line in map(json.loads, lines.read_text().splitlines()):
        if line["rendered"]:
            why[line["url"].split("/")[3]].append(line["rendered_why"])
    assert why["shell"] == ["shell"] * 12
    assert sorted(why["list"]) == ["sample"] * 2 + ["shape"] * 10
    assert set(why["doc"]) == {"sample"} and len(why["doc"]) <= 5
    assert not why["thing"]  # no script


def test_a_sample_that_shows_less_is_the_page_that_the_server_has_sent(
    site: Site, settings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    wall = "<script>document.body.innerHTML = '<a href=/login>Please log in</a>'</script>"
    site.respond = lambda request: {  # type: ignore[method-assign, assignment]
        "/": f"<title>Shop</title>{'<p>All of it is here. ' * 40}<a href=/thing>thing</a>{wall}",
        "/thing": "A thing",
        "/login": "A form",
    }.get(request.path)
    settings["render"]["mode"] = "auto"
    settings["archive"] = {"text": "text"}
    assert crawled(settings).stats.done == {"ok": 3}
    (lines,) = (tmp_path / "out").glob("*.pages.jsonl")
    home = next(line for line in map(json.loads, lines.read_text().splitlines()) if line["url"].endswith("test/"))
    assert (home["rendered"], home["rendered_why"], home["text"].count("here")) == ("done", "sample", 40)
    assert "log in" not in home["text"] and home["decoded_size"] > 800


SITE_JS = """if (location.pathname.startsWith('/list/'))
    fetch('/of' + location.pathname).then(r => r.json()).then(ids => { for (const id of ids)
        document.body.insertAdjacentHTML('beforeend', `<a href="/thing/${id}">Thing</a> `) })"""
KINDS = [f"{first}{second}" for first in "abcde" for second in "xyz"]


@pytest.mark.long
def test_lists_are_found_that_look_like_the_other_pages_of_a_site(
    settings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """The same script, which fills them, is on all pages, and nothing else tells them apart."""

    def alike(request: Request) -> Reply | str | None:
        kind, _, name = request.path[1:].partition("/")
        if request.path == "/":
            paths = [f"/{kind}/{number}" for number in range(4) for kind in (*KINDS, "list")]
            return "<title>Home</title>" + "".join(f"<a href={path}>x</a>" for path in paths)
        if request.path == "/site.js":
            return Reply(SITE_JS, headers={"Content-Type": "text/javascript", "Cache-Control": "max-age=60"})
        if kind == "of":
            return Reply(json.dumps([f"{name[5:]}-{place}" for place in range(9)]))
        if kind == "thing":
            return f"<title>{name}</title><p>A thing, {name}."
        if kind not in (*KINDS, "list"):
            return None
        return f"<title>{request.path}</title><p>{f'{name} of {kind} ' * 90}<script src=/site.js></script>"

    with Site(alike) as site:
        settings["fetch"] |= {"host_map": site.host_map("shop.test"), "ports": [site.port]}
        settings["render"] = {"mode": "auto", "settle": 0.5}  # of a busy machine
        crawl = crawled(settings)
    assert crawl.stats.done == {"ok": 1 + 4 * (len(KINDS) + 1) + 4 * 9}


def test_another_replica_knows_which_pages_need_no_browser(
    settings: dict[str, dict[str, Any]], typed: Typed, tmp_path: Path
) -> None:
    def prose(request: Request) -> Reply | str | None:
        links = "".join(f"<a href=/doc/{number}>x</a>" for number in range(40)) if request.path == "/" else ""
        return f"<title>{request.path}</title>{links}{'<p>All of it is here. ' * 40}<script>var x = 1</script>"

    sampled = []
    with Site(prose) as site:
        settings["fetch"] |= {"host_map": site.host_map("shop.test"), "ports": [site.port]}
        settings["render"]["mode"] = "auto"
        for pages in (21, 0):
            limited = {**settings, "limits": {"max_pages": pages}}
            done = typed_crawl(typed, limited, "crawl", "http://shop.test/", "--apply-settings")
            assert done.code == 0, done.err
            lines = [line for file in tmp_path.rglob("*.pages.jsonl") for line in file.read_text().splitlines()]
            sampled.append(sum(json.loads(line)["rendered_why"] == "sample" for line in lines))
    assert 4 <= sampled[0] <= sampled[1] <= sampled[0] + 2


def test_the_summary_says_why_pages_were_rendered_and_try_what_auto_would_do(tmp_path: Path) -> None:
    with Site(mixed) as site:
        place = [
            "--host-map",
            site.host_map("shop.test")[0],
            "--port",
            str(site.port),
            "--delay",
            "0",
            "--render",
            "auto",
        ]
        command = [sys.executable, "-m", "crawler", "crawl", "http://shop.test/", "--out", str(tmp_path), *place]
        crawled = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
        found = {}
        for path in ("doc/1", "shell/1", "thing/1-1"):
            url = f"http://shop.test/{path}"
            words = ["try", url, "--host-map", site.host_map("shop.test")[0], "--port", str(site.port), "--render"]
            tried = subprocess.run(
                [sys.executable, "-m", "crawler", *words], check=True, capture_output=True, text=True, cwd=tmp_path
            )
            (found[path],) = [line for line in tried.stdout.splitlines() if line.startswith("rendered with")]
    shown = " ".join((crawled.stdout + crawled.stderr).split())
    assert re.search(r"rendered [23]\d ", shown) and "shell 12, shape 10, sample " in shown
    assert "these need a browser: shop.test/shell/* 12, shop.test/list/* 10" in shown
    assert {path: text.split(": ")[1].split(":")[0] for path, text in found.items()} == {
        "doc/1": "samples of its shape tell",
        "shell/1": "yes",
        "thing/1-1": "no",
    }


def test_requests_of_a_page_come_two_at_a_time_and_lengthen_the_delay(
    site: Site, settings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """The site's log is the arbiter, and the audit of the archive says the same."""
    settings["politeness"] |= {"delay": 0.5, "response_share": 0.0}
    settings["render"] |= {"delay_share": 0.5, "never": ["/item/", "/static", "/frame", "/pushed"]}
    crawled(settings)
    times = [(request.path, request.at) for request, _ in site.answered if request.host == "shop.test"]
    paths = [path for path, _ in times]
    parts = [times[paths.index(path)][1] for path in ("/app.js", "/frame", "/api/items")]
    assert max(parts) - min(parts) < 0.5  # at once, as parts of the visit
    last = max(parts)
    after = min(at for path, at in times if path in ("/item/1", "/item/2", "/static-link", "/pushed"))
    assert after - last > 0.5 * (1 + 0.5 * 3) - 0.05
    pages = [at for path, at in times if path.startswith(("/item", "/static", "/pushed"))]
    assert min(later - earlier for earlier, later in pairwise(pages)) > 0.49
    archive = read_archive(tmp_path / "out")
    assert audit(archive, Rules(DelayPolicy(0.5), None, "peercrawl")).breaches == []
    assert audit(archive, Rules(DelayPolicy(0.5), None, "peercrawl", render_parallel=0)).counts["render_parallel"] > 2


def test_without_a_browser_pages_wait_or_are_taken_as_they_are(site: Site, settings: dict[str, dict[str, Any]]) -> None:
    settings["replica"]["browser"] = "/bin/false"
    settings["render"]["without"] = "static"
    crawl = crawled(settings)
    assert crawl.stats.done == {"ok": 3}  # home, the static link, and the frame
    assert not site.times("/app.js")


def typed_crawl(typed: Typed, settings: dict[str, Any], *words: str) -> Finished:
    return typed(*words, environment={f"CRAWLER_{name.upper()}": json.dumps(of) for name, of in settings.items()})


@pytest.mark.long
def test_pages_that_wait_for_a_browser_are_rendered_when_there_is_one(
    site: Site, settings: dict[str, dict[str, Any]], typed: Typed
) -> None:
    broken = {**settings, "replica": {**settings["replica"], "browser": "/bin/false"}, "limits": {"max_time": 10}}
    waited = typed_crawl(typed, broken, "crawl", "http://shop.test/")
    assert "machine_failed" in waited.err and "/bin/false does not start" in waited.err
    assert not site.times("/app.js")
    unlimited = {**settings, "limits": {"max_time": 0}}
    done = typed_crawl(typed, unlimited, "crawl", "http://shop.test/", "--apply-settings")
    assert done.code == 0, done.err
    status = json.loads(typed_crawl(typed, unlimited, "status", "--json").out)
    assert (status["done"], status["dead"]) == (6, 0)
    assert site.times("/app.js")


def test_a_blocked_domain_is_not_asked_by_pages_of_others(
    site: Site, settings: dict[str, dict[str, Any]], typed: Typed, tmp_path: Path
) -> None:
    for words in (("seed", "http://shop.test/"), ("block", "cdn.test"), ("run", "--until-empty")):
        done = typed_crawl(typed, settings, *words)
        assert done.code == 0, done.err
    assert site.times("/api/items") >= 3
    assert "cdn.test" not in {request.host for request, _ in site.answered}


def test_requests_of_pages_are_signed(site: Site, settings: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    key = make_key(tmp_path / "key.pem")
    settings["identity"] = {"keys": [str(tmp_path / "key.pem")], "directory": DIRECTORY}
    crawled(settings)
    verifier = Verifier({DIRECTORY: key_set([key])})
    assert {"/app.js", "/api/items", "/data"} <= set(site.asked)
    for request, _ in site.answered:
        agent, received, signature = (request.headers[f"Signature{name}"] for name in ("-Agent", "-Input", ""))
        at = time.time() - time.monotonic() + request.at
        verifier.accept(request.method, request.host, request.path, (agent, received, signature), at)


def test_scripts_see_the_cookies_of_their_site_and_records_do_not(tmp_path: Path) -> None:
    """Many applications copy a cookie into a field against forged requests."""
    script = """fetch('/api', {headers: {'X-XSRF-TOKEN': decodeURIComponent(document.cookie.split('XSRF=')[1])}})
        .then(r => r.text()).then(t => document.body.append(t))"""

    def respond(request: Request) -> Reply | str | None:
        if request.path == "/api":
            return "the data" if request.headers["X-XSRF-TOKEN"] == "lemon cookie" else Reply(status=403)
        cookies = {"Set-Cookie": "XSRF=lemon%20cookie; Path=/", "set-cookie": "id=plum-cookie; HttpOnly"}
        return Reply(f"<p><script>{script}</script>", headers=cookies) if request.path == "/" else None

    with Site(respond) as site:
        settings = {**site.settings(tmp_path), "render": {"mode": "always"}, "archive": {"text": "text"}}
        rule = {"origin": "http://a.test", "over_http": True, "cookies": True}
        crawl = Crawl(["http://a.test/"], settings={**settings, "requests": [rule]})
        assert crawl.run().done == {"ok": 1}
    (asked,) = (request for request, _ in site.answered if request.path == "/api")
    assert sorted(asked.headers["Cookie"].split("; ")) == ["XSRF=lemon%20cookie", "id=plum-cookie"]
    (warc,) = (tmp_path / "out").glob("*.warc.gz")
    with warc.open("rb") as file:
        records = [record.reader.read() for record in ArchiveIterator(file, parse_http=False)]
    assert any(b"the data" in record for record in records)
    assert not [record for record in records if b"lemon" in record or b"plum" in record]


def test_what_a_browser_has_loaded_is_no_requisite_of_other_pages(
    site: Site, settings: dict[str, dict[str, Any]]
) -> None:
    """What its style sheets and frames embed is one, as far as the browser has not loaded it, too, unless they are answers
    to errors or say noarchive."""
    markup = (
        "<link rel=stylesheet href=/s.css><script src=/s.js></script><iframe src=/frame></iframe><a href=/two>x</a>"
        "<link rel=stylesheet href=/missing.css><iframe src=/frame-not-kept></iframe>"
    )
    site.respond = lambda request: {  # type: ignore[method-assign, assignment]
        "/": markup,
        "/two": markup,
        "/s.js": Reply("1", headers={"Content-Type": "text/javascript"}),
        "/s.css": Reply("p { background: url(/of-style.png) }", headers={"Content-Type": "text/css"}),
        "/missing.css": Reply("p { background: url(/of-error.png) }", 404, {"Content-Type": "text/css"}),
        "/frame": "<img src=/of-frame.png>",
        "/frame-not-kept": Reply("<img src=/not-kept.png>", headers={"X-Robots-Tag": "noarchive"}),
        "/of-style.png": Reply(b"png", headers={"Content-Type": "image/png"}),
        "/of-frame.png": Reply(b"png", headers={"Content-Type": "image/png"}),
    }.get(request.path)
    settings["archive"] = {"requisites": True}
    settings["render"]["never"] = ["/frame"]
    crawled(settings)
    assert [site.times(path) for path in ("/s.css", "/s.js", "/of-style.png", "/of-frame.png")] == [1, 1, 1, 1]
    assert site.times("/frame-not-kept") and not site.times("/of-error.png") + site.times("/not-kept.png")


def test_a_page_that_is_never_rendered_is_not(site: Site, settings: dict[str, dict[str, Any]]) -> None:
    settings["render"]["never"] = ["test/$"]
    assert crawled(settings).stats.done == {"ok": 3}
    assert not site.times("/app.js")


def test_try_renders_a_page_and_saves_its_screenshot(
    site: Site, settings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    host_maps = [word for one in settings["fetch"]["host_map"] for word in ("--host-map", one)]
    file = tmp_path / "page.png"
    command = ["-m", "crawler", "try", "http://shop.test/", *host_maps, "--screenshot", str(file), "--json"]
    tried = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    rendered = json.loads(tried.stdout)["rendered"]
    assert (rendered["outcome"], rendered["refused"]) == ("done", {"method": 1, "robots": 2})
    assert file.read_bytes().startswith(b"\x89PNG")


def test_without_rendering_nothing_of_it_is_imported() -> None:
    program = "import sys, crawler.app.replica; print([name for name in sys.modules if 'crawler.browser' in name])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"
