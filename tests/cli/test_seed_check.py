"""Seeds that the settings do not allow to fetch are reported at once, with the options that allow them."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import pytest

from crawler.app.crawl_settings import choose
from crawler.app.operator import refused_seeds
from crawler.errors import SettingsDiffer
from crawler.fetch.resolver import DnsAnswer, DnsLookup
from crawler.scope.seeds import read_seeds
from crawler.settings.load import CrawlSettings, Settings, load
from crawler.settings.tables import RequestsTable
from frontier.crawls import open_crawl
from frontier.store import connect
from tests.e2e.harness import Finished
from tests.typed import Typed
from tests.valkey import ValkeyProcess

ALLOWED = "https://93.184.215.14/"
DEFAULT_PORTS = {80, 443, 8000, 8008, 8080, 8081, 8088, 8443, 8888}

REFUSED = [
    ("http://127.0.0.1:8000/", "fetch.allow does not list 127.0.0.1 (loopback); add --allow 127.0.0.1"),
    ("http://10.1.2.3/x", "fetch.allow does not list 10.1.2.3 (private); add --allow 10.1.2.3"),
    ("http://[::1]:80/", "fetch.allow does not list ::1 (loopback); add --allow ::1"),
    ("https://169.254.169.254/", "fetch.allow does not list 169.254.169.254 (link_local); add --allow 169.254.169.254"),
    ("https://example.com:9999/", "port 9999 is not in fetch.ports; add --port 9999"),
    (
        "http://127.0.0.1:3000/",
        "port 3000 is not in fetch.ports, and fetch.allow does not list 127.0.0.1 (loopback); "
        "add --port 3000 --allow 127.0.0.1",
    ),
    (
        "http://localhost/",
        "fetch.allow does not list ::1 (loopback), 127.0.0.1 (loopback); add --allow ::1 --allow 127.0.0.1",
    ),
]


def options_in(told: str) -> list[str]:
    """The options that a line about a refused seed advises to add."""
    return shlex.split(told.rpartition("; add ")[2])


@pytest.mark.parametrize("command", ["crawl", "seed"])
@pytest.mark.parametrize(("url", "told"), REFUSED, ids=[url for url, _ in REFUSED])
def test_a_seed_that_cannot_be_fetched_ends_the_command_and_creates_nothing(
    typed: Typed, tmp_path: Path, command: str, url: str, told: str
) -> None:
    done = typed(command, url)
    assert done.code == 2
    line, error = done.err.splitlines()
    assert line.replace(":80/:", "/:") == f"{url.replace(':80/', '/')}: {told}"
    assert error.startswith("error: no seed can be fetched, so nothing was queued or started: ")
    assert list(tmp_path.iterdir()) == []


class Store:
    """Types commands about one crawl on a Valkey server."""

    def __init__(self, typed: Typed, url: str, crawl: str) -> None:
        self._typed = typed
        self._where = ("--crawl", crawl, "--redis", url)

    def type(self, *words: str) -> Finished:
        return self._typed(*words, *self._where)

    def ports(self) -> set[int]:
        (line,) = [line for line in self.type("config", "show").out.splitlines() if line.startswith("ports = ")]
        return set(map(int, line.removeprefix("ports = [").removesuffix("]").split(", ")))


@pytest.fixture
def store(typed: Typed, valkey: ValkeyProcess, crawl_name: str) -> Store:
    return Store(typed, valkey.url, crawl_name)


def test_no_crawl_is_created_in_redis(store: Store) -> None:
    assert store.type("seed", "http://127.0.0.1/").code == 2
    assert "no crawl named" in store.type("status").err


@pytest.mark.parametrize(("url", "told"), REFUSED, ids=[url for url, _ in REFUSED])
def test_the_advised_options_make_it_a_seed(store: Store, url: str, told: str) -> None:
    done = store.type("seed", url, *options_in(told))
    assert done.code == 0
    assert not done.err or done.err.startswith("note: each replica has to accept fetch.")
    assert "1 seed queued" in done.out


def test_the_other_seeds_are_queued(store: Store, tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_text("".join(f"http://10.0.0.{number}/\n" for number in range(30)) + ALLOWED)
    done = store.type("seed", "-f", "seeds.txt")
    assert (done.code, "1 seed queued" in done.out) == (0, True)
    *lines, last = done.err.splitlines()
    assert lines[0] == "http://10.0.0.0/: fetch.allow does not list 10.0.0.0 (private); add --allow 10.0.0.0"
    assert (len(lines), last) == (20, "and 10 more seeds that cannot be fetched")


def test_seeds_of_an_existing_crawl_are_judged_by_its_settings(store: Store) -> None:
    """The advice is complete, and following it does not take away what was allowed before."""
    first, second = "http://127.0.0.1:3000/", "http://127.0.0.1:4000/"
    assert store.type("seed", first, "--port", "3000", "--allow", "127.0.0.0/8").code == 0
    assert store.type("seed", f"{first}2").code == 0
    done = store.type("seed", second)
    assert done.code == 2
    told = done.err.splitlines()[0]
    assert told == f"{second}: port 4000 is not in fetch.ports; add --port 4000 --apply-settings"
    assert store.ports() == {*DEFAULT_PORTS, 3000}
    differs = store.type("seed", second, "--port", "4000")
    assert (differs.code, "--apply-settings" in differs.err) == (2, True)
    assert store.ports() == {*DEFAULT_PORTS, 3000}
    assert store.type("seed", second, *options_in(told)).code == 0
    assert store.ports() == {*DEFAULT_PORTS, 3000, 4000}


@pytest.mark.parametrize("file", ["", "[replica]\ngrace = 3\n"])
def test_a_command_without_the_options_that_added_to_a_list_does_not_differ(
    store: Store, typed: Typed, tmp_path: Path, valkey: ValkeyProcess, crawl_name: str, file: str
) -> None:
    """`crawl` compares all its settings, but takes nothing away from what earlier commands allowed."""
    (tmp_path / "own.toml").write_text(file)
    assert store.type("seed", "http://127.0.0.1:3000/", "--port", "3000", "--allow", "127.0.0.1").code == 0

    async def chosen(settings: Settings) -> CrawlSettings:
        connected = await connect(valkey.url)
        try:
            return choose(await open_crawl(connected, crawl_name), settings, "stop", whole=True).settings
        finally:
            await connected.close()

    kept = asyncio.run(chosen(load(tmp_path / "own.toml").adding((), ())))
    assert (kept.fetch.allow, 3000 in kept.fetch.ports) == (("127.0.0.1",), True)
    with pytest.raises(SettingsDiffer) as told:
        asyncio.run(chosen(load(tmp_path / "own.toml", {"fetch": {"ports": (80,)}}).adding((), ())))
    assert [line.split(":")[0] for line in told.value.details] == ["fetch.ports"]


def test_settings_do_not_change_if_no_seed_can_be_fetched(store: Store) -> None:
    assert store.type("seed", ALLOWED).code == 0
    done = store.type("seed", "http://127.0.0.1:4000/", "--port", "4000", "--apply-settings")
    assert (done.code, "fetch.allow does not list 127.0.0.1" in done.err) == (2, True)
    assert store.ports() == DEFAULT_PORTS


def test_ports_of_the_settings_file_stay_allowed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "crawler.toml").write_text("[fetch]\nports = [80, 5000]\n")
    words = ("seed", "http://93.184.215.14:6000/", "-s", "crawler.toml", "--port", "6000")
    for _ in range(2):
        done = store.type(*words)
        assert done.code == 0, done.err
    assert store.ports() == {80, 5000, 6000}


def test_a_host_with_an_address_in_the_host_map_is_not_judged(store: Store, tmp_path: Path) -> None:
    (tmp_path / "crawler.toml").write_text('[fetch]\nhost_map = ["*.test=127.0.0.1:3000"]\n')
    assert store.type("seed", "http://a.test:7000/", "-s", "crawler.toml").code == 0


DIRECT = """
[[requests]]
match = "/here"
proxy = "direct"
"""

BY_PROXY = """
[[requests]]
host = "localhost"
proxy_env = "NOT_SET_HERE"
proxy_dns = true
"""


@pytest.mark.parametrize(
    ("rules", "url", "is_refused"),
    [
        (BY_PROXY, "http://localhost/", False),
        (BY_PROXY, "http://www.localhost/", False),
        (BY_PROXY, "http://127.0.0.1/", True),
        (BY_PROXY, "http://localhost:9999/", True),
        (BY_PROXY.replace("true", "false"), "http://localhost/", True),
        (BY_PROXY.replace("localhost", "other.test"), "http://localhost/", True),
        (DIRECT + BY_PROXY, "http://localhost/there", False),
        (DIRECT + BY_PROXY, "http://localhost/here", True),
    ],
)
def test_a_name_that_only_a_proxy_looks_up_is_not_judged(
    store: Store, tmp_path: Path, rules: str, url: str, is_refused: bool
) -> None:
    """`localhost` stands for a name that leads somewhere else there. A secret of the proxy need not be here."""
    (tmp_path / "crawler.toml").write_text(rules)
    done = store.type("seed", url, "-s", "crawler.toml")
    assert (done.code == 2) == is_refused, done.err


def test_a_name_that_only_a_proxy_looks_up_is_told_to_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def lookup(_: DnsLookup, host: str) -> DnsAnswer:
        asked.append(host)
        return DnsAnswer(("127.0.0.1",), 60.0)

    monkeypatch.setattr(DnsLookup, "lookup", lookup)
    seeds, _ = read_seeds(["http://a.test/", "http://b.test/"])
    rules = (RequestsTable(host="a.test", proxy="http://127.0.0.1:1", proxy_dns=True),)
    refused = asyncio.run(refused_seeds(seeds, CrawlSettings(), rules))
    assert asked == ["b.test"]
    assert list(refused) == [seeds[1]]


@pytest.mark.parametrize(
    ("words", "told"),
    [(("--allow", "10.1.2.3/8"), "expected a network such as 10.1.0.0/16"), (("--port", "70000"), "65535")],
)
def test_a_malformed_network_or_port_is_refused(
    typed: Typed, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    done = typed("crawl", ALLOWED, *words)
    assert (done.code, told in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
