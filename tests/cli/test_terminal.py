"""Text from strangers reaches neither the terminal nor the log raw."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.screen import Screen
from rich.text import Text

from crawler import logs
from crawler.audit.check import Breach, Report
from crawler.cli.audit import _render
from crawler.cli.main import app
from crawler.cli.text import Terminal
from crawler.errors import UserError, reason_of
from crawler.observe.health import Failure, Fetched, HealthRecord
from crawler.sinks.archive import Archive
from crawler.sinks.files import translated
from frontier.clock import ServerClock, SystemClock
from frontier.crawls import Crawl
from frontier.peers import Health
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import SettledUrl, Settlement
from frontier.store import RedisStore
from politeness.robots_cache import RobotsCache
from politeness.robots_fetch import RobotsRecord
from politeness.robots_match import finish
from politeness.robots_syntax import extract
from tests.cli.conftest import Hand
from tests.sinks import readers
from tests.sinks.values import exchange, page, settings
from tests.typed import Typed

ESCAPES = "\x1b]0;owned\x1b[31m\x9b1m\x7f\x85\u202e\u2028\u2066\u200f"
EVIL = f"[red]{ESCAPES}"


def is_clean(text: str) -> bool:
    return not set(ESCAPES) & set(text) - set("]0;owned[31m")


async def plant(store: RedisStore, crawl: Crawl) -> None:
    """Put hostile text wherever a site or another replica can put any."""
    clock = ServerClock(SystemClock(), store.time_ms)
    await clock.refresh()
    now_ms = clock.now_ms()
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    leased, _ = await frontier.lease(range(len(crawl.keys.shards)), 1, EVIL, 9)
    for lease in (lease for answer in leased for lease in answer.leases if lease.domain == "b.test"):
        urls = [SettledUrl(one, "dead", EVIL) for one in lease.entries]
        await frontier.settle([Settlement(lease, now_ms, 1000, f"2 {now_ms + 99_000} 0 {EVIL}", urls)])
    body = f"User-agent: *\nDisallow: /{EVIL}\nDisallow: /1{ESCAPES[:5]}\nDisallow: /*\n".encode()
    excerpt = finish(extract(body, "peercrawl")).pack()
    record = RobotsRecord("rules", "ok", 200, now_ms, now_ms + 99_000, excerpt)
    await RobotsCache(store, frontier, "peercrawl").save("https://a.test", "a.test", record, now_ms)
    failures = [Failure(now_ms, f"https://a.test/{EVIL}", "retry", EVIL)]
    pages = [Fetched(now_ms, f"https://a.test/{EVIL}", 200)]
    health = HealthRecord(EVIL, EVIL, 9, 1, 2, 1, 10, 99, 2.5, 50.0, False, 1, 3, failures, pages, 0, (EVIL,), EVIL)
    await Health(store, crawl.keys.peers, ttl_s=60).report(EVIL, msgspec.json.encode(health))


@pytest.fixture
def hostile(hand: Hand) -> Hand:
    hand.with_store(plant)
    return hand


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["top", "--once"],
        ["domains"],
        ["shards"],
        ["dead", "list"],
        ["why", "https://a.test/1"],
        ["why", f"https://b.test/{EVIL}"],
    ],
    ids=lambda words: words[0],
)
def test_no_command_prints_control_characters(hostile: Hand, tmp_path: Path, words: list[str], form: list[str]) -> None:
    if words[0] == "why":
        line = {"url": words[1], "outcome": "done", "reason": EVIL, "settled_at": EVIL}
        (tmp_path / "x.pages.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
        words = [*words, "--out", str(tmp_path)]
    assert is_clean(hostile.type(*words, *form))
    if form:
        hostile.json(*words)


def test_escaped_characters_stay_visible(hostile: Hand) -> None:
    assert r"[red]\u001b]0;owned" in hostile.type("dead", "list")
    assert hostile.json("dead", "list")[0]["reason"] == EVIL


@pytest.fixture
async def archive(tmp_path: Path) -> Path:
    """Return an archive with a page whose title is hostile."""
    made = Archive(settings(tmp_path / "crawl"))
    await made.start()
    body = f"<!doctype html><meta charset=utf-8><title>{EVIL}</title>".encode()
    await made.write([page(exchange("x", body), content_type="text/html", charset="utf-8", title=EVIL, links=())])
    await made.stop()
    return tmp_path / "crawl"


def test_extract_prints_no_control_characters(archive: Path) -> None:
    (file,) = readers.warc_files(archive)
    ended = CliRunner().invoke(app, ["extract", str(file)])
    assert is_clean(ended.stdout)
    assert "\u202e" in json.loads(ended.stdout)["title"]


def test_extract_prints_the_pages_of_several_files(archive: Path) -> None:
    (file,) = readers.warc_files(archive)
    one, both = (CliRunner().invoke(app, ["extract", *[str(file)] * count]).stdout for count in (1, 2))
    assert one
    assert both == 2 * one


def test_a_file_that_a_message_names_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "none"
    with pytest.raises(OSError, match="none") as told:
        file.read_bytes()
    assert reason_of(told.value, file) == "No such file or directory"
    assert reason_of(told.value, tmp_path) == f"No such file or directory: {file}"
    assert reason_of(ValueError("broken"), file) == "broken"
    with (
        pytest.raises(UserError, match=r"^cannot write in .*: No such file or directory: ") as told,
        translated(tmp_path),
    ):
        file.read_bytes()


def audited(*told: object, **facts: object) -> str:
    """What `crawler audit` prints of a report with these `facts`. `told`: what else it knows."""
    report = msgspec.structs.replace(Report(1, 9, 1, 1, 0, 0, {"a.test": 1.0}, {"delay": 0}, []), **facts)
    terminal = Terminal()
    with terminal.capture() as captured:
        terminal.print(_render(report, "1 s", *told))  # type: ignore[arg-type]
    return captured.get()


def test_an_audit_prints_no_control_characters() -> None:
    breach = Breach("delay", f"https://a.test/{EVIL}", 0.0, EVIL)
    shown = audited(closest={EVIL: 1.0}, counts={"delay": 1}, breaches=[breach])
    assert is_clean(shown)
    assert r"\u001b" in shown


@pytest.mark.parametrize("is_own", [True, False])
def test_an_audit_says_what_its_delay_does_not_know(is_own: bool) -> None:
    told = " ".join(audited(is_own).split())
    assert ("`crawler config show > FILE`, then --settings FILE" in told) is not is_own
    assert "Delays of `crawler delay`" in told


def test_the_full_screen_of_top_keeps_its_line_ends() -> None:
    terminal = Terminal()
    with terminal.capture() as captured:
        terminal.print(Screen(Text("one\rtwo"), application_mode=True))
    assert r"\u" not in captured.get()
    assert "\n\r" in captured.get()


def test_an_error_prints_no_control_characters(typed: Typed) -> None:
    done = typed("config", "check", f"/{EVIL}.toml")
    assert done.code == 2
    assert is_clean(done.err)
    assert r"\u001b" in done.err


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_log_line_has_no_control_characters(form: str) -> None:
    written = io.StringIO()
    logs.configure(form, "info", written)  # type: ignore[arg-type]
    try:
        logs.log(logging.ERROR, "defect", url=f"https://a.test/{EVIL}\nforged", error=ValueError(EVIL))
    finally:
        logs.logger.handlers.clear()
    (line,) = written.getvalue().splitlines()
    assert is_clean(line)
    if form == "json":
        assert json.loads(line)["error"] == EVIL


def test_removing_credentials_keeps_the_json_valid() -> None:
    written = io.StringIO()
    logs.configure("json", "info", written)
    try:
        logs.log(logging.ERROR, "x", a="http://h", b='see me@b.test, or redis://u:p"w@host')
    finally:
        logs.logger.handlers.clear()
    found = json.loads(written.getvalue())
    assert (found["a"], found["b"]) == ("http://h", "see me@b.test, or redis://***@host")
