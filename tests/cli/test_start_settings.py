"""A command whose settings differ from the crawl's shows the differences and stops, unless a flag says which to use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crawler.app.crawl_settings import choose_and_adopt
from crawler.cli.seeds import seed_crawl
from crawler.errors import SettingsDiffer
from crawler.settings.load import load
from frontier.crawls import open_crawl
from frontier.errors import SettingsOutdated
from frontier.store import RedisStore, connect
from tests.e2e.harness import Finished, Tables, toml
from tests.typed import Typed
from tests.valkey import ValkeyProcess

FIRST, SECOND = "https://a.test/1", "https://a.test/2"
APPLY, KEEP = "--apply-settings", "--keep-settings"


class Cluster:
    """Runs commands for one crawl on a Valkey server, in a folder with settings files."""

    def __init__(self, typed: Typed, folder: Path, url: str, crawl: str) -> None:
        self.url, self.crawl = url, crawl
        self._typed = typed
        self._folder = folder

    def type(self, *words: str, **environment: str) -> Finished:
        return self._typed(*words, "--crawl", self.crawl, "--redis", self.url, environment=environment)

    def file(self, tables: Tables, name: str = "crawler.toml") -> str:
        return self.text(toml(tables), name)

    def text(self, lines: str, name: str = "crawler.toml") -> str:
        (self._folder / name).write_text(lines)
        return name

    def seed(self, url: str, *words: str, **environment: str) -> Finished:
        done = self.type("seed", url, *words, **environment)
        assert done.code == 0, done.err
        return done

    def shown(self, *words: str) -> Any:
        return json.loads(self.type(*words, "--json").out)

    @property
    def settings(self) -> Any:
        return self.shown("config", "show")

    @property
    def accepted(self) -> int:
        return int(self.shown("status")["accepted"])

    @property
    def revision(self) -> int:
        return int(self.shown("status")["settings_revision"])

    def with_store(self, work: Callable[[RedisStore], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            store = await connect(self.url)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(connected())


@pytest.fixture
def cluster(typed: Typed, tmp_path: Path, valkey: ValkeyProcess, crawl_name: str) -> Cluster:
    return Cluster(typed, tmp_path, valkey.url, crawl_name)


@pytest.fixture
def slow(cluster: Cluster) -> Cluster:
    """A crawl with one seed and a delay of 5 s, created with a settings file."""
    cluster.seed(FIRST, "-s", cluster.file({"politeness": {"delay": 5.0}, "limits": {"max_pages": 9}}))
    return cluster


def assert_stopped(done: Finished, *lines: str) -> None:
    """Assert that the command printed exactly these differences, and then one line that says what to do."""
    assert done.code == 2, done
    *shown, last = done.err.splitlines()
    assert shown == list(lines)
    assert last.startswith("error: crawl 'test")
    assert APPLY in last
    assert KEEP in last


# seed


def test_seeding_with_other_settings_shows_them_and_changes_nothing(slow: Cluster) -> None:
    changed = slow.file({"politeness": {"delay": 0.5}, "scope": {"exclude": ["/a", "/b"]}}, "changed.toml")
    done = slow.type("seed", SECOND, "-s", changed)
    assert_stopped(
        done,
        "politeness.delay: 5.0 in the crawl, 0.5 here",
        'scope.exclude: [] (the default) in the crawl, ["/a", "/b"] here',
        "limits.max_pages: 9 in the crawl, 0 (the default) here",
    )
    assert (slow.accepted, slow.revision, slow.settings["politeness"]["delay"]) == (1, 1, 5.0)


def test_of_rules_only_what_differs_is_shown(cluster: Cluster) -> None:
    rules = '[[extract]]\nname = "shop"\nfields = { title = { css = "h1" }, text = { css = "p" } }\n'
    cluster.seed(FIRST, "-s", cluster.text(rules))
    done = cluster.type("seed", SECOND, "-s", cluster.text(rules.replace("h1", "h2")))
    assert_stopped(done, 'extract.0.fields.title.css: "h1" in the crawl, "h2" here')


def test_seed_with_keep_settings_uses_those_of_the_crawl(slow: Cluster) -> None:
    slow.seed(SECOND, "-s", slow.file({"politeness": {"delay": 0.5}}, "changed.toml"), KEEP)
    assert (slow.accepted, slow.revision, slow.settings["politeness"]["delay"]) == (2, 1, 5.0)


def test_seed_with_apply_settings_replaces_those_of_the_crawl(slow: Cluster) -> None:
    changed = slow.file({"politeness": {"delay": 0.5}}, "changed.toml")
    slow.seed(SECOND, "-s", changed, APPLY)
    assert (slow.accepted, slow.revision) == (2, 2)
    assert (slow.settings["politeness"]["delay"], slow.settings["limits"]["max_pages"]) == (0.5, 0)
    slow.seed(SECOND, "-s", changed)
    assert slow.revision == 2


def test_equal_settings_are_not_a_difference(slow: Cluster) -> None:
    slow.seed(SECOND, "-s", "crawler.toml")
    assert (slow.accepted, slow.revision) == (2, 1)


def test_seeds_are_parsed_with_the_rules_of_the_crawl(cluster: Cluster) -> None:
    """`seed` without settings uses those of the crawl, including the rules that normalize its URLs."""
    cluster.seed(FIRST, "-s", cluster.file({"scope": {"strip_params": ["color"]}}))
    assert "0 seeds queued, 1 seen before" in cluster.seed("https://a.test/1?color=red").out
    assert "1 seed queued, 0 seen before" in cluster.seed("https://a.test/1?utm_source=x").out
    changed = cluster.file({"scope": {"strip_params": ["size"]}}, "changed.toml")
    assert "0 seeds queued, 1 seen before" in cluster.seed("https://a.test/1?color=red", "-s", changed, KEEP).out


@pytest.mark.parametrize("replica", [{"concurrency": 7}, {"listen": "127.0.0.1:0", "log_format": "json"}])
def test_settings_of_a_replica_are_not_compared(slow: Cluster, replica: dict[str, Any]) -> None:
    slow.seed(SECOND, "-s", slow.file({"replica": replica}, "machine.toml"))
    assert slow.accepted == 2


def test_only_settings_named_in_the_environment_are_compared(slow: Cluster) -> None:
    slow.seed(SECOND, CRAWLER_POLITENESS__DELAY="5")
    done = slow.type("seed", "https://a.test/3", CRAWLER_POLITENESS__DELAY="4")
    assert_stopped(done, "politeness.delay: 5.0 in the crawl, 4.0 here")
    slow.seed("https://a.test/3", APPLY, CRAWLER_POLITENESS__DELAY="4")
    assert (slow.settings["politeness"]["delay"], slow.settings["limits"]["max_pages"]) == (4.0, 9)


def test_secrets_are_not_shown(slow: Cluster) -> None:
    tables = {
        "politeness": {"delay": 5.0},
        "limits": {"max_pages": 9},
        "archive": {"upload": "s3://key:secret@bucket/pages?token=secret"},
    }
    done = slow.type("seed", SECOND, "-s", slow.file(tables, "upload.toml"))
    assert_stopped(done, 'archive.upload: "" (the default) in the crawl, "s3://bucket/pages" here')
    slow.seed(SECOND, "-s", "upload.toml", APPLY)
    tables["archive"]["upload"] = "s3://key:other@bucket/pages"
    done = slow.type("seed", SECOND, "-s", slow.file(tables, "upload.toml"))
    assert_stopped(done, "archive.upload: differs in a part that is not shown")


def test_the_number_of_shards_is_fixed(slow: Cluster) -> None:
    tables = {"politeness": {"delay": 5.0}, "limits": {"max_pages": 9}, "frontier": {"shards": 3}}
    fewer = slow.file(tables, "fewer.toml")
    done = slow.type("seed", SECOND, "-s", fewer)
    assert_stopped(done, "frontier.shards: 1024 (the default) in the crawl, 3 here")
    done = slow.type("seed", SECOND, "-s", fewer, APPLY)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "frontier.shards is 1024 in crawl" in done.err
    assert (slow.accepted, slow.revision) == (1, 1)
    slow.seed(SECOND, "-s", fewer, KEEP)


def test_keep_and_apply_settings_exclude_each_other(slow: Cluster) -> None:
    for words in (("seed", SECOND), ("run",), ("crawl",)):
        done = slow.type(*words, APPLY, KEEP)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "not both" in done.err


# several at once


def test_one_of_two_concurrent_creations_with_different_settings_stops(cluster: Cluster) -> None:
    def wanted(delay: float) -> Any:
        return load(None, {"politeness": {"delay": delay}, "replica": {"redis": cluster.url}})

    async def both() -> list[Any]:
        seeds = [seed_crawl(cluster.crawl, wanted(delay), (f"https://{delay}.test/",)) for delay in (2.0, 3.0)]
        return await asyncio.gather(*seeds, return_exceptions=True)

    codes = asyncio.run(both())
    assert sorted(type(code).__name__ for code in codes) == [SettingsDiffer.__name__, "int"]
    assert cluster.accepted == 1
    assert cluster.settings["politeness"]["delay"] == (2.0 if codes[0] == 0 else 3.0)


def test_settings_that_changed_since_they_were_compared_are_not_replaced(slow: Cluster) -> None:
    """Another command changes the settings between the comparison and the replacement."""

    async def race(store: RedisStore) -> None:
        opened = await open_crawl(store, slow.crawl)
        settings = {delay: load(None, {"politeness": {"delay": delay}}) for delay in (2.0, 3.0)}
        await choose_and_adopt(store, opened, settings[2.0], "apply")
        with pytest.raises(SettingsOutdated, match="meanwhile"):
            await choose_and_adopt(store, opened, settings[3.0], "apply")
        await choose_and_adopt(store, opened, settings[2.0], "apply")  # the same again, as after a lost answer

    slow.with_store(race)
    assert (slow.revision, slow.settings["politeness"]["delay"]) == (2, 2.0)
