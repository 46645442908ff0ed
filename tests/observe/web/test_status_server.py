"""The HTTP server of a replica, on loopback and with a real store."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import msgspec
import pytest

from crawler.errors import UserError
from crawler.observe.health import LatestItem
from crawler.observe.status import Snapshot
from crawler.observe.web.pages import Template
from crawler.observe.web.routes import is_addressed
from crawler.observe.web.server import advertised
from crawler.settings.load import CrawlSettings
from frontier.clock import ServerClock, SystemClock
from frontier.control import Control
from frontier.crawls import create_crawl
from frontier.queue import Frontier, FrontierSettings
from frontier.store import RedisStore, connect
from tests.frontier.helpers import ManualTime, entry, make_frontier
from tests.observe.web.serving import HOSTILE, get, populate, serving
from tests.valkey import ValkeyProcess

PATHS = (
    "/",
    "/events",
    "/snapshot",
    "/metrics",
    "/sd",
    "/healthz",
    "/readyz",
    "/why",
    "/domain/a.test",
    "/replica/r1",
    "/items/a",
)


async def test_any_replica_lists_all_replicas_for_prometheus(store: RedisStore, crawl_name: str) -> None:
    async with serving(store, crawl_name) as server:
        await populate(store, crawl_name, "10.1.2.3:9410")
        status, kind, text = await get(server.address, "/sd")
    groups = msgspec.json.decode(text)
    assert (status, kind.partition(";")[0]) == (200, "application/json")
    assert [group["targets"] for group in groups] == [["10.1.2.3:9410"], ["10.1.2.3:9410"]]
    names = [{"__meta_crawl": crawl_name, "__meta_replica": name} for name in ("r1", "r2")]
    assert [group["labels"] for group in groups] == names


async def test_metrics_health_and_readiness(store: RedisStore, crawl_name: str) -> None:
    async with serving(store, crawl_name) as server:
        assert (await get(server.address, "/metrics"))[2] == "up 1\n"
        assert (await get(server.address, "/healthz"))[0] == 200
        assert (await get(server.address, "/readyz"))[0] == 200
    async with serving(store, crawl_name, "Redis is away") as server:
        assert (await get(server.address, "/readyz"))[::2] == (503, "Redis is away\n")
        assert (await get(server.address, "/healthz"))[0] == 200


async def test_the_page_loads_nothing_from_other_origins(store: RedisStore, crawl_name: str) -> None:
    async with (
        serving(store, crawl_name) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{server.address}/") as response,
    ):
        page, policy = await response.text(), response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    elsewhere = re.findall(r'(?:src|href)="(?!data:|/|#)[^"]*', page)
    assert elsewhere == []
    assert "@import" not in page and "url(" not in page


async def test_an_unknown_host_is_refused_on_every_path(store: RedisStore, crawl_name: str) -> None:
    """A page of evil.test whose name leads to this address (DNS rebinding) learns nothing."""
    async with serving(store, crawl_name) as server, aiohttp.ClientSession() as session:
        port = server.address.rpartition(":")[2]
        for path in (*PATHS, "/nothing"):
            async with session.get(f"http://{server.address}{path}", headers={"Host": f"evil.test:{port}"}) as response:
                assert (response.status, (await response.text()).count("\n")) == (421, 1)
        for name in ("localhost", "Proxy.test:80", "127.0.0.1", f"[::1]:{port}", "192.0.2.7:9"):
            async with session.get(f"http://{server.address}/healthz", headers={"Host": name}) as response:
                assert response.status == 200, name


@pytest.mark.parametrize(
    "host", ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test", "[", "a@localhost.test", "::1]"]
)
def test_a_host_that_resembles_a_known_one_is_refused(host: str) -> None:
    assert not is_addressed(host, {"localhost"})


async def test_the_policy_comes_from_the_template_alone(store: RedisStore, crawl_name: str) -> None:
    """Given a page in which a stranger's script stands, then its policy has no hash of it."""
    hostile = "<script>alert(1)</script><style>*{}</style>{{title}}"
    template = Template("answer.html")
    before = template.policy
    page = template.fill(dict.fromkeys(("title", "crawl", "headline", "url", "rows"), hostile))
    assert page.count(hostile) > 4
    assert template.policy == before
    assert "script-src 'none'" in template.policy
    async with (
        serving(store, crawl_name) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{server.address}/why?url=x") as response,
    ):
        assert response.headers["Content-Security-Policy"] == before


async def test_a_port_without_an_address_is_on_loopback(store: RedisStore, crawl_name: str) -> None:
    async with serving(store, crawl_name, listen="0") as server:
        assert server.address.startswith("127.0.0.1:")


