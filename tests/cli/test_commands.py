"""The effects and the output of each command."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from crawler.errors import UserError
from crawler.observe import summary
from crawler.observe.summary import Summary
from frontier.clock import ServerClock, SystemClock
from frontier.control import Control, DomainRules
from frontier.crawls import Crawl, FieldTypes
from frontier.domains import shard_of
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import command
from frontier.settle import SettledUrl, Settlement
from frontier.store import RedisStore
from frontier.urls import canonicalize
from politeness.robots_fetch import RobotsRecord
from politeness.robots_syntax import Excerpt
from tests.cli.conftest import Hand
from tests.typed import Typed


async def rules(store: RedisStore, crawl: Crawl) -> Control:
    control = Control(store, crawl.keys)
    await control.refresh()
    return control


async def bury_all(store: RedisStore, crawl: Crawl) -> None:
    """Give up every queued URL because of timeouts."""
    clock = ServerClock(SystemClock(), store.time_ms)
    await clock.refresh()
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    leased, _ = await frontier.lease(range(len(crawl.keys.shards)), 1, "r1", 9)
    leases = [lease for answer in leased for lease in answer.leases]
    await frontier.settle(
        [Settlement(le, 0, urls=[SettledUrl(e, "dead", "timeout") for e in le.entries]) for le in leases]
    )


@pytest.mark.parametrize(("command", "state"), [("pause", "pause"), ("stop", "stop"), ("resume", "run")])
def test_a_command_sets_the_state_of_the_crawl(hand: Hand, command: str, state: str) -> None:
    assert hand.json(command) == {"crawl": hand.crawl, "action": command, "domain": "", "seconds": None}
    assert hand.with_store(rules).state == state


def test_any_host_or_url_of_a_domain_blocks_it(hand: Hand) -> None:
    assert "no longer fetches from b.test" in hand.type("block", "https://WWW.b.test/x")
    assert hand.with_store(rules).rules == DomainRules(frozenset({"b.test"}))
    hand.type("unblock", "b.test")
    assert hand.with_store(rules).rules == DomainRules()


def test_the_delay_of_a_domain_is_set_and_reset(hand: Hand) -> None:
    assert hand.json("delay", "a.test", "2.5")["seconds"] == 2.5
    assert hand.with_store(rules).rules.delays == {"a.test": 2.5}
    assert "now uses its own delay for a.test" in hand.type("delay", "a.test")
    assert hand.with_store(rules).rules.delays == {}


def test_a_dead_url_that_is_seeded_again_is_dead_no_longer(hand: Hand) -> None:
    hand.with_store(bury_all)
    assert "2 seeds queued" in hand.type("seed", "--again", "https://a.test/1", "https://new.test/")
    assert "https://a.test/1" not in {one["url"] for one in hand.json("dead", "list")}
    found = hand.json("status")
    assert (found["accepted"], found["dead"], found["open"]) == (5, 3, 2)
    assert hand.json("why", "https://a.test/1")["where"] == "queued"


def test_a_changed_delay_is_shown_at_once(hand: Hand) -> None:
    """Not only after the next response. A longer one that the robots.txt asks for stays."""

    async def remember(store: RedisStore, crawl: Crawl) -> None:
        excerpt = Excerpt(None, [], 4.0, None, ()).pack()
        record = RobotsRecord("rules", "ok", 200, 1, 10**13, excerpt).pack()
        robots = crawl.keys.shards[shard_of("a.test", crawl.shards)].robots("a.test")
        await store.send([command("HSET", robots, "https://a.test", b"9" * 13 + record)])

    def shown() -> set[float]:
        (line,) = [line for line in hand.json("domains")["busiest"] if line["domain"] == "a.test"]
        return {line["delay_ms"] / 1000, hand.json("why", "https://a.test/1")["delay_s"]}

    hand.type("delay", "a.test", "2.5")
    assert shown() == {2.5}
    hand.type("delay", "a.test")
    assert shown() == {1.0}
    hand.with_store(remember)
    hand.type("delay", "a.test", "2.5")
    assert shown() == {4.0}
    hand.type("delay", "a.test", "60")
    assert shown() == {60.0}
    hand.type("delay", "unknown.test", "60")
    assert hand.json("why", "https://unknown.test/")["delay_s"] is None


def test_dead_letters_are_listed_and_queued_again(hand: Hand, typed: Typed) -> None:
    assert "no dead letters" in hand.type("dead", "list")
    hand.with_store(bury_all)
    assert len(hand.json("dead", "list")) == 4
    for limit, is_said in (("3", True), ("4", False)):
        done = typed("dead", "list", "--limit", limit, "--crawl", hand.crawl, "--redis", hand.url)
        assert (done.out.count("timeout"), "--limit shows more" in done.err) == (int(limit), is_said)
    assert {one["url"] for one in hand.json("dead", "list", "--domain", "a.test")} == {
        "https://a.test/1",
        "https://a.test/2",
    }
    assert hand.json("dead", "list", "--reason", "dns") == []
    assert hand.json("dead", "requeue", "--domain", "www.b.test")["requeued"] == 1
    assert hand.json("dead", "requeue", "--all")["requeued"] == 3
    assert hand.json("dead", "requeue", "--all")["requeued"] == 0
    found = hand.json("status")
    assert (found["accepted"], found["dead"], found["open"]) == (4, 0, 4)


def test_urls_that_a_robots_txt_denied_are_queued_by_another_command(typed: Typed) -> None:
    assert typed("seed", "https://a.test/").code == 0
    assert "queue them with `crawler seed --again`" in typed("dead", "requeue", "--reason", "robots").err
    assert "--again" not in typed("dead", "requeue", "--reason", "timeout").err


def test_domains_lists_the_busiest_and_the_overdue_ones(hand: Hand) -> None:
    found = hand.json("domains")
    assert found["busiest"][0]["domain"] == "a.test"
    assert {line["domain"] for line in found["overdue"]} == {"a.test", "b.test", "c.test"}
    assert "a.test" in hand.type("domains", "--limit", "1")


def test_domains_shows_the_lists_of_the_written_summary(hand: Hand) -> None:
    async def write(store: RedisStore, crawl: Crawl) -> Summary:
        taken = await summary.take(store, crawl.keys, int(await store.time_ms()) - 4_000, "r1", ())
        await summary.save(store, crawl.keys, msgspec.structs.replace(taken, overdue=[]), ttl_s=60)
        return taken

    taken = hand.with_store(write)
    found = hand.json("domains")
    assert (found["at_ms"], found["overdue"]) == (taken.at_ms, [])
    assert re.search(r"as replica r1 found them \d+(\.\d)? s ago", hand.type("domains"))


def test_shards_with_work_and_without_a_replica_are_unowned(hand: Hand) -> None:
    (line,) = hand.json("shards")
    assert line["replica"] == ""
    assert 1 <= len(line["shards"]) <= 3
    assert "unowned" in hand.type("shards")


def test_top_prints_once_without_a_terminal(hand: Hand) -> None:
    found = hand.json("top")
    assert found["summary"]["accepted"] == 4
    shown = hand.type("top")
    assert hand.crawl in shown
    assert "no replica runs" in shown


def test_status_and_top_show_the_same_numbers_under_the_same_names(hand: Hand) -> None:
    status, top = hand.json("status"), hand.json("top")["summary"]
    assert top.keys() <= status.keys()
    assert status["open"] == top["open"] == 4
    more = {"state", "condition", "replicas", "rules", "settings_revision", "max_pages"}
    more |= {"extracted", "never_found"}
    assert status.keys() - top.keys() == more


def test_doctor_checks_the_machine_and_redis(hand: Hand) -> None:
    findings = {one["check"]: one for one in hand.json("doctor", "--redis", hand.url, here=False)}
    assert findings["Redis version"]["result"] == "good"
    assert findings["Redis persistence"]["result"] == "doubtful"
    assert "appendonly" in findings["Redis persistence"]["remedy"]
    assert "64 bytes" in findings["Redis queues"]["found"]
    assert "zset-max-listpack-value 512" in findings["Redis queues"]["remedy"]
    assert {"open files", "clock", "DNS", "disk for output", "Redis memory", "contact"} <= set(findings)


@pytest.mark.parametrize(
    "words", [("status",), ("why", "https://a.test/"), ("pause",), ("doctor",), ("config", "show")]
)
def test_a_command_that_does_not_crawl_leaves_nothing_in_an_empty_folder(
    typed: Typed, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = typed(*words)
    assert list(tmp_path.iterdir()) == []
    if words != ("doctor",):
        assert (done.code, done.err) == (
            2,
            "error: no crawl here, because there is no folder .crawler/: start one with `crawler crawl URL`, "
            "or name its store with --data-dir or --redis\n",
        )


def test_the_error_for_an_unknown_crawl_lists_the_existing_ones(hand: Hand) -> None:
    with pytest.raises(UserError, match=rf"no crawl named '{hand.crawl}x' at .*; there are: {hand.crawl}\b"):
        hand.type("status", "--crawl", f"{hand.crawl}x", "--redis", hand.url, here=False)


def test_a_url_may_be_given_without_its_scheme(hand: Hand) -> None:
    assert hand.json("why", "a.test/1")["url"] == "https://a.test/1"
    hand.type("seed", "http://plain.test/")
    assert hand.json("why", "plain.test")["url"] == "http://plain.test/"
    assert hand.json("why", "unknown.test")["verdict"].startswith("never queued")
    assert hand.json("why", "localhost:3000/x")["url"] == "http://localhost:3000/x"
    assert hand.json("why", "10.0.0.1")["url"] == "http://10.0.0.1/"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https:/a.test/1", "https://a.test/1"),
        ("https:a.test/1", "https://a.test/1"),
        ("//a.test/1", "https://a.test/1"),
        ("a.test:8080/x", "http://a.test:8080/x"),
        ("a/b", "https://a/b"),
    ],
)
def test_a_url_is_read_alike_wherever_it_is_given(hand: Hand, typed: Typed, written: str, meant: str) -> None:
    """Given a way to write a URL, then a seed, `why` and `block` take it for the same URL."""
    place = ("--crawl", hand.crawl, "--redis", hand.url)
    assert hand.json("why", written)["url"] == meant
    assert hand.json("block", written)["domain"] == canonicalize(meant).domain
    assert typed("seed", written, *place).code == 0
    assert hand.json("why", meant)["seen"]


@pytest.mark.parametrize("command", [("why",), ("block",), ("delay",)])
@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("http//a.test/", "the colon is missing; write it as http://a.test/"),
        ("ftp://a.test/", "only http and https can be crawled; write it as https://a.test/"),
    ],
)
def test_a_bad_url_gets_the_advice_that_a_seed_gets(
    hand: Hand, typed: Typed, command: tuple[str, ...], written: str, told: str
) -> None:
    done = typed(*command, written, "--crawl", hand.crawl, "--redis", hand.url)
    assert (done.code, done.err) == (2, f"error: {written!r}: {told}\n")


def test_why_names_what_keeps_the_whole_crawl_waiting(hand: Hand) -> None:
    assert hand.type("why", "a.test/1").splitlines()[0].rstrip() == "queued, and its domain is due; no replica runs"
    hand.type("pause")
    assert "the crawl is paused; `crawler resume` lets it go on" in hand.type("why", "a.test/1").splitlines()[0]


@pytest.mark.parametrize(
    ("before", "action", "told"),
    [
        ("resume", "pause", "no replica runs: paused; to continue: {resume}; then start replicas: {run}"),
        ("stop", "stop", "no replica runs: stopped; to continue: {resume}; then start replicas: {run}"),
        ("resume", "resume", "no replica runs; start one with: {run}"),
    ],
)
def test_a_command_that_changes_nothing_now_says_so(
    hand: Hand, typed: Typed, before: str, action: str, told: str
) -> None:
    place = ("--crawl", hand.crawl, "--redis", hand.url)
    hand.type(before)
    done = typed(action, *place)
    assert done.code == 0
    named = {word: f"crawler {word} {' '.join(place)}" for word in ("resume", "run")}
    assert done.err == f"note: {told.format(**named)}\n"


def test_commands_to_a_finished_crawl_say_that_it_has_finished(hand: Hand, typed: Typed) -> None:
    """And so do the screens, because `crawler resume` would change nothing."""
    hand.with_store(bury_all)
    place = ("--crawl", hand.crawl, "--redis", hand.url)
    for action, done in (("pause", "paused"), ("stop", "stopped")):
        told = typed(action, *place).err
        assert f"note: no replica runs: finished; the crawl is also {done}: `crawler resume" in told
        for screen in (["status"], ["top", "--once"]):
            shown = hand.type(*screen)
            assert "finished" in shown
            assert f"`crawler resume {' '.join(place)}` undoes that" in shown
            assert "to continue" not in shown
    told = typed("resume", *place).err
    assert told == "note: no replica runs: finished\n"
    assert "resume" not in hand.type("status")


def test_a_crawl_at_its_page_limit_says_what_lets_it_go_on(hand: Hand, typed: Typed) -> None:
    place = ("--crawl", f"{hand.crawl}-limited", "--redis", hand.url)
    assert (
        typed("seed", "https://a.test/", "https://b.test/", *place, environment={"CRAWLER_LIMITS__MAX_PAGES": "1"}).code
        == 0
    )
    limited = Hand(hand.url, place[1])

    async def count_a_page(store: RedisStore, crawl: Crawl) -> None:
        clock = ServerClock(SystemClock(), store.time_ms)
        await clock.refresh()
        frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
        leased, _ = await frontier.lease(range(len(crawl.keys.shards)), 1, "r1", 9)
        lease = next(lease for answer in leased for lease in answer.leases)
        await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "200")])])

    limited.with_store(count_a_page)
    assert "no replica runs: page limit reached; " in typed("stop", *place).err
    assert "to continue, raise limits.max_pages with `crawler config apply" in typed("resume", *place).err


def test_an_output_folder_to_search_must_exist(hand: Hand) -> None:
    with pytest.raises(UserError, match="nosuch: no such folder"):
        hand.type("why", "https://a.test/1", "--out", "nosuch")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pause", "--crawl", "a b"], "crawl name"),
        (["block", "http://["], "is not a domain"),
        (["config", "check", "/nowhere.toml"], "/nowhere.toml"),
        (["init", "--preset", "fast"], "there is no preset"),
        (["dead", "requeue"], "say which: --domain DOMAIN, --reason REASON, or --all"),
        (["delay", "a.test", "soon"], "Invalid value"),
    ],
)
def test_a_user_error_is_one_line_and_exit_code_2(typed: Typed, words: list[str], told: str) -> None:
    done = typed(*words)
    assert done.code == 2, done.err
    assert told in done.err
    assert "Traceback" not in done.err


def test_an_unreachable_redis_has_its_own_exit_code(tmp_path: Path) -> None:
    """In a separate process, so that the exit code is the one that a shell sees."""
    words = [sys.executable, "-m", "crawler", "top", "--redis", "redis://127.0.0.1:1/0"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=180, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (75, False)


def test_no_command_takes_long_on_a_crawl_with_many_domains(hand: Hand) -> None:
    """Only the CPU time of this process counts, so that the test does not fail on a loaded machine."""
    hand.type("seed", *(f"https://d{number}.test/" for number in range(2_000)))
    for words in (["status"], ["top"], ["domains"], ["shards"], ["pause"], ["block", "x.test"], ["dead", "list"]):
        began = time.process_time()
        hand.json(*words)
        assert time.process_time() - began < 1.0, words


def test_types_are_shown_and_forgotten(hand: Hand) -> None:
    async def keep(store: RedisStore, crawl: Crawl) -> None:
        await FieldTypes(store, crawl.keys).keep(
            {("shop", "price"): "int", ("shop", "name"): "text", ("b", "n"): "bool"}
        )

    assert "no types are kept" in hand.type("types")
    hand.with_store(keep)
    assert hand.json("types", "shop") == [
        {"data_set": "shop", "field": "name", "type": "text"},
        {"data_set": "shop", "field": "price", "type": "int"},
    ]
    with pytest.raises(UserError, match="name the data set"):
        hand.type("types", "--forget")
    assert hand.json("types", "shop", "--forget")["forgotten"] == 2
    assert "keeps no types of a data set shop" in hand.type("types", "shop", "--forget")
    assert [line["data_set"] for line in hand.json("types")] == ["b"]
