"""The synthetic web is a pure function of its seed, and what it knows of its links is what its pages say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from protego import Protego

from frontier.urls import canonicalize
from tests.simweb.features import Features, Kind, RobotsKind, robots_deny, robots_text
from tests.simweb.judge import Policy, expect
from tests.simweb.naive_crawler import Reply, read_links
from tests.simweb.resource import Product, Resource, Story, article
from tests.simweb.responses import answer
from tests.simweb.world import World, domain_name, domain_number, zipf_sizes

ANSWERED_OTHERWISE = (RobotsKind.ABSENT, RobotsKind.FORBIDDEN, RobotsKind.UNREACHABLE)
ALL_CODINGS = "gzip, deflate, br, zstd"
BOTH = pytest.mark.parametrize("features", [Features.plain(), Features.mixed()], ids=["plain", "mixed"])


def sent(resource: Resource) -> Reply:
    """What the server sends in the end, unchunked, taken apart without a network."""
    sound = replace(resource, chunked=False, trouble=None, delay=0.0)
    (data,) = answer(sound, 1, {"accept-encoding": ALL_CODINGS}, 0).steps
    assert isinstance(data, bytes)
    head, _, body = data.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Reply(int(status_line.split()[1]), headers, body)


def test_articles_are_in_the_pages_that_have_them() -> None:
    world = World(1, 4, 200, replace(Features.plain(), articles=True))
    found = [(page, article(world.seed, page.url)) for page in html_pages(world)]
    for page, one in found:
        body = sent(page).body.decode()
        assert body.count('class="product"') == isinstance(one, Product)
        assert body.count('class="story"') == isinstance(one, Story)
        assert one is None or one.html in body
    kinds = Counter(type(one) for _, one in found)
    assert min(kinds[Product], kinds[Story]) > 10


def html_pages(world: World) -> list[Resource]:
    """All pages that a crawl reaches and that are read as HTML."""
    visits = expect(world, world.seeds(), Policy(obey_nofollow=False)).visits
    resources = [world.resource(url) for url, visit in visits.items() if visit.status == 200]
    return [r for r in resources if r is not None and r.body is None and r.fault is None]


@BOTH
def test_worlds_of_one_seed_are_equal_and_of_two_seeds_are_not(features: Features) -> None:
    first, again, other = (World(seed, 20, 300, features) for seed in (7, 7, 8))

    assert expect(first, first.seeds()) == expect(again, again.seeds())
    assert [sent(page) for page in html_pages(first)] == [sent(page) for page in html_pages(again)]
    assert expect(first, first.seeds()).urls != expect(other, other.seeds()).urls


@BOTH
def test_the_links_of_a_served_page_are_those_known_as_data(features: Features) -> None:
    for page in html_pages(World(3, 20, 500, features)):
        reply = sent(page)
        links = read_links(page.url, reply)
        assert links.found == [(link.url, link.nofollow) for link in page.links], page
        assert page.markup is not None
        assert links.title == page.markup.title
        assert page.nofollow == (links.nofollow or "nofollow" in reply.headers.get("x-robots-tag", ""))


def test_mixed_pages_use_every_coding_and_charset_and_spelling() -> None:
    pages = html_pages(World(3, 20, 500, Features.mixed()))
    assert len({page.coding for page in pages}) == 6
    assert len({page.charset for page in pages}) == 7
    hrefs = "\n".join(link.href for page in pages for link in page.links)
    for sign in ("../", "/./up/..", "HTTP://D000", ":80/", "#part-2", "utm_source", "é", "%7e", "\n//d000"):
        assert sign in hrefs, sign


def test_every_page_of_a_domain_is_reachable_from_its_root() -> None:
    """Given a domain of leaves that all answer with a page, a crawl of its root alone finds them all."""
    features = replace(Features.mixed(), answers={}, robots={}, nofollow_only=0, unlinked=0, several_hosts=1)
    world = World(5, 3, 400, features)
    for number in range(3):
        scope = frozenset({domain_name(number)})
        urls = expect(world, [f"http://{domain_name(number)}/"], Policy(scope=scope)).urls
        assert {world.sites[number].slot(n).url for n in range(world.sites[number].size)} <= urls


@BOTH
def test_the_urls_of_the_world_are_canonical_for_the_frontier_too(features: Features) -> None:
    """Otherwise the judge and the crawler would call one page by two names."""
    for page in html_pages(World(4, 20, 300, features)):
        assert page.markup is not None
        base = canonicalize(page.markup.base or page.url, page.url).href
        assert canonicalize(page.url).href == page.url
        assert [canonicalize(link.href, base).href for link in page.links] == [link.url for link in page.links]


@BOTH
def test_a_numbered_page_is_found_at_its_own_url_only(features: Features) -> None:
    world = World(2, 5, 200, features)
    site = world.sites[0]
    for number in range(site.size):
        slot = site.slot(number)
        assert site.number_of(slot.host, slot.target) == number
        assert site.number_of(slot.host, "/x" + slot.target) is None
    assert world.resource("http://d00000.test/docs/otter-99999999.html") is None
    assert world.resource("http://elsewhere.test/") is None


@pytest.mark.parametrize("kind", [kind for kind in RobotsKind if kind not in ANSWERED_OTHERWISE])
def test_what_a_robots_txt_denies_is_what_its_text_says(kind: RobotsKind) -> None:
    """Given the text, an independent reader of robots.txt comes to what is known as data."""
    read = Protego.parse(robots_text(kind, 0.5, "").decode("utf-8-sig", errors="replace"))
    folders = ("/", "/docs/", "/private/", "/private/open/", "/privateer/")
    for target in [folder + name for folder in folders for name in ("", "x", "x.pdf", "x.pdf?y", "show?id=1")]:
        assert robots_deny(kind, target) != read.can_fetch(f"http://d00000.test{target}", "naive"), target


def test_sizes_follow_zipf_and_add_up() -> None:
    sizes = zipf_sizes(100, 10_000, 1.0)
    assert sum(sizes) == 10_000
    assert min(sizes) >= 1
    assert sizes[0] > 9 * sizes[10] > 0
    assert set(zipf_sizes(10, 1000, 0)) == {100}
    with pytest.raises(ValueError, match="5 domains need at least 5 pages"):
        World(1, 5, 4)


def test_a_domain_name_carries_its_number() -> None:
    assert [domain_number(domain_name(number)) for number in (0, 17, 123_456)] == [0, 17, 123_456]
    assert [domain_number(name) for name in ("d17.test", "x00017.test", "d٠٠٠١٧.test", "test", "")] == [None] * 5


def test_shares_are_kept() -> None:
    """Given a share of 10 % of the leaves, about a tenth of them have it."""
    features = replace(Features.plain(), answers={Kind.MISSING: 0.1, Kind.CUT: 0.2})
    site = World(1, 1, 8000, features).sites[0]
    kinds = Counter(site.slot(number).kind for number in range(site.size) if not site.is_hub(number))
    assert abs(kinds[Kind.MISSING] / 7000 - 0.1) < 0.02
    assert abs(kinds[Kind.CUT] / 7000 - 0.2) < 0.02


def test_redirects_end_where_the_policy_says() -> None:
    """Given a page that redirects forever, its tenth redirect is followed and its eleventh is not."""
    world = World(1, 1, 30, replace(Features.plain(), answers={Kind.SPIN: 1.0}, robots={}))
    spins = {url for url in expect(world, world.seeds()).urls if "/spin/" in url}
    assert {url.rpartition("/")[2] for url in spins} == {str(step) for step in range(1, 11)}


def test_depth_scope_and_tries_bound_the_walk() -> None:
    world = World(1, 10, 1000, replace(Features.plain(), answers={Kind.FAILING: 0.1, Kind.FLAKY: 0.1}, robots={}))
    root = "http://d00000.test/"
    shallow = expect(world, [root], Policy(max_depth=1))
    assert {visit.depth for visit in shallow.visits.values()} == {0, 1}
    inside = expect(world, [root], Policy(scope=frozenset({"d00000.test"})))
    assert {url.split("/")[2] for url in inside.urls} == {"d00000.test"}
    once = expect(world, world.seeds(), Policy(tries=1))
    assert {(visit.status, visit.most) for visit in once.visits.values()} == {(200, 1), (500, 1)}
    assert {visit.most for visit in expect(world, world.seeds()).visits.values()} == {1, 2, 3, 4}