async def test_only_get_is_allowed(store: RedisStore, crawl_name: str) -> None:
    async with serving(store, crawl_name) as server, aiohttp.ClientSession() as session:
        for path in PATHS:
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                async with session.request(method, f"http://{server.address}{path}") as response:
                    assert response.status == 405


async def test_the_page_of_a_domain_shows_its_state(store: RedisStore, crawl_name: str) -> None:
    crawl = await create_crawl(store, crawl_name, 4, CrawlSettings().to_json())
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time, shards=4)
    await frontier.push([entry(f"https://a.test/{n}", "a.test") for n in range(3)])
    control = Control(store, crawl.keys)
    await control.set_delay("a.test", 7)
    async with serving(store, crawl_name) as server:
        _, _, text = await get(server.address, "/domain/www.a.test")
        assert "<h1>a.test</h1>" in text
        assert "URLs queued</th><td>3</td>" in text
        assert "<td>7 s</td>" in text
        await control.block("a.test")
        assert "Blocked by an operator." in (await get(server.address, "/domain/a.test"))[2]
        assert "None of its URLs has been queued yet." in (await get(server.address, "/domain/unknown.test"))[2]


async def test_the_page_of_a_data_set_shows_its_latest_items(store: RedisStore, crawl_name: str) -> None:
    """Their fields come from strangers, so they never become markup."""
    await create_crawl(store, crawl_name, 4, CrawlSettings().to_json())
    items = {"product": [LatestItem(1_000, HOSTILE, '{"title":"<b>Lamp</b>"}')]}
    async with serving(store, crawl_name, items=items) as server:
        await populate(store, crawl_name, server.address)
        status, kind, page = await get(server.address, "/items/product")
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert "The latest 1 item that this replica has found" in page
        assert "&lt;b&gt;Lamp&lt;/b&gt;" in page
        assert "1970-01-01 00:00:01+00:00 http://evil.test/" in page
        assert "<b>" not in page
        assert "No item so far" in (await get(server.address, "/items/other"))[2]


async def test_the_page_of_a_url_shows_its_verdict(store: RedisStore, crawl_name: str) -> None:
    crawl = await create_crawl(store, crawl_name, 4, CrawlSettings().to_json())
    clock = ServerClock(SystemClock(), store.time_ms)
    await clock.refresh()
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    await frontier.push([entry("https://a.test/1", "a.test")])
    async with serving(store, crawl_name) as server:
        assert "queued" in (await get(server.address, "/why?url=https://A.test/1"))[2]
        assert "queued" in (await get(server.address, "/why?url=a.test/1"))[2]
        assert "not a crawlable URL" in (await get(server.address, "/why?url=http://["))[2]
        hostile = await get(server.address, "/why?url=https://a.test/%3Cscript%3Ealert(1)%3C/script%3E{{rows}}")
        assert "<script>" not in hostile[2]


async def test_events_are_sent_while_a_page_is_open_and_end_with_the_replica(
    store: RedisStore, crawl_name: str
) -> None:
    async with serving(store, crawl_name) as server, aiohttp.ClientSession() as session:
        await populate(store, crawl_name, server.address)
        async with session.get(f"http://{server.address}/events") as response:
            line = await response.content.readline()
            assert line.startswith(b"data: ")
            seen = msgspec.json.decode(line[6:], type=Snapshot)
            assert [record.replica for record in seen.replicas] == ["r1", "r2"]
            assert seen.summary is not None
            assert seen.summary.accepted == 3
            async with asyncio.timeout(40):
                await server.stop()
                await response.content.read()  # to its end


async def test_a_snapshot_without_redis_reports_the_error(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as valkey:
        store = await connect(valkey.url)
        async with serving(store, "x") as server:
            valkey.kill()
            status, _, text = await get(server.address, "/snapshot")
            assert status == 200
            assert "cannot serve now" in msgspec.json.decode(text, type=Snapshot).error
            assert (await get(server.address, "/sd"))[0] == 503
        await store.close()


async def test_a_port_in_use_is_a_user_error(store: RedisStore, crawl_name: str) -> None:
    async with serving(store, crawl_name) as server:
        with pytest.raises(UserError, match="choose another --listen"):
            async with serving(store, crawl_name, listen=server.address):
                pass


@pytest.mark.parametrize(
    ("listening", "advertise", "address"),
    [
        (("127.0.0.1", 80), "", "127.0.0.1:80"),
        (("::1", 80), "", "[::1]:80"),
        (("0.0.0.0", 80), "10.0.0.7", "10.0.0.7:80"),
        (("0.0.0.0", 80), "crawl.example:9999", "crawl.example:9999"),
        (("::", 80), "[fd00::1]:90", "[fd00::1]:90"),
    ],
)
def test_the_advertised_address(listening: tuple[str, int], advertise: str, address: str) -> None:
    assert advertised(*listening, advertise) == address
