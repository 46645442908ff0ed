"""The synthetic web is a pure function of its seed, and what it knows of its links is what its pages say."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace

import brotli  # type: ignore[import-untyped]
import pytest
from protego import Protego

from frontier.urls import canonicalize
from tests.simweb.features import TRAPS, Features, Hazard, Kind, RobotsKind, robots_deny, robots_text
from tests.simweb.judge import Policy, expect
from tests.simweb.resource import Resource
from tests.simweb.responses import attack
from tests.simweb.world import World, zipf_sizes

ANSWERED_OTHERWISE = (RobotsKind.ABSENT, RobotsKind.FORBIDDEN, RobotsKind.UNREACHABLE)


BOTH = pytest.mark.parametrize("features", [Features.plain(), Features.mixed()], ids=["plain", "mixed"])


def html_pages(world: World) -> list[Resource]:
    """All pages that a crawl reaches and that are read as HTML."""
    visits = expect(world, world.seeds(), Policy()).visits
    resources = [world.resource(url) for url, visit in visits.items() if visit.status == 200]
    return [r for r in resources if r is not None and r.body is None and not r.is_cut]


@BOTH
def test_worlds_of_one_seed_are_equal_and_of_two_seeds_are_not(features: Features) -> None:
    first, again, other = (World(seed, 20, 300, features) for seed in (7, 7, 8))

    assert expect(first, first.seeds()) == expect(again, again.seeds())
    assert html_pages(first) == html_pages(again)
    assert expect(first, first.seeds()).urls != expect(other, other.seeds()).urls


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


def test_redirects_end_where_the_policy_says() -> None:
    """Given a page that redirects forever, its tenth redirect is followed and its eleventh is not."""
    world = World(1, 1, 30, replace(Features.plain(), answers={Kind.SPIN: 1.0}, robots={}))
    spins = {url for url in expect(world, world.seeds()).urls if "/spin/" in url}
    assert {url.rpartition("/")[2] for url in spins} == {str(step) for step in range(1, 11)}


def test_depth_and_tries_bound_the_walk() -> None:
    world = World(1, 10, 1000, replace(Features.plain(), answers={Kind.FAILING: 0.1, Kind.FLAKY: 0.1}, robots={}))
    root = "http://d00000.test/"
    shallow = expect(world, [root], Policy(max_depth=1))
    assert {visit.depth for visit in shallow.visits.values()} == {0, 1}
    once = expect(world, world.seeds(), Policy(tries=1))
    assert {(visit.status, visit.most) for visit in once.visits.values()} == {(200, 1), (500, 1)}
    assert {visit.most for visit in expect(world, world.seeds()).visits.values()} == {1, 2, 3, 4}


@pytest.mark.parametrize("hazard", list(Hazard))
def test_a_sound_page_stands_beside_each_attack(hazard: Hazard) -> None:
    """The crawl is expected to fetch root, attack and sound page, and nothing of what is behind a trap."""
    world = World(1, 1, 1, replace(Features.plain(), robots={}, hazards=(hazard,)))
    root = world.seeds()[1]
    assert root == f"http://h0001-{hazard}.test/"
    expected = expect(world, world.seeds(), Policy(sitemaps=True))
    assert {root, root + "hazard", root + "after"} <= expected.urls
    if hazard not in (Hazard.ROBOTS_BOMB, Hazard.ROBOTS_ENDLESS, Hazard.ROBOTS_PATTERNS):
        assert world.attacks()[0] in expected.urls
    assert expected.traps == ({root[7:-1]} if hazard in TRAPS else set())
    assert len(expected.urls) == 14 if hazard is Hazard.CIRCLE else len(expected.urls) <= 5
    assert world.is_denied(root + "private/1")
    assert not world.is_denied(root + "after")


@pytest.mark.parametrize(
    ("hazard", "decode", "sign", "count"),
    [
        (Hazard.GZIP_BOMB, gzip.decompress, b"Boom", 10_000_000),
        (Hazard.BROTLI_BOMB, brotli.decompress, b"Boom", 10_000_000),
        (Hazard.ROBOTS_BOMB, gzip.decompress, b"Boom", 10_000_000),
        (Hazard.NESTED_BOMB, lambda body: gzip.decompress(gzip.decompress(body)), b"Boom", 10_000_000),
        (Hazard.MANY_LINKS, bytes, b"<a href", 100_000),
        (Hazard.HUGE_ATTRIBUTE, bytes, b"xxxxxxxxxx", 524_288),
        (Hazard.DEEP_TAGS, bytes, b"<div>", 200_000),
        (Hazard.SITEMAP_BOMB, bytes, b"&l6;", 10),
    ],
)
def test_a_monstrous_document_is_as_large_as_it_says(
    hazard: Hazard, decode: Callable[[bytes], bytes], sign: bytes, count: int
) -> None:
    (response,) = attack(hazard, b"").steps
    assert isinstance(response, bytes)
    assert decode(response.partition(b"\r\n\r\n")[2]).count(sign) >= count
