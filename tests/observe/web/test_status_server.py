"""The HTTP server of a replica, on loopback and with a real store."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from crawler.errors import UserError
from crawler.observe import summary
from crawler.observe.health_record import Failure, HealthRecord
from crawler.observe.snapshot import Snapshot
from crawler.observe.summary import Sample
from crawler.observe.web import Live, ServerAddress, StatePages, StatusServer
from crawler.observe.web.status_server import advertised, is_addressed
from crawler.observe.web.template import Template
from crawler.settings.loading import CrawlSettings
from frontier.clock import ServerClock, SystemClock
from frontier.control import Control
from frontier.crawls import create_crawl
from frontier.health import Health
from frontier.queue import Frontier, FrontierSettings
from frontier.redis_keys import CrawlKeys
from frontier.store import RedisStore, connect
from tests.frontier.helpers import ManualTime, entry, make_frontier
from tests.observe.web.browser import Browser
from tests.valkey import ValkeyProcess

PATHS = ("/", "/events", "/snapshot", "/metrics", "/sd", "/healthz", "/readyz", "/why", "/domain/a.test", "/replica/r1")
HOSTILE = "http://evil.test/<img/src=x/onerror=document.title='owned'>"


@asynccontextmanager
async def serving(store: RedisStore, crawl: str, reason: str | None = None) -> AsyncIterator[StatusServer]:
    live = Live(store, CrawlKeys(crawl, 4), "r1", SystemClock())
    server = StatusServer(
        ServerAddress("127.0.0.1:0", hosts=("proxy.test",)),
        lambda: b"up 1\n",
        lambda: (reason is None, reason or "ready"),
        live,
        StatePages(store, crawl),
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def populate(store: RedisStore, crawl: str, address: str) -> None:
    """Write the health records of two replicas and a summary."""
    time = ManualTime()
    frontier = await make_frontier(store, crawl, time, shards=4)
    await frontier.push([entry(f"https://{name}.test/", f"{name}.test") for name in "abc"])
    await frontier.lease(range(4), 1, "r1", 1)
    taken = await summary.take(store, frontier.keys, time.ms, "r1", {"r1"})
    await summary.save(store, frontier.keys, taken, 60)
    health = Health(store, frontier.keys.peers, ttl_s=60)
    for index, name in enumerate(("r1", "r2"), start=1):
        failures = [Failure(1_000, HOSTILE, "retry", "timeout")]
        record = HealthRecord(name, address, 5, index, 2, 1, 10, 99, 2.5, 50.0, False, 1, 3, failures)
        await health.report(name, msgspec.json.encode(record))


async def get(address: str, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        return response.status, response.headers.get("Content-Type", ""), await response.text()


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
        for path in (
            "/",
            "/events",
            "/snapshot",
            "/metrics",
            "/sd",
            "/healthz",
            "/nothing",
            "/why?url=a",
            "/domain/a.test",
        ):
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
    live = Live(store, CrawlKeys(crawl_name, 4), "r1", SystemClock())
    server = StatusServer(ServerAddress("0"), lambda: b"", lambda: (True, "ready"), live, StatePages(store, crawl_name))
    await server.start()
    try:
        assert server.address.startswith("127.0.0.1:")
    finally:
        await server.stop()


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
        live = Live(store, CrawlKeys(crawl_name, 4), "r2", SystemClock())
        second = StatusServer(
            ServerAddress(server.address), lambda: b"", lambda: (True, "ready"), live, StatePages(store, crawl_name)
        )
        with pytest.raises(UserError, match="choose another --listen"):
            await second.start()


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


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
async def test_a_browser_shows_the_data_and_runs_no_hostile_script(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    async with serving(store, crawl_name) as server, Browser() as browser:
        await populate(store, crawl_name, server.address)
        await browser.open(f"http://{server.address}/")
        await browser.wait_for("document.querySelectorAll('#failures tbody tr').length == 2")
        assert await browser.value("document.title") == f"{crawl_name} – peercrawl"
        assert await browser.value("document.getElementById('state').textContent") == "running"
        assert await browser.value("document.querySelector('#replicas tbody tr:last-child a').textContent") == "r2"
        assert await browser.value("document.querySelector('#failures tbody td.url').textContent") == HOSTILE
        assert await browser.value("document.images.length") == 0
        assert browser.errors == []


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
async def test_the_chart_has_axes_a_time_span_and_values_under_the_pointer(store: RedisStore, crawl_name: str) -> None:
    async with serving(store, crawl_name) as server, Browser() as browser:
        keys = CrawlKeys(crawl_name, 4)
        await populate(store, crawl_name, server.address)
        written = await summary.load(store, keys)
        assert written is not None
        samples = [Sample(written.at_ms - 1_000 * ago, 30.0 - ago / 10, 2.5, 48_000) for ago in range(100, -1, -1)]
        await summary.save(store, keys, msgspec.structs.replace(written, samples=samples), 60)
        await browser.look(1280, 900)
        await browser.open(f"http://{server.address}/")
        await browser.wait_for("document.querySelectorAll('#chart-pages svg text').length")
        labels = await browser.value("[...document.querySelectorAll('#chart-pages text')].map(t => t.textContent)")
        assert labels[0::2] == ["0", "10", "20", "30", "40"]
        assert labels[1::2] == ["now", "−0:30", "−1:00", "−1:30", "−2:00"]
        assert await browser.value("document.getElementById('errors').textContent") == "2.5"
        assert await browser.value("document.getElementById('bytes').textContent") == "48 kB"
        assert "0 of 3 seen URLs" in await browser.value("document.getElementById('progress').textContent")
        place = await browser.value(
            "(({right, top}) => [right - 9, top + 50])(at('chart-pages').getBoundingClientRect())"
        )
        await browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        await browser.wait_for("document.querySelector('#chart-pages .tip') !== null")
        tip = "document.querySelector('#chart-pages .tip').textContent"
        assert "pages/s30" in await browser.value(tip)
        assert "errors/s2.5" in await browser.value(tip)
        await browser.value("at('chart-pages').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}))")
        assert "pages/s29.9" in await browser.value(tip)
        assert browser.errors == []


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
async def test_the_copies_of_known_pages_are_shown_once_there_are_some(store: RedisStore, crawl_name: str) -> None:
    async with serving(store, crawl_name) as server, Browser() as browser:
        await populate(store, crawl_name, server.address)
        await browser.open(f"http://{server.address}/")
        await browser.wait_for("document.querySelectorAll('#replicas tbody tr').length == 2")
        assert await browser.value("['copies-card', 'visits-card'].every(id => at(id).hidden)")
        written = await summary.load(store, CrawlKeys(crawl_name, 4))
        assert written is not None
        known = {"visits": {"new": 60, "changed": 30, "unchanged": 9, "gone": 1}, "known": 50, "visits_due": 1_200}
        revisited = msgspec.structs.replace(written, **known, copies_fresh=0.914, copies_in_time=None)
        await summary.save(store, CrawlKeys(crawl_name, 4), revisited, 60)
        await browser.wait_for("!at('copies-card').hidden && !at('visits-card').hidden")
        text = await browser.value("at('copies-card').textContent")
        assert "91 % of the time up to date" in text and "younger" not in text
        assert "50 waiting for their next visit, 1,200 due" in text
        key = "[...document.querySelectorAll('#visits-key li')].map(item => item.textContent)"
        assert await browser.value(key) == ["60 new", "30 changed", "9 unchanged", "1 gone"]
        colours = (
            "new Set([...document.querySelectorAll('#visits-key i')].map(i => getComputedStyle(i).backgroundColor))"
        )
        assert await browser.value(f"{colours}.size") == 4
        assert browser.errors == []


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
async def test_the_page_of_a_replica_is_served_by_the_one_that_can_be_reached(
    store: RedisStore, crawl_name: str
) -> None:
    """Given a browser that reaches one replica only, through a forwarded port."""
    await create_crawl(store, crawl_name, 4, CrawlSettings().to_json())
    async with serving(store, crawl_name) as server, Browser() as browser:
        await populate(store, crawl_name, "10.1.2.3:9410")
        await browser.open(f"http://{server.address}/")
        await browser.wait_for("document.querySelectorAll('#replicas tbody tr').length == 2")
        await browser.value("document.querySelector('#replicas tbody tr:last-child a').click()")
        await browser.wait_for("document.querySelector('h1').textContent == 'r2'")
        assert await browser.value("location.host") == server.address
        text = await browser.value("document.body.textContent")
        assert "http://10.1.2.3:9410/" in text
        assert HOSTILE in text
        assert await browser.value("document.images.length") == 0
        assert "No replica with this name" in (await get(server.address, "/replica/r3"))[2]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
async def test_what_blocks_a_crawl_stays_on_the_page_until_it_is_over(tmp_path: Path, crawl_name: str) -> None:
    with ValkeyProcess(tmp_path, persistent=True) as valkey:
        store = await connect(valkey.url)
        keys = CrawlKeys(crawl_name, 4)
        state, shown = (
            "document.getElementById('state').textContent",
            "document.getElementById('obstacles').textContent",
        )
        async with serving(store, crawl_name) as server, Browser() as browser:
            await populate(store, crawl_name, server.address)
            await Control(store, keys).block("bad.test")
            health = Health(store, keys.peers, ttl_s=60)
            for name in ("r1", "r2"):
                full = HealthRecord(
                    name, "a:1", 5, 1, 2, 1, 10, 99, 2.5, 50.0, False, blocked="cannot write: disk full"
                )
                await health.report(name, msgspec.json.encode(full))
            await browser.open(f"http://{server.address}/")
            await browser.wait_for(
                f"{state} == 'blocked' && {shown}.includes('replicas 1, 1: cannot write: disk full')"
            )
            assert "bad.test" in await browser.value("document.getElementById('rules').textContent")
            valkey.kill()
            await browser.wait_for(f"{state} == 'Redis away' && {shown}.includes('old')")
            assert await browser.value("document.querySelectorAll('#replicas tbody tr').length") == 2
            assert "ago" in await browser.value("document.getElementById('when').textContent")
            valkey.start()
            await browser.wait_for(f"{state} == 'blocked'")
            await Control(store, keys).set("pause")
            await browser.wait_for(f"{state} == 'paused' && {shown}.includes('crawler resume')")
            for name in ("r1", "r2"):
                await health.withdraw(name)
            await Control(store, keys).set("run")
            await browser.wait_for(f"{state} == 'no replica'")
            assert browser.errors == []
        await store.close()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
async def test_the_page_fits_a_phone_and_a_desktop(store: RedisStore, crawl_name: str, width: int, dark: bool) -> None:
    async with serving(store, crawl_name) as server, Browser() as browser:
        await populate(store, crawl_name, server.address)
        await browser.look(width, 900, dark)
        await browser.open(f"http://{server.address}/")
        await browser.wait_for("document.querySelectorAll('#replicas tbody tr').length == 2")
        assert await browser.value("document.documentElement.scrollWidth <= window.innerWidth")
        ground = await browser.value("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in ground[4:-1].split(",")) < 200) == dark
        # For screen readers, each table has a name and column headings, and each region has a heading.
        assert await browser.value("[...document.querySelectorAll('table')].every(t => t.caption.textContent)")
        assert await browser.value("[...document.querySelectorAll('thead th')].every(th => th.scope == 'col')")
        assert await browser.value(
            "[...document.querySelectorAll('[aria-labelledby]')].every("
            "n => n.getAttribute('aria-labelledby').split(' ').every(id => document.getElementById(id)))"
        )
