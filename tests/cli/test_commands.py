"""The effects and the output of each command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.errors import UserError
from crawler.observe import summary
from crawler.observe.summary import Summary
from crawler.settings import reference
from crawler.settings.loading import CrawlSettings, load
from frontier.clock import ServerClock, SystemClock
from frontier.control import Control, DomainRules
from frontier.crawls import Crawl, save_settings
from frontier.errors import BadInput, BadUrl
from frontier.queue import Frontier, FrontierSettings, SettledUrl, Settlement
from frontier.store import RedisStore
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
    assert "block b.test" in hand.type("block", "https://WWW.b.test/x")
    assert hand.with_store(rules).rules == DomainRules(frozenset({"b.test"}))
    hand.type("unblock", "b.test")
    assert hand.with_store(rules).rules == DomainRules()


def test_the_delay_of_a_domain_is_set_and_reset(hand: Hand) -> None:
    assert hand.json("delay", "a.test", "2.5")["seconds"] == 2.5
    assert hand.with_store(rules).rules.delays == {"a.test": 2.5}
    hand.type("delay", "a.test")
    assert hand.with_store(rules).rules.delays == {}


def test_dead_letters_are_listed_and_queued_again(hand: Hand) -> None:
    assert "no dead letters" in hand.type("dead", "list")
    hand.with_store(bury_all)
    assert len(hand.json("dead", "list")) == 4
    assert {one["url"] for one in hand.json("dead", "list", "--domain", "a.test")} == {
        "https://a.test/1",
        "https://a.test/2",
    }
    assert hand.json("dead", "list", "--reason", "dns") == []
    assert hand.json("dead", "requeue", "--domain", "www.b.test")["requeued"] == 1
    assert hand.json("dead", "requeue", "--all")["requeued"] == 3
    assert hand.json("dead", "requeue", "--all")["requeued"] == 0
    found = hand.json("status")
    assert (found["accepted"], found["dead"], found["open"]) == (8, 4, 4)


def test_requeueing_needs_a_selection(hand: Hand) -> None:
    with pytest.raises(UserError, match="say which"):
        hand.type("dead", "requeue")


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
    assert status.keys() - top.keys() == {
        "state",
        "condition",
        "replicas",
        "rules",
        "settings_revision",
        "max_pages",
    }


def test_the_stored_settings_are_shown_and_replaced(hand: Hand, tmp_path: Path) -> None:
    shown = hand.json("config", "show")
    assert shown["politeness"]["delay"] == 1.0
    file = tmp_path / "new.toml"
    file.write_text(f'[politeness]\ndelay = 7\n[frontier]\nshards = 3\n[replica]\nredis = "{hand.url}"\n')
    changes = hand.json("config", "apply", str(file), "--crawl", hand.crawl, here=False)
    assert [(one["name"], one["before"], one["after"], one["takes_effect"]) for one in changes] == [
        ("politeness.delay", 1.0, 7.0, reference.AT_ONCE),
        ("frontier.shards", 1024, 3, reference.CREATION),
    ]
    after = hand.json("config", "show")
    assert after["politeness"]["delay"] == 7.0
    assert after["frontier"]["shards"] == shown["frontier"]["shards"]
    assert "delay = 7.0" in hand.type("config", "show")


def test_a_file_with_one_setting_changes_this_setting_only(typed: Typed, tmp_path: Path) -> None:
    """`config apply` changes what a file names, and `--replace` resets the others and says which."""
    assert typed("seed", "http://127.0.0.1:3000/", "--allow", "127.0.0.1", "--port", "3000").code == 0
    (tmp_path / "few.toml").write_text("[limits]\nmax_pages = 150\n")
    (tmp_path / "slow.toml").write_text("[politeness]\ndelay = 5\n")
    assert typed("config", "apply", "few.toml").code == 0
    done = typed("config", "apply", "slow.toml")
    assert (done.code, "max_pages" in done.out, "reset" in done.out) == (0, False, False)
    shown = json.loads(typed("config", "show", "--json").out)
    assert (shown["politeness"]["delay"], shown["limits"]["max_pages"]) == (5.0, 150)
    assert shown["fetch"]["allow"] == ["127.0.0.1"]
    assert "nothing changes" in typed("config", "apply", "slow.toml").out
    done = typed("config", "apply", "slow.toml", "--replace", environment={"COLUMNS": "120"})
    told = [line.split()[-1] for line in done.out.splitlines() if line.startswith("reset to the default")]
    assert told == ["limits.max_pages", "fetch.allow", "fetch.ports"]
    shown = json.loads(typed("config", "show", "--json").out)
    assert (shown["politeness"]["delay"], shown["limits"]["max_pages"], shown["fetch"]["allow"]) == (5.0, 0, [])


def test_a_file_is_judged_together_with_the_settings_of_the_crawl(typed: Typed, tmp_path: Path) -> None:
    assert typed("seed", "https://a.test/").code == 0
    (tmp_path / "kind.toml").write_text("[scope]\nkind = 'domains'\n")
    (tmp_path / "list.toml").write_text("[scope]\ndomains = ['a.test']\n")
    assert typed("config", "apply", "kind.toml").code == 2
    assert 'kind = "seeds"' in typed("config", "show").out
    (tmp_path / "both.toml").write_text("[scope]\nkind = 'domains'\ndomains = ['b.test']\n")
    for name in ("both.toml", "list.toml", "kind.toml"):
        assert typed("config", "apply", name).code == 0
    assert 'domains = ["a.test"]' in typed("config", "show").out


def test_a_change_that_waits_for_a_restart_is_explained(hand: Hand, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(
        f'[fetch]\ncontact = "a@b.test"\n[limits]\nmax_pages = 9\n[frontier]\nshards = 3\n[replica]\nredis = "{hand.url}"\n'
    )
    told = hand.type("config", "apply", str(file), "--crawl", hand.crawl, here=False)
    assert "settings revision 2" in told
    assert re.search(r"limits\.max_pages +0 +9 +at once", told)
    assert re.search(r"fetch\.contact .* when the replicas restart", told)
    assert "fetch.contact waits: " in told
    assert re.search(r"frontier\.shards .* only when the crawl is created", told)
    assert "# revision 2" in hand.type("config", "show")
    again = hand.type("config", "apply", str(file), "--crawl", hand.crawl, here=False)
    assert "settings revision 2" in again
    assert "max_pages" not in again


@pytest.mark.parametrize("bad", ['exclude = ["["]', 'kind = "hosts"\ndomains = ["a b"]', "max_depth = -1"])
def test_unusable_settings_change_nothing(hand: Hand, tmp_path: Path, bad: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(f'[politeness]\ndelay = 9\n[scope]\n{bad}\n[replica]\nredis = "{hand.url}"\n')
    creation = ("seed", "https://d.test/", "--crawl", f"{hand.crawl}-new", "--settings")
    for words in (("config", "check"), ("config", "apply", "--crawl", hand.crawl), creation):
        with pytest.raises((UserError, BadInput)) as told:
            hand.type(*words, str(file), here=False)
        assert "\n" not in str(told.value)
    assert hand.json("config", "show")["politeness"]["delay"] == 1.0
    with pytest.raises(UserError, match="no crawl named"):
        hand.type("status", "--crawl", f"{hand.crawl}-new", "--redis", hand.url, here=False)
    assert hand.json("status")["settings_revision"] == 1


def test_a_settings_file_is_checked(hand: Hand, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('[politeness]\ndelay = 3\n[replica]\nredis = "redis://user:secret@host/0"\n')
    bad.write_text("[politeness]\ndely = 3\n")
    assert "delay = 3.0" in hand.type("config", "check", str(good), here=False)
    assert "secret" not in hand.type("config", "check", str(good), "--json", here=False)
    with pytest.raises(UserError, match=r"politeness\.dely: there is no such setting"):
        hand.type("config", "check", str(bad), here=False)


def test_settings_are_explained(hand: Hand) -> None:
    assert "CRAWLER_POLITENESS__DELAY" in hand.type("config", "explain", "politeness.delay", here=False)
    assert len(hand.json("config", "explain", "limits", here=False)) > 3
    assert len(hand.json("config", "explain", here=False)) == len(reference.all_settings())
    with pytest.raises(UserError, match="did you mean"):
        hand.type("config", "explain", "politness", here=False)


@pytest.mark.parametrize("preset", reference.PRESETS)
def test_init_writes_the_settings_of_the_preset_only(hand: Hand, tmp_path: Path, preset: str) -> None:
    file = tmp_path / "crawler.toml"
    hand.type("init", str(file), "--preset", preset, here=False)
    values = reference.PRESETS[preset][1]
    written = tomllib.loads(file.read_text())
    assert {f"{table}.{key}": value for table, keys in written.items() for key, value in keys.items()} == dict(values)
    assert load(file).crawl == CrawlSettings() or values
    # Every line that stands as a comment is a setting that could be uncommented as it is.
    uncommented = "\n".join(
        line[2:] if line.startswith("# ") and " = " in line and line[2:].split(" = ")[0].isidentifier() else line
        for line in file.read_text().splitlines()
    )
    file.write_text(uncommented)
    load(file)


def test_a_settings_file_is_not_overwritten(hand: Hand, tmp_path: Path) -> None:
    file = tmp_path / "crawler.toml"
    file.write_text("mine")
    with pytest.raises(UserError, match="--force"):
        hand.type("init", str(file), here=False)
    assert file.read_text() == "mine"


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("seed", "--delay", "2"), ["`crawler crawl`", "politeness.delay", "CRAWLER_POLITENESS__DELAY"]),
        (("run", "--max-pages=9"), ["`crawler crawl`", "limits.max_pages"]),
        (("status", "--until-empty"), ["`crawler run`"]),
    ],
)
def test_the_error_for_an_option_of_another_command_names_it(
    typed: Typed, words: tuple[str, ...], told: list[str]
) -> None:
    done = typed(*words)
    assert done.code == 2
    assert f"`crawler {words[0]}` takes no {words[1].partition('=')[0]}; " in done.err
    assert [word for word in told if word not in done.err] == []


def test_an_option_that_no_command_takes_is_refused(typed: Typed) -> None:
    done = typed("status", "--crwl", "x")
    assert (done.code, "--crawl" in done.err) == (2, True)


def test_a_url_may_be_given_without_its_scheme(hand: Hand) -> None:
    assert hand.json("why", "a.test/1")["url"] == "https://a.test/1"
    hand.type("seed", "http://plain.test/")
    assert hand.json("why", "plain.test")["url"] == "http://plain.test/"
    assert hand.json("why", "unknown.test")["verdict"].startswith("never queued")
    with pytest.raises(BadUrl):
        hand.type("why", "a b c")


def other_values() -> dict[str, dict[str, Any]]:
    """A value for each setting that is not its default, as {table: {key: value}}."""
    odd = 'q"\\\u007f \u00fc \U0001f578 ' + 100 * "long "
    found: dict[str, dict[str, Any]] = {}
    for one in (one for one in reference.all_settings() if one.table in reference.tables()):
        words = re.findall(r'"(\w+)"', one.kind)
        numbers = [one.default + 1, one.default / 2] if isinstance(one.default, int | float) else [1]
        texts = [*words, "word", "10.0.0.0/8", "redis://queue", "9410"]
        lists: list[list[Any]] = [[81], ["10.0.0.0/8"], ["*.test=10.0.0.1:80"], ["fetch.ports=81"]]
        for value in (not one.default, *numbers, odd, [odd, "b"], *texts, *lists):
            try:
                loaded = load(None, {one.table: {one.key: value}})
            except UserError:
                continue
            if getattr(getattr(loaded, one.table), one.key) != one.default:
                found.setdefault(one.table, {})[one.key] = value
                break
        else:
            raise AssertionError(one)
    return found


def test_the_output_of_config_show_is_a_settings_file(hand: Hand, tmp_path: Path) -> None:
    """Given a crawl in which no setting has its default, then the shown text gives the same settings as a file."""
    duties = [{"every": "6h", "seeds": "new.txt"}, {"every": "1d", "sitemap": "https://a.test/map.xml"}]
    values = {**other_values(), "schedule": duties}
    del values["replica"]
    wanted = load(None, values).crawl  # type: ignore[arg-type]

    async def store_them(store: RedisStore, crawl: Crawl) -> None:
        await save_settings(store, crawl, wanted.to_json())

    hand.with_store(store_them)
    file = tmp_path / "shown.toml"
    file.write_text(hand.type("config", "show"))
    assert load(file).crawl == wanted
    assert hand.json("config", "show") == wanted.model_dump(mode="json")


@pytest.mark.parametrize("schedule", ["", '[[schedule]]\nevery = "6h"\nseeds = "new.txt"\n'])
def test_the_output_of_config_show_and_check_passes_config_check(hand: Hand, tmp_path: Path, schedule: str) -> None:
    file, again = tmp_path / "a.toml", tmp_path / "b.toml"
    file.write_text(f'[scope]\nexclude = ["{100 * "long"}"]\n{schedule}[replica]\nredis = "{hand.url}"\n')
    hand.type("config", "apply", str(file), "--crawl", hand.crawl, here=False)
    for words, here in ((("config", "show"), True), (("config", "check", str(file)), False)):
        again.write_text(hand.type(*words, here=here))
        hand.type("config", "check", str(again), here=False)
        assert load(again).crawl == load(file).crawl


def test_credentials_in_settings_are_not_printed(hand: Hand, tmp_path: Path) -> None:
    file = tmp_path / "secret.toml"
    file.write_text(
        '[archive]\nupload = "s3://key:s3cret@bucket/x?token=s3cret"\n'
        '[[schedule]]\nevery = "6h"\nsitemap = "https://me:s3cret@a.test/map.xml"\n'
        f'[replica]\nredis = "{hand.url}"\n'
    )
    for form in ([], ["--json"]):
        printed = [
            hand.type("config", "apply", str(file), "--crawl", hand.crawl, *form, here=False),
            hand.type("config", "show", *form),
            hand.type("config", "check", str(file), *form, here=False),
        ]
        assert [text for text in printed if "s3cret" in text] == []
        assert all("s3://bucket/x" in text for text in printed[1:])
        hand.type("config", "apply", str(file), "--crawl", hand.crawl, here=False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pause", "--crawl", "a b"], "crawl name"),
        (["block", "http://["], "is no domain"),
        (["config", "check", "/nowhere.toml"], "/nowhere.toml"),
        (["init", "--preset", "fast"], "there is no preset"),
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
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (75, False)


def test_no_command_takes_long_on_a_crawl_with_many_domains(hand: Hand) -> None:
    """Only the CPU time of this process counts, so that the test does not fail on a loaded machine."""
    hand.type("seed", *(f"https://d{number}.test/" for number in range(2_000)))
    for words in (["status"], ["top"], ["domains"], ["shards"], ["pause"], ["block", "x.test"], ["dead", "list"]):
        began = time.process_time()
        hand.json(*words)
        assert time.process_time() - began < 1.0, words
