"""`crawler repair`, on a crawl whose server has lost a shard."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from crawler.app.crawl_settings import keep_settings
from crawler.app.trial import queued
from crawler.errors import UserError
from crawler.scope.next_visit import Visits
from crawler.settings.load import CrawlSettings
from crawler.sinks.lines import iso_time
from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.entries import Entry
from frontier.errors import CrawlResharded
from frontier.known_pages import KnownPage, find_page
from frontier.scripts import command
from frontier.shards import frozen
from frontier.store import RedisStore
from tests.cli.conftest import Hand
from tests.typed import Typed
from tests.valkey import ValkeyProcess

STEP_MS = 3_600_000
NOON = 1_790_000_000


async def lose_shard(store: RedisStore, crawl: Crawl) -> None:
    """Lose the shard of a.test."""
    keys = crawl.keys.shards[shard_of("a.test", crawl.shards)]
    lost = [keys.due, keys.stats, keys.owner, keys.queue("a.test"), keys.domain("a.test"), keys.seen(0)]
    await store.send([command("DEL", key) for key in lost])


def test_the_last_page_of_a_url_counts_and_other_crawls_do_not(hand: Hand, tmp_path: Path) -> None:
    """Its lines may be in any order, in the files of several replicas."""
    out = tmp_path / "out"
    out.mkdir()
    for name, outcome in (("a", "denied"), ("b", "done"), ("c", "dead"), ("another-r1-2026", "done")):
        path = "2" if name.startswith("another") else "1"  # a page of a crawl that shares the folder
        line = {"url": f"https://a.test/{path}", "domain": "a.test", "outcome": outcome, "reason": "x", "depth": 0}
        line["replica"] = "r1"
        (out / f"{name}.pages.jsonl").write_text(json.dumps(line) + "\n")
    hand.with_store(lose_shard)
    hand.type("repair", "--archive", str(out), "https://a.test/1")
    status = hand.json("status")
    assert (status["done"], status["restored"], status["denied"], status["dead"]) == (1, 1, 0, 0)


def test_a_known_page_is_visited_when_its_last_line_says_so(hand: Hand, tmp_path: Path) -> None:
    """Its lines are in files of two replicas. The links of other pages to it queue nothing."""
    about = {"domain": "a.test", "outcome": "done", "reason": "ok", "depth": 1, "replica": "r1", "status": 200}
    first = {
        **about,
        "url": "https://a.test/1",
        "settled_at": iso_time(NOON),
        "next_visit": iso_time(NOON + 60),
        "visit_state": str(Visits(NOON, NOON, 60)),
    }
    second = first | {
        "settled_at": iso_time(NOON + 60),
        "previous_visit": iso_time(NOON),
        "next_visit": iso_time(NOON + 160),
        "visit_state": str(Visits(NOON + 60, NOON, 100)),
    }
    other = {**about, "url": "https://a.test/2", "settled_at": iso_time(NOON), "links": ["https://a.test/1"]}
    for name, lines in (("a", [second]), ("b", [other, first])):
        (tmp_path / f"{name}.pages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    hand.with_store(lose_shard)
    repaired = hand.json("repair", "--archive", str(tmp_path))
    assert (repaired["restored"], repaired["known"], repaired["queued"]) == (2, 1, 0)

    async def known(store: RedisStore, crawl: Crawl) -> KnownPage | None:
        keys = crawl.keys.shards[shard_of("a.test", crawl.shards)]
        return await find_page(store, crawl.keys, keys, Entry("https://a.test/1", "a.test"))

    page = hand.with_store(known)
    assert (page.due_s, page.entry.visit, page.entry.depth) == (NOON + 160, second["visit_state"], 1)
    assert hand.json("repair", "--archive", str(tmp_path))["shards"] == []


def test_what_a_repair_does_not_use_is_noted(hand: Hand, typed: Typed, tmp_path: Path) -> None:
    """Settings that differ from those of the crawl, and seeds if nothing was lost."""
    for name, delay in (("same", 1), ("other", 7)):
        (tmp_path / f"{name}.toml").write_text(f"[politeness]\ndelay = {delay}\n")
    words = ("repair", "--accept-loss", "--crawl", hand.crawl, "--redis", hand.url, "--settings")
    told = typed(*words, "other.toml", "https://d.test/")
    notes = " ".join(told.err.split())
    assert (told.code, told.out) == (0, "no shard has lost its data\n")
    assert "settings, so these that are given were ignored: politeness.delay; `crawler config apply` changes" in notes
    assert "the seeds that are given were not queued; `crawler seed` queues those that are new" in notes
    assert typed(*words, "same.toml").err == ""
    hand.with_store(lose_shard)
    told = typed(*words, "other.toml", "https://d.test/")
    assert "1 shard restored: 0 URLs settled" in told.out
    assert "politeness.delay" in told.err
    assert "seeds" not in told.err


@pytest.mark.parametrize("words", ["repair --accept-loss", "shards"])
def test_shards_of_a_reshard_that_redis_has_forgotten_are_not_called_lost(hand: Hand, words: str) -> None:
    async def freeze(store: RedisStore, crawl: Crawl) -> None:
        await store.send([command("HSET", of.stats, "crawl", frozen(crawl.keys)) for of in crawl.keys.shards])

    hand.with_store(freeze)
    with pytest.raises(CrawlResharded, match=r"run `crawler reshard --shards N( --crawl [^`]+)?` again"):
        hand.type(*words.split())


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (b'{"url":"https://a.test/2" GARBAGE\n', "broken.pages.jsonl:2: JSON is malformed"),
        (b"\0" * 100 + b"\n", "broken.pages.jsonl:2: JSON is malformed"),
        (b'{"hello": 1}\n', "broken.pages.jsonl:2: Object missing required field"),
        (b'{"url": "\xff"}\n', "broken.pages.jsonl:2: "),
        (
            b'{"url":"https://a.test/2","domain":"a.test","outcome":"done","reason":"x","depth":0,"next_visit":"soon"}\n',
            "broken.pages.jsonl:2: Invalid RFC3339 encoded datetime",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_named(hand: Hand, tmp_path: Path, broken: bytes, said: str) -> None:
    """When it is mended, the repair can be repeated. Empty lines and folders do not matter."""
    line = {
        "url": "https://a.test/1",
        "domain": "a.test",
        "outcome": "done",
        "reason": "x",
        "depth": 0,
        "replica": "r1",
    }
    whole = json.dumps(line).encode() + b"\n"
    (tmp_path / "folder.pages.jsonl").mkdir()
    file = tmp_path / "broken.pages.jsonl"
    file.write_bytes(whole + broken)
    hand.with_store(lose_shard)
    with pytest.raises(UserError, match=f"{re.escape(said)}.*then rerun"):
        hand.type("repair", "--archive", str(tmp_path))
    file.write_bytes(whole + b"\n")
    assert hand.json("repair", "--archive", str(tmp_path))["restored"] == 1


def test_what_is_restored_is_due_by_crawl_time(hand: Hand) -> None:
    # Given a crawl during which the server's clock stepped forward by an hour, and a lost shard,
    async def step_and_lose_shard(store: RedisStore, crawl: Crawl) -> None:
        step = command("HSET", f"{crawl.keys.peers}:clock", "correction_ms", -STEP_MS, "version", 1)
        await store.send([step])
        await lose_shard(store, crawl)

    async def due_in_ms(store: RedisStore, crawl: Crawl) -> float:
        keys = crawl.keys.shards[shard_of("a.test", crawl.shards)]
        (due_ms,) = await store.send([command("ZSCORE", keys.due, "a.test")])
        return float(due_ms) - (await store.time_ms() - STEP_MS)

    hand.with_store(step_and_lose_shard)

    # when it is repaired from a seed, this can be leased at once and not in an hour.
    assert hand.json("repair", "https://a.test/1", "--accept-loss")["queued"] == 1
    assert hand.with_store(due_in_ms) <= 0


def test_labels_and_types_come_back_from_the_output(hand: Hand, tmp_path: Path) -> None:
    """Those of a page that was given up, of the target of a redirect, and of the links that a handler has chosen."""
    payload, tag = {"shop": 7, "text": "a b"}, 'product{"shop":7,"text":"a\\u0020b"}'
    about = {"domain": "a.test", "reason": "x", "depth": 0, "replica": "r1", "label": "product", "payload": payload}
    links = [f"https://a.test/{name}" for name in ("chosen", "left", "plain")]
    lines = [
        {**about, "url": "https://a.test/dead", "outcome": "dead"},
        {**about, "url": "https://a.test/moved", "outcome": "done", "status": 301, "links": ["https://a.test/target"]},
        {
            **about,
            "url": "https://a.test/1",
            "outcome": "done",
            "status": 200,
            "links": links,
            "followed": {tag: [links[0], "https://a.test/added"], "": [links[2]]},
        },
    ]
    (tmp_path / "a.pages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / f"{hand.crawl}.types.json").write_text('{"shop": {"price": "float"}}')
    hand.with_store(lose_shard)
    hand.type("repair", "--archive", str(tmp_path))
    hand.type("dead", "requeue", "--all")
    assert hand.json("types") == [{"data_set": "shop", "field": "price", "type": "float"}]

    async def tags(store: RedisStore, crawl: Crawl) -> dict[str, str]:
        return {entry.url.rpartition("/")[2]: entry.tag for entry in await queued(store, crawl.keys)}

    found = hand.with_store(tags)
    assert {name: found.get(name) for name in ("dead", "target", "chosen", "added", "plain", "left")} == {
        **dict.fromkeys(("dead", "target", "chosen", "added"), tag),
        "plain": "",
        "left": None,
    }


def test_items_are_counted_as_before(hand: Hand, tmp_path: Path) -> None:
    """Also those of later visits to a page, and after a repeated repair; not those of shards that were not lost."""
    about = {"domain": "a.test", "outcome": "done", "reason": "ok", "depth": 0, "status": 200, "replica": "r1"}
    items = {"shop": [{"price": 1}, {"price": 2}], "news": [{}]}
    lines = [
        {**about, "url": "https://a.test/1", "items": items},
        {**about, "url": "https://a.test/1", "items": {"shop": [{"price": 3}]}, "previous_visit": iso_time(NOON)},
        {**about, "url": "https://a.test/2", "items": None},
        {**about, "url": "https://c.test/1", "domain": "c.test", "items": {"shop": [{"price": 4}]}},
    ]
    (tmp_path / "a.pages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def lose_identity(store: RedisStore, crawl: Crawl) -> None:
        """What a repair that is interrupted before its end leaves."""
        await store.send([command("HDEL", crawl.keys.shards[shard_of("a.test", crawl.shards)].stats, "crawl")])

    for lose in (lose_shard, lose_identity):
        hand.with_store(lose)
        hand.type("repair", "--archive", str(tmp_path))
        assert hand.json("status")["items"] == {"shop": 3, "news": 1}
    assert "shop 3, news 1" in hand.type("status")


def test_given_settings_are_laid_over_the_kept_ones(
    typed: Typed, valkey: ValkeyProcess, crawl_name: str, tmp_path: Path
) -> None:
    """One by one: a file that names one setting takes back none of the others."""
    kept = {"politeness": {"delay": 7}, "limits": {"max_pages": 5}, "frontier": {"shards": 16}}
    keep_settings(tmp_path, crawl_name, CrawlSettings.of(kept))
    (tmp_path / "more.toml").write_text("[limits]\nmax_pages = 9\n")
    place = ("--crawl", crawl_name, "--redis", valkey.url)
    words = ("repair", "https://a.test/", "--archive", str(tmp_path), *place, "--settings", "more.toml")
    told = typed(*words, environment={"CRAWLER_SCOPE__MAX_DEPTH": "3"})
    assert f"{crawl_name}.settings.toml, changed by those that are given" in " ".join(told.err.split()), told.err
    shown = json.loads(typed("config", "show", "--json", *place).out)
    found = (shown["politeness"]["delay"], shown["limits"]["max_pages"], shown["scope"]["max_depth"])
    assert (found, shown["frontier"]["shards"]) == ((7, 9, 3), 16)
