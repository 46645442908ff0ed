"""Sites that never end, and links that do things: what a crawl with its defaults makes of them."""

from __future__ import annotations

import datetime
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from crawler import Crawl
from tests.site import Reply, Request, Site

WORDS = ["".join(random.Random(number).choices("aeioulnrst", k=6)) for number in range(5_000)]


def prose(seed: int | str, count: int = 80) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def links(*hrefs: str) -> str:
    return "".join(f"<a href='{href.replace('&', '&amp;')}'>{number % 9}</a>" for number, href in enumerate(hrefs))


def titled(title: str, *rest: str) -> str:
    return f"<!doctype html><title>{title}</title><h1>{title}</h1>{''.join(rest)}"


def calendar(path: str, query: str) -> str:
    found = re.search(r"day=(\d+)-(\d+)-(\d+)", query)
    day = datetime.date(*map(int, found.groups())) if found else datetime.date(2026, 11, 1)
    one = datetime.timedelta(days=1)
    return titled("Calendar", f"<p>No events on {day}.", links(f"/cal?day={day + one}", f"/cal?day={day - one}"))


def months(path: str, query: str) -> str:
    """A calendar without a query, whose titles have the names of months."""
    found = re.match(r"/(\d+)/(\d+)/", path)
    year, month = map(int, found.groups()) if found else (2026, 11)
    name = datetime.date(year, month, 1).strftime("%B %Y")
    days = "".join(f"<td>{day}</td>" for day in range(1, 29))
    after, before = (year + month // 12, month % 12 + 1), (year - (month == 1), (month - 2) % 12 + 1)
    return titled(f"Events in {name}", days, links(f"/{after[0]}/{after[1]}/", f"/{before[0]}/{before[1]}/"))


def parameters(path: str, query: str) -> str:
    """Each page adds parameters to its own query."""
    return titled("List", links(*(f"/list?{query}{'&' if query else ''}ver={number}" for number in range(3))))


def entities(path: str, query: str) -> str:
    return titled(f"Shop {len(query)}", links(*(f"/best?{quote(query, '=&')}&p={number}" for number in (2, 3))))


def menu(path: str, query: str) -> str:
    """Relative links on a server that answers every path."""
    return titled("Menu", links("infra/www/", "common/", "cron/update", "about/us/"))


def folders(path: str, query: str) -> str:
    """The same, and each page shows its path."""
    return titled("Folders", f"<p>{path}", links("a/", "b/", "c/"), f"<p>{prose(1)}")


def unlisted(path: str, query: str) -> str:
    """Months, days and weeks that say noindex and lead to each other."""
    found = re.match(r"/(month|week|day)-(\d+)", path)
    if not found:
        about = (f"/about{'/' * number}" for number in range(12))
        return titled(f"About {path}", f"<p>{prose(len(path))}", links(*about, "/day-0"))
    number = int(found[2])
    names = [f"/{name}-{number + step}" for name in ("month", "week", "day") for step in (-1, 1, 7)]
    return titled(f"{found[1]} {number}", "<meta name=robots content=noindex>", f"<p>{prose(number)}", links(*names))


def sessions(path: str, query: str) -> str:
    """A new session in each link."""
    of = [f"/page{number}?tok={random.Random(f'{path}{query}{number}').getrandbits(64):x}" for number in range(4)]
    name = path.strip("/") or "home"
    return titled(name, f"<p>{prose(len(name) + ord(name[-1]))}", links(*of))


def paths_of_sessions(path: str, query: str) -> str:
    session = f"(S({random.Random(path).getrandbits(100):026x}))"
    name = path.rpartition("/")[2] or "home"
    return titled(name, f"<p>{prose(ord(name[-1]))}", links(*(f"/{session}/page{number}" for number in range(3))))


def facets(path: str, query: str) -> str:
    """Filters that are added to each other, over the same three products."""
    if path.startswith("/product"):
        return titled(f"Product {prose(int(path[8:]), 2)}", f"<p>{prose(int(path[8:]))}")
    more = [f"/?{query}&{name}={value}" for name in ("size", "colour", "brand", "price", "shop") for value in range(5)]
    return titled("All products", f"<p>{prose(3)}", links(*(f"/product{number}" for number in range(3)), *more))


def index_of_files(path: str, query: str) -> str:
    """Apache's directory index, whose columns can be sorted."""
    if path.endswith(".txt"):
        return prose(path)
    depth = path.count("/")
    names = (
        [f"{letter}{depth}/" for letter in "abcd"]
        if depth < 4
        else [f"{path.replace('/', '')}{n}.txt" for n in range(4)]
    )
    columns = [f"?C={column};O={order}" for column in "NMSD" for order in "AD"]
    random.Random(query).shuffle(names)
    rows = "".join(f"<tr><td><a href='{name}'>{name}</a><td>2026-01-0{number}" for number, name in enumerate(names, 1))
    return titled(f"Index of {path}", links(*columns), rows)


TRAPS: dict[str, tuple[Callable[[str, str], str], int]] = {
    "calendar": (calendar, 60),
    "months": (months, 90),
    "parameters": (parameters, 60),
    "entities": (entities, 60),
    "menu": (menu, 30),
    "folders": (folders, 120),
    "unlisted": (unlisted, 130),
    "sessions": (sessions, 60),
    "paths-of-sessions": (paths_of_sessions, 60),
    "facets": (facets, 80),
}


def settings(site: Site, folder: Path, **tables: Any) -> dict[str, Any]:
    reach = {"fetch": {"host_map": [f"*=127.0.0.1:{site.port}"]}}
    quick = {"politeness": {"delay": 0, "address_rate_limit": "off"}}
    return site.settings(folder) | reach | quick | {"limits": {"max_pages": 3_000}} | tables


async def crawled(site: Site, folder: Path, seeds: Sequence[str], **tables: Any) -> Counter[tuple[str, str]]:
    """How many pages ended in which way, by host."""
    async with Crawl(seeds, settings=settings(site, folder, **tables)) as crawl:
        return Counter([(urlsplit(page.url).hostname or "", page.reason) async for page in crawl])


async def test_traps_end_within_some_dozens_of_pages(tmp_path: Path) -> None:
    def respond(request: Request) -> str | None:
        path, _, query = request.path.partition("?")
        return None if path == "/robots.txt" else TRAPS[request.host.removesuffix(".test")][0](path, query)

    with Site(respond) as site:
        ended = await crawled(site, tmp_path, [f"http://{name}.test/" for name in TRAPS])
    fetched = {name: ended[f"{name}.test", "ok"] for name in TRAPS}
    too_many = {name: number for name, number in fetched.items() if number > TRAPS[name][1]}
    assert not too_many
    assert ended["calendar.test", "put_off"]


async def test_a_calendar_with_few_events_is_read_to_its_last_event(tmp_path: Path) -> None:
    """Months without an end lead to days, and every seventh day of 200 has an event, which is shown nowhere else."""
    first = datetime.date(2026, 1, 1)
    events = {f"/day/{first + datetime.timedelta(number)}" for number in range(0, 200, 7)}

    def respond(request: Request) -> str | None:
        kind, _, date = request.path.strip("/").partition("/")
        if kind == "robots.txt":
            return None
        if kind == "day":
            event = f"<p>At eight: {prose(date, 5)}" if request.path in events else "<p>No events."
            return titled("Calendar", f"<h2>{datetime.date.fromisoformat(date):%A, %d %B %Y}</h2>{event}", links("/"))
        month = datetime.date.fromisoformat(f"{date or '2026-05'}-01")
        days = [month + datetime.timedelta(number) for number in range(28)]
        others = [f"/month/{month + datetime.timedelta(number):%Y-%m}" for number in (-1, 31)]
        return titled("Calendar", f"<h2>{month:%B %Y}</h2>", links(*others, *(f"/day/{day}" for day in days)))

    with Site(respond) as site:
        ended = await crawled(site, tmp_path, ["http://a.test/"])
        read = events & set(site.asked)
    assert read == {day for day in events if int(day[-2:]) <= 28}
    assert ended["a.test", "ok"] < 600


async def test_each_page_of_large_good_sites_is_fetched(tmp_path: Path) -> None:
    """Thousands of pages of one shape: a forum whose pages all have the same title, a shop with numbers in its paths, a
    wiki whose articles have histories, and an index of files."""
    articles = [f"/wiki/{prose(number, 2).replace(' ', '_')}" for number in range(60)]
    views = ("edit", "history", "raw", "info")

    def respond(request: Request) -> str | None:
        path, _, query = request.path.partition("?")
        number = int("".join(filter(str.isdigit, path + query)) or 0)
        match request.host, path:
            case _, "/robots.txt":
                return None
            case "forum.test", "/":
                pages = links(*(f"/?topic={topic}" for topic in range(1, 600))) if not query else ""
                return titled("My forum", f"<p>{prose(number, 12)}", pages)
            case "shop.test", "/":
                return titled("Shop", links(*(f"/product/{product}" for product in range(1, 600))))
            case "shop.test", _:
                return titled(f"Screw M{number}", f"<p>In stock: {number % 7}. Add to cart.")
            case "wiki.test", "/":
                return titled("Wiki", links(*articles))
            case "wiki.test", _ if query:
                return titled(path, "<meta name=robots content=noindex>", prose(len(query)))
            case "wiki.test", _:
                seed = articles.index(path)
                return titled(path, prose(seed), links(*(f"{path}?action={view}" for view in views)))
            case _:
                return index_of_files(path, query)

    hosts = ("forum", "shop", "wiki", "files")
    with Site(respond) as site:
        ended = await crawled(site, tmp_path, [f"http://{host}.test/" for host in hosts])
        asked = {request.host + request.path for request, _ in site.answered}
    assert ended["forum.test", "ok"] == ended["shop.test", "ok"] == 600
    assert (ended["forum.test", "put_off"], ended["shop.test", "put_off"]) == (0, 0)
    assert {f"wiki.test{path}" for path in articles} <= asked
    assert ended["wiki.test", "ok"] < 61 + 30 + 12
    assert len({url for url in asked if url.startswith("files.test/") and url.endswith("0.txt")}) == 64
    assert sum("?C=" in url for url in asked) < 85 * 8 / 2


async def test_copies_do_not_hide_what_is_beside_or_behind_them(tmp_path: Path) -> None:
    """Dead links in a menu, or empty topics, beside the articles of a site; front pages of manuals and albums that are
    alike, and whose relative links lead to different pages."""
    articles = {f"/{word}" for word in WORDS[:60]}
    dead = [f"/{word}" for word in WORDS[100:140]]
    folders = {"manuals": [f"/{number}.0/" for number in range(3)], "albums": [f"/{word}/" for word in WORDS[:40]]}
    content = {
        "dead.test": articles,
        "topics.test": {f"/blog/2026{path}" for path in articles},
        "manuals.test": {f"{folder}{WORDS[chapter]}" for folder in folders["manuals"] for chapter in range(25)},
        "albums.test": {f"{folder}{number}.html" for folder in folders["albums"] for number in range(3)},
    }

    def respond(request: Request) -> str | None:
        path, name = request.path, request.host.removesuffix(".test")
        if path == "/robots.txt":
            return None
        if path in content[request.host]:
            return titled(f"Of {path if name != 'manuals' else path[5:]}", f"<p>{prose(path)}", links("/"))
        if name in folders:
            found = sorted(content[request.host]) if path != "/" else []
            here = [page.removeprefix(folders[name][0]) for page in found if page.startswith(folders[name][0])]
            return titled("Home" if path == "/" else "Contents", links(*here or folders[name]))
        before = "/blog/2026" if name == "topics" else ""
        if path.startswith("/list/"):
            first = int(path[6:]) * 10
            return titled(f"List {path[6:]}", links(*sorted(content[request.host])[first : first + 10]))
        lists = [f"/list/{number}" for number in range(6)]
        return titled("Home", links(*(before + path for path in dead), *lists)) if path == "/" else titled("Nothing")

    with Site(respond) as site:
        await crawled(site, tmp_path, [f"http://{host}/" for host in content])
        asked = {(request.host, request.path) for request, _ in site.answered}
    lost = Counter(host for host, paths in content.items() for path in paths if (host, path) not in asked)
    assert not lost


@pytest.mark.parametrize("posts", ["/20{0:02}/{1}/post-{2}", "/post-{word}/"])
async def test_lists_that_say_noindex_lead_to_all_posts(tmp_path: Path, posts: str) -> None:
    """Each page of the archive leads to the next one, and to three posts that are found nowhere else."""
    lists = 100

    def post(number: int) -> str:
        return posts.format(number % 24, number % 12, number, word=WORDS[number])

    by_path = {post(number): number for number in range(lists * 3)}

    def respond(request: Request) -> str | None:
        if request.path == "/robots.txt":
            return None
        if request.path in by_path:
            number = by_path[request.path]
            return titled(f"Post {WORDS[number]}", f"<p>{prose(number)}")
        number = int(request.path.strip("/").rpartition("/")[2] or 0)
        if number and "/about/" not in request.path:
            numbers = range((number - 1) * 3, number * 3)
            more = [f"/page/{number + 1}/"] if number < lists else []
            robots = "<meta name=robots content='noindex, follow'>"
            listed = (f"<a href='{post(each)}'>{WORDS[each]}</a>" for each in numbers)
            return titled("Archive", robots, *listed, links(*more, "/"))
        about = [f"/about/{page}" for page in range(1, 12)]
        return titled(f"About {number}", f"<p>{prose(number)}", links(*about, "/page/1/"))

    with Site(respond) as site:
        ended = await crawled(site, tmp_path, ["http://a.test/"])
    assert (ended["a.test", "ok"], ended["a.test", "put_off"]) == (1 + 11 + lists * 4, 0)


async def test_a_crawl_that_is_logged_in_never_logs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logged in, links that do things are not followed, whether a page or a redirect leads there; otherwise they are, and
    come last."""
    actions = {
        "/logout": "logout",
        "/wp-login.php?action=logout&_wpnonce=1": "logout",
        "/post/5/edit": "edit",
        "/post.php?post=1&action=trash": "delete",
        "/?add-to-cart=5": "cart",
        "/newsletter/unsubscribe?u=1": "unsubscribe",
    }

    def respond(request: Request) -> Reply | str | None:
        if request.path == "/robots.txt":
            return None
        if request.path == "/bye":
            return Reply("", 302, {"Location": "/user/logout"})
        is_home = request.path == "/"
        return titled(request.path, prose(7), links(*actions, "/bye", "/docs/install/", "/read") if is_home else "")

    monkeypatch.setenv("SESSION", "sess=s0")
    rule = {"origin": "http://a.test", "over_http": True, "headers_env": ["Cookie: SESSION"]}
    with Site(respond) as site:
        ended = await crawled(site, tmp_path / "in", ["http://a.test/"], requests=[rule])
        asked = set(site.asked)
        cookies = await crawled(site, tmp_path / "jar", ["http://a.test/"], requests=[{"cookies": True}])
        follow = {"scope": {"actions": "follow"}, "requests": [rule]}
        followed = await crawled(site, tmp_path / "follow", ["http://a.test/"], **follow)
        before = len(site.asked)
        await crawled(site, tmp_path / "out", ["http://a.test/"])
        outside = site.asked[before:]
    assert asked == {"/robots.txt", "/", "/bye", "/docs/install/", "/read"}
    expected = Counter(actions.values()) + Counter({"logout": 1, "ok": 3, "redirect": 1})
    assert Counter({reason: number for (_, reason), number in ended.items()}) == expected
    assert cookies == ended
    assert followed["a.test", "ok"] == len(actions) + 4
    first = [path for path in outside if path != "/user/logout"]  # found when the others were leased
    assert set(first[-3:]) == {one for one in actions if "?" in one and "/newsletter" not in one}


async def test_a_session_that_ends_during_the_crawl_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SESSION", "id=1")
    paths = [f"/page{number}" for number in range(40)]

    def respond(request: Request) -> Reply | str | None:
        if request.path in ("/", "/login"):
            return titled(f"Page {request.path}", links(*paths))
        if request.path in paths and len(site.asked) < 20:
            return titled(request.path, prose(request.path))
        return Reply("", 302, {"Location": "/login"}) if request.path in paths else None

    rule = {"origin": "http://a.test", "over_http": True, "headers_env": ["Cookie: SESSION"]}
    with caplog.at_level("WARNING", "crawler"), Site(respond) as site:
        for host, folder in (("a", "session"), ("b", "none")):
            site.answered.clear()
            await crawled(site, tmp_path / folder, [f"http://{host}.test/"], requests=[rule])
    told = [record.fields for record in caplog.records if record.message == "session_ended"]  # type: ignore[attr-defined]
    assert [(fields["domain"], fields["redirects"], fields["to"]) for fields in told] == [
        ("a.test", 10, "http://a.test/login")
    ]
