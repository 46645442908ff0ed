"""Each attack is what it says it is; beside it stands a sound page; and the server itself lives through all of them."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from dataclasses import replace

import pytest

from tests.simweb.features import TRAPS, Features, Hazard
from tests.simweb.judge import JudgeLimits, Policy, expect, judge
from tests.simweb.naive_crawler import DECODERS
from tests.simweb.resource import absolute
from tests.simweb.responses import BOMB_BYTES
from tests.simweb.server import RequestLog, SimWebServer
from tests.simweb.test_log_judge import seen
from tests.simweb.world import World

ENDLESS = (Hazard.ENDLESS_BODY, Hazard.ENDLESS_HEAD, Hazard.ROBOTS_ENDLESS)
BY_ROBOTS = (Hazard.ROBOTS_BOMB, Hazard.ROBOTS_ENDLESS, Hazard.ROBOTS_PATTERNS)


def hostile_world(*hazards: Hazard) -> World:
    return World(1, 1, 1, replace(Features.plain(), robots={}, hazards=hazards))


async def connected(server: SimWebServer, url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which `url` has been asked for."""
    reader, writer = await asyncio.open_connection(*server.listening[0])
    host, _, path = url.removeprefix("http://").partition("/")
    writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return reader, writer


async def body_of(server: SimWebServer, url: str) -> bytes:
    reader, writer = await connected(server, url)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    return body


@pytest.mark.parametrize("hazard", list(Hazard))
def test_a_sound_page_stands_beside_each_attack(hazard: Hazard) -> None:
    """The crawl is expected to fetch root, attack and sound page, and nothing of what is behind a trap."""
    world = hostile_world(hazard)
    root = world.seeds()[1]
    assert root == f"http://h0001-{hazard}.test/"
    expected = expect(world, world.seeds(), Policy(sitemaps=True))
    assert {root, root + "hazard", root + "after"} <= expected.urls
    if hazard not in BY_ROBOTS:
        assert world.attacks()[0] in expected.urls
    assert expected.traps == ({root[7:-1]} if hazard in TRAPS else set())
    assert len(expected.urls) == 14 if hazard is Hazard.CIRCLE else len(expected.urls) <= 5
    assert world.is_denied(root + "private/1")
    assert not world.is_denied(root + "after")


@pytest.mark.parametrize("hazard", ENDLESS)
async def test_an_endless_answer_flows_until_the_client_goes_and_others_are_served(hazard: Hazard) -> None:
    log = RequestLog()
    world = hostile_world(hazard)
    async with SimWebServer(world, log) as server:
        reader, writer = await connected(server, world.attacks()[0])
        received = 0
        while received < 5_000_000:
            received += len(await reader.read(65_536))
        assert b"after" in await body_of(server, world.seeds()[1] + "after")
        writer.transport.abort()
    assert sorted(record.aborted for record in log.records) == [False, True]


@pytest.mark.parametrize("hazard", [Hazard.GZIP_BOMB, Hazard.BROTLI_BOMB, Hazard.ZSTD_BOMB, Hazard.ROBOTS_BOMB])
async def test_a_bomb_is_small_and_becomes_large(hazard: Hazard) -> None:
    world = hostile_world(hazard)
    async with SimWebServer(world, RequestLog()) as server:
        body = await body_of(server, world.attacks()[0])
    assert len(body) < 1_000_000
    coding = {Hazard.BROTLI_BOMB: "br", Hazard.ZSTD_BOMB: "zstd"}.get(hazard, "gzip")
    text = DECODERS[coding](body)
    assert len(text) >= BOMB_BYTES
    assert (b"Disallow: /private/" in text[:1000]) == (hazard is Hazard.ROBOTS_BOMB)


async def test_a_nested_bomb_holds_a_bomb() -> None:
    world = hostile_world(Hazard.NESTED_BOMB)
    async with SimWebServer(world, RequestLog()) as server:
        body = await body_of(server, world.attacks()[0])
    inner = gzip.decompress(body)
    assert len(body) < len(inner) < 2_000_000
    assert zlib.decompressobj(31).decompress(inner, 1000).startswith(b"<p>Boom.")


@pytest.mark.parametrize(
    ("hazard", "sign", "count"),
    [
        (Hazard.MANY_LINKS, b"<a href", 100_000),
        (Hazard.HUGE_ATTRIBUTE, b"xxxxxxxxxx", 524_288),
        (Hazard.DEEP_TAGS, b"<div>", 200_000),
        (Hazard.SITEMAP_BOMB, b"&l6;", 10),
    ],
)
async def test_a_monstrous_document_is_as_large_as_it_says(hazard: Hazard, sign: bytes, count: int) -> None:
    world = hostile_world(hazard)
    async with SimWebServer(world, RequestLog()) as server:
        assert (await body_of(server, world.attacks()[0])).count(sign) == count


@pytest.mark.parametrize(
    ("hazard", "sign"),
    [
        (Hazard.HUGE_FIELD, b"X-Much: x"),
        (Hazard.HUGE_LOCATION, b"HTTP/1.1 301 Moved Permanently\r\nLocation: /xxx"),
        (Hazard.HUGE_CHUNK, b"ffffffffffffffffffff\r\n"),
        (Hazard.SURPLUS, b"</h1>HTTP/1.1 200 OK\r\n"),
        (Hazard.DRIP, b"\r\n\r\nx"),
    ],
)
async def test_a_malformed_answer_is_as_it_says(hazard: Hazard, sign: bytes) -> None:
    world = hostile_world(hazard)
    async with SimWebServer(world, RequestLog()) as server:
        reader, writer = await connected(server, world.attacks()[0])
        received = b""
        while sign not in received:
            received += await reader.readexactly(1)
            assert len(received) < 1000
        writer.transport.abort()


def test_a_circle_of_redirects_goes_to_and_fro_for_ever() -> None:
    world = hostile_world(Hazard.CIRCLE)
    url = world.attacks()[0]
    urls = []
    for _ in range(50):
        urls.append(url)
        resource = world.resource(url)
        assert resource is not None
        url = resource.redirect
    assert len(set(urls)) == 50
    assert {url.split("/")[2] for url in urls} == {"h0001-circle.test", "h0001-elcric.test"}


@pytest.mark.parametrize("hazard", sorted(TRAPS))
def test_a_trap_has_ever_new_pages(hazard: Hazard) -> None:
    """Following the first link of each page never comes to an end, nor back."""
    world = hostile_world(hazard)
    host = f"h0001-{hazard}.test"

    def walk() -> list[str]:
        targets = ["/hazard"]
        for _ in range(40):
            resource = world.resource(absolute(host, targets[-1]))
            assert resource is not None
            assert resource.body is not None
            targets.append(resource.body.decode().split('href="')[1].split('"')[0])
        return targets

    assert len(set(walk())) == 41


def test_pages_of_a_trap_are_counted_and_bounded() -> None:
    world = hostile_world(Hazard.CALENDAR)
    expected = expect(world, world.seeds()[1:])
    urls = [*sorted(expected.auxiliary), *sorted(expected.urls)]
    urls += [f"{world.seeds()[1]}calendar/2024/{month:02}" for month in range(1, 11)]
    records = [seen(number, url) for number, url in enumerate(urls)]
    assert judge(records, expected).ok
    assert judge(records, expected, JudgeLimits(trapped=10)).ok
    result = judge(records, expected, JudgeLimits(trapped=9))
    assert result.trapped == {"h0001-calendar.test": 10}
    assert not result.ok
