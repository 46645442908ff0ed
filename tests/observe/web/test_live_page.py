"""The pages of a replica in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from crawler.observe import summary
from crawler.observe.health import HealthRecord
from crawler.observe.summary import DomainLine, Sample
from crawler.settings.load import CrawlSettings
from frontier.control import Control
from frontier.crawls import create_crawl
from frontier.keys import CrawlKeys
from frontier.peers import Health
from frontier.scripts import command
from frontier.store import RedisStore, connect
from tests.observe.web.browser import Browser
from tests.observe.web.serving import HOSTILE, get, populate, serving
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")


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


async def test_items_the_time_that_is_left_and_overdue_domains_are_shown(store: RedisStore, crawl_name: str) -> None:
    """A domain in the list of those that were overdue may have been put off since."""
    async with serving(store, crawl_name) as server, Browser() as browser:
        await populate(store, crawl_name, server.address)
        await browser.open(f"http://{server.address}/")
        await browser.wait_for("document.querySelectorAll('#replicas tbody tr').length == 2")
        assert await browser.value("at('items-card').hidden")
        written = await summary.load(store, CrawlKeys(crawl_name, 4))
        assert written is not None
        at = written.at_ms
        overdue = [DomainLine(f"d{n}.test", 0, "due", at + 1_000 * n, 1, None, 0, "") for n in (5, -60, -600)]
        data = {"items": {"shop": 1_200}, "rejected": {"shop:price:missing": 2, "shop:name:missing": 1}}
        samples = [Sample(at, 2.0, 0.0, 0)]
        new = {"overdue": overdue, "samples": samples, "open": 240, "first_ms": at - 90_000, "last_ms": at, **data}
        await summary.save(store, CrawlKeys(crawl_name, 4), msgspec.structs.replace(written, **new), 60)
        await browser.wait_for("!at('items-card').hidden")
        cells = "[...document.querySelectorAll('#{} tbody td')].map(cell => cell.textContent)"
        assert await browser.value(cells.format("items")) == ["shop", "1,200", "3"]
        assert await browser.value(cells.format("overdue")) == ["d-600.test", "1", "10 min", "d-60.test", "1", "60 s"]
        assert await browser.value("at('elapsed').textContent") == "2 min"
        assert "takes 2 min more" in await browser.value("at('progress').textContent")
        assert browser.errors == []


async def test_the_copies_of_known_pages_are_shown_once_there_are_some(store: RedisStore, crawl_name: str) -> None:
    async with serving(store, crawl_name) as server, Browser() as browser:
        await populate(store, crawl_name, server.address)
        await browser.open(f"http://{server.address}/")
        await browser.wait_for("document.querySelectorAll('#replicas tbody tr').length == 2")
        assert await browser.value("['copies-card', 'visits-card'].every(id => at(id).hidden)")
        written = await summary.load(store, CrawlKeys(crawl_name, 4))
        assert written is not None
        known = {"visits": {"new": 60, "changed": 30, "unchanged": 9, "gone": 1}, "known": 50, "visits_due": 1_200}
        revisited = msgspec.structs.replace(written, **known)
        await summary.save(store, CrawlKeys(crawl_name, 4), revisited, 60)
        await browser.wait_for("!at('copies-card').hidden && !at('visits-card').hidden")
        text = await browser.value("at('copies-card').textContent")
        assert "50 waiting for their next visit, 1,200 due" in text
        key = "[...document.querySelectorAll('#visits-key li')].map(item => item.textContent)"
        assert await browser.value(key) == ["60 new", "30 changed", "9 unchanged", "1 gone"]
        colours = (
            "new Set([...document.querySelectorAll('#visits-key i')].map(i => getComputedStyle(i).backgroundColor))"
        )
        assert await browser.value(f"{colours}.size") == 4
        assert browser.errors == []


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
            await store.send([command("CONFIG", "SET", "min-replicas-to-write", 1)])  # as one without memory does
            await browser.wait_for(f"{state} == 'Redis refuses writes'")
            assert "No replica can report now" in await browser.value("document.getElementById('replicas').textContent")
            assert browser.errors == []
        await store.close()
