"""How running replicas apply changed settings, and the copy beside the output."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from crawler.app.crawl_settings import Follower, keep_settings, kept_settings, plan_step, waits_because
from crawler.errors import UserError
from crawler.events import Event, Events, SettingsFollowed, SettingsRefused
from crawler.settings import reference
from crawler.settings.load import CrawlSettings, load
from frontier.crawls import create_crawl, open_crawl, save_settings
from frontier.store import RedisStore


def crawl(**tables: Any) -> CrawlSettings:
    return load(None, tables).crawl


def test_every_setting_of_a_crawl_says_whether_it_waits() -> None:
    """The reference and the behaviour of replicas agree."""
    others = ("replica", "identity", "requests", "extract", "extract.fields", "app")
    expected = {one.name: one.because for one in reference.all_settings() if one.table not in others}
    assert {name: waits_because(name) for name in CrawlSettings().flat() if name not in others} == expected
    assert not any(expected[name] for name in expected if name.startswith(("politeness.", "limits.")))
    assert all(expected[name] for name in expected if name.startswith(("archive.", "fetch.")))
    assert expected["frontier.lease"]


def test_a_step_applies_what_can_change_and_keeps_the_rest() -> None:
    current = crawl(archive={"text": "text"}, politeness={"delay": 1.0})
    wanted = crawl(
        archive={"text": "markdown"},
        politeness={"delay": 2.0},
        frontier={"lease": 60.0, "batch": 8},
    )
    kept = crawl(archive={"text": "text"}, politeness={"delay": 2.0}, frontier={"batch": 8})
    followed, waiting = ("politeness.delay", "frontier.batch"), ("frontier.lease", "archive.text")
    assert plan_step(current, wanted) == (kept, followed, waiting)
    assert plan_step(kept, kept) == (kept, (), ())


class Recorder:
    """Records what a follower applied and reported."""

    def __init__(self) -> None:
        self.applied: list[CrawlSettings] = []
        self.events: list[Event] = []

    def apply(self, settings: CrawlSettings, revision: int) -> None:
        if settings.scope.exclude:
            raise UserError("no good")
        self.applied.append(settings)


@pytest.fixture
async def recorder(store: RedisStore, crawl_name: str) -> Recorder:
    await create_crawl(store, crawl_name, 1, crawl().to_json())
    return Recorder()


@pytest.fixture
async def follower(store: RedisStore, crawl_name: str, recorder: Recorder) -> Follower:
    events = Events()
    events.subscribe(recorder.events.append)
    return Follower(store, await open_crawl(store, crawl_name), crawl(), recorder.apply, events)


async def test_a_revision_is_applied_once(
    store: RedisStore, crawl_name: str, recorder: Recorder, follower: Follower
) -> None:
    wanted = crawl(limits={"max_pages": 5})
    assert await save_settings(store, await open_crawl(store, crawl_name), wanted.to_json()) == 2
    assert await save_settings(store, await open_crawl(store, crawl_name), wanted.to_json()) == 2
    for _ in range(2):
        await follower.follow(2)
    assert recorder.applied == [wanted]
    assert recorder.events == [SettingsFollowed(2, ("limits.max_pages",), ())]
    assert (follower.revision, follower.waiting) == (2, ())


async def test_redis_is_not_asked_while_the_revision_is_the_same(store: RedisStore, follower: Follower) -> None:
    before = store.round_trips
    await follower.follow(1)
    assert store.round_trips == before


async def test_a_setting_that_waits_for_a_restart_is_reported_until_it_is_reverted(
    store: RedisStore, crawl_name: str, recorder: Recorder, follower: Follower
) -> None:
    await save_settings(store, await open_crawl(store, crawl_name), crawl(archive={"compression": "zstd"}).to_json())
    await follower.follow(2)
    assert recorder.applied == [crawl()]
    assert (follower.revision, follower.waiting) == (1, ("archive.compression",))
    await save_settings(store, await open_crawl(store, crawl_name), crawl().to_json())
    await follower.follow(3)
    assert (follower.revision, follower.waiting) == (3, ())


@pytest.mark.parametrize("stored", [crawl(scope={"exclude": ["x"]}).to_json(), b'{"politeness": {"dely": 1}}', b"{"])
async def test_settings_that_cannot_be_used_change_nothing(
    store: RedisStore, crawl_name: str, recorder: Recorder, follower: Follower, stored: bytes
) -> None:
    await save_settings(store, await open_crawl(store, crawl_name), stored)
    await follower.follow(2)
    assert recorder.applied == []
    (event,) = recorder.events
    assert isinstance(event, SettingsRefused)
    assert follower.refused == event.error
    assert "\n" not in event.error
    assert follower.revision == 1
    await save_settings(store, await open_crawl(store, crawl_name), crawl().to_json())
    await follower.follow(3)
    assert (follower.revision, follower.refused) == (3, "")


def test_the_file_can_be_used_as_a_settings_file(tmp_path: Path) -> None:
    """It has no passwords, and only what differs from the defaults."""
    tables = {
        "politeness": {"delay": 0.2},
        "scope": {"exclude": ["a'b\"c\\d"]},
        "app": {"odd key": 1},
        "frontier": {"shards": 64},
        "extract": [{"name": "shop", "match": "/p", "fields": {"name": {"css": "h1"}}}],
    }
    secret = {"archive": {"upload": "s3://user:hidden@bucket/x"}}
    keep_settings(tmp_path, "news", CrawlSettings.of(tables | secret))
    path = kept_settings([tmp_path], "news")
    assert path is not None
    assert load(path).crawl == CrawlSettings.of(tables)
    text = path.read_text()
    assert "hidden" not in text
    assert "max_pages" not in text
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"# caf\xe9\n")  # by an editor
    keep_settings(tmp_path, "news", CrawlSettings())
    assert load(path).crawl == CrawlSettings()


def test_without_a_name_only_one_crawl_can_be_meant(tmp_path: Path) -> None:
    assert kept_settings([tmp_path]) is None
    for name in ("a", "a-b"):
        keep_settings(tmp_path, name, CrawlSettings())
    assert kept_settings([tmp_path]) is None
    assert kept_settings([tmp_path], "a") == tmp_path / "a.settings.toml"


@pytest.mark.parametrize("latest", ["x", "y"])
def test_of_several_folders_the_latest_settings_are_taken(tmp_path: Path, latest: str) -> None:
    folders = [tmp_path / "x", tmp_path / "y"]
    for folder in folders:
        folder.mkdir()
        keep_settings(folder, "a", CrawlSettings())
    os.utime(tmp_path / latest / "a.settings.toml", (2**32, 2**32))
    assert kept_settings(folders, "a") == tmp_path / latest / "a.settings.toml"


def test_settings_are_kept_only_in_a_folder_that_exists(tmp_path: Path) -> None:
    keep_settings(tmp_path / "gone", "a", CrawlSettings())
    assert not (tmp_path / "gone").exists()
