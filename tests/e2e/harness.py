"""Runs whole processes for tests: a synthetic web with its log, and crawler commands with their output.

Tests wait for events in other processes. So they poll every few hundredths of a second, nearly all of them by
`wait_until`, with a time limit that a loaded machine does not reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from click.testing import CliRunner

from crawler.cli.main import app
from tests.copies import Copy
from tests.simweb.features import Features
from tests.simweb.judge import Expected, JudgeLimits, JudgeReport, Policy, expect, judge
from tests.simweb.server import Record, read_log
from tests.simweb.world import World
from tests.valkey import ValkeyProcess

PATIENCE_S = 180.0
"""Time limit in seconds for any wait. Far longer than needed, so that a busy machine does not fail a test."""

TRIES = 3
DELAY_S = 0.05

LEASE_S = 10.0
"""Longer than a busy machine stalls a replica. Tests that wait for leases of dead replicas set a shorter one."""

EVEN = replace(Features.plain(), zipf=0.0)
"""Plain domains of equal size: the crawl does not end with one domain's long queue."""

ROOT = Path(__file__).parents[2]
CRAWLER = [sys.executable, "-m", "crawler"]

Tables = dict[str, dict[str, Any]]


def wait_until(happened: Callable[[], Any], what: str, limit_s: float = PATIENCE_S, step_s: float = 0.02) -> Any:
    """Call `happened` every `step_s` seconds until it returns a true value, and return that. Raises AssertionError, which
    names `what`, after `limit_s` seconds. A question that takes long, such as `crawler status`, is asked less often, so
    that it leaves the CPU to those that are waited for."""
    asked_at = time.monotonic()
    deadline = asked_at + limit_s
    while not (result := happened()):
        took_s = time.monotonic() - asked_at
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s without success for: {what}"
        time.sleep(max(step_s, min(4 * took_s, 1.0)))
        asked_at = time.monotonic()
    return result


def process_state(pid: int) -> str:
    """The letter that `ps` shows: R runs, S sleeps, T is stopped, Z has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


Site = TypeVar("Site", bound=ThreadingHTTPServer)


@contextlib.contextmanager
def answering(site: Site) -> Iterator[Site]:
    """`site` answers, in threads of its own, while the block runs."""
    with site:
        Thread(target=site.serve_forever, args=(0.05,), daemon=True).start()
        yield site
        site.shutdown()


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a command."""

    code: int
    out: str
    err: str


class Running:
    """A process that was started, and its output so far. One of the crawler is a copy (`tests.copies`), unless it has to be
    `fresh`: an interpreter whose start or command line matters."""

    def __init__(
        self, words: list[str], folder: Path, name: str, environment: Mapping[str, str], fresh: bool = False
    ) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment}
        self._process: subprocess.Popen[bytes] | Copy
        with Path(os.devnull).open("rb") as nothing, self._out.open("wb") as out, self._err.open("wb") as err:
            is_same = environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH")  # what is imported at the start
            if words[:3] == CRAWLER and is_same and not fresh:
                streams = nothing.fileno(), out.fileno(), err.fileno()
                self._process = Copy(["crawler.__main__", *words[3:]], folder, environment, streams)
            else:
                self._process = subprocess.Popen(
                    words, cwd=folder, stdin=nothing, stdout=out, stderr=err, env=environment, start_new_session=True
                )

    def __del__(self) -> None:
        """A failed test leaves no process behind, which would let another one fail."""
        if hasattr(self, "_process") and self.is_running:
            self._end()

    def _end(self) -> None:
        """End the process and, unless it hangs, its embedded server."""
        for _ in range(2):  # the second signal does not wait for requests
            self.send(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
                return
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    @property
    def children(self) -> list[int]:
        """The process ids of its children: of a supervisor, its replicas."""
        with contextlib.suppress(FileNotFoundError):
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        return []

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL, like a crash."""
        self._process.kill()
        self._process.wait()

    def wait(self, limit_s: float = PATIENCE_S) -> Finished:
        """Wait for the end of the process. After `limit_s` seconds, kills it and raises AssertionError, with its output."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._end()
            raise AssertionError(f"still running after {limit_s:.0f} s:\n{self.out}\n{self.err}") from None
        return Finished(code, self.out, self.err)


class Web:
    """The synthetic web in its own process. `features`: the `mixed` preset unless given."""

    def __init__(
        self, folder: Path, seed: int = 1, domains: int = 16, pages: int = 160, features: Features | None = None
    ):
        made_of = (seed, domains, pages, features or Features.mixed())
        self.world = World(*made_of)
        self.log = folder / "requests.jsonl"
        orders_in, orders_out = os.pipe()
        answer_in, answer_out = os.pipe()
        self._process = Copy(["tests.e2e.serve_world", str(self.log)], ROOT, os.environ, (orders_in, answer_out, 2))
        os.close(orders_in)
        os.close(answer_out)
        self._orders = open(orders_out, "wb")  # noqa: PTH123, SIM115 - a descriptor, closed by `stop`
        pickle.dump(made_of, self._orders)
        self._orders.flush()
        with open(answer_in) as file:  # noqa: PTH123
            self.host_map: list[str] = json.loads(file.readline())

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the process. Its log is then complete."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)
            self._process.wait(PATIENCE_S)
        self._orders.close()

    @cached_property
    def expected(self) -> Expected:
        """What a perfect crawl from all roots fetches."""
        return expect(self.world, self.world.seeds(), Policy(tries=TRIES))

    @property
    def requests(self) -> int:
        """The number of requests in the log, which lacks those of the last half second."""
        return self.log.read_bytes().count(b"\n")

    def wait_for(self, requests: int) -> None:
        """Wait until the log contains this many requests."""
        wait_until(lambda: self.requests >= requests, f"{requests} requests")

    def stop_at(self, requests: int) -> None:
        """Let the web stand still, for `stopped`, once the log contains this many requests."""
        self._orders.write(b"%d\n" % requests)
        self._orders.flush()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Wait until `stop_at` has taken effect. The block runs in the middle of the crawl, however fast the crawl is, and
        however late this process gets its turn."""
        wait_until(lambda: process_state(self._process.pid) == "T", "the web to stand still")
        yield
        self._process.send_signal(signal.SIGCONT)

    def records(self) -> list[Record]:
        """All requests, in the order in which they ended. Stops the web first, so that the log is complete."""
        self.stop()
        return self._records

    @cached_property
    def _records(self) -> list[Record]:
        return list(read_log(self.log))

    def repeats(self) -> list[Record]:
        """All requests for each page except the last. A crawl without retries has none."""
        last = {record.url: record for record in self.records()}
        return [r for r in self.records() if r is not last[r.url] and r.url not in self.expected.auxiliary]

    def verdict(self, policy: Policy | None = None, repeats: int = 0, delay_s: float = DELAY_S) -> JudgeReport:
        """The judge's report on the whole crawl."""
        expected = expect(self.world, self.world.seeds(), policy) if policy else self.expected
        return judge(self.records(), expected, JudgeLimits(delay=delay_s, repeats=repeats))


@dataclass
class Bench:
    """A folder with settings in which crawler commands run. `redis`: URL of the store, "" for the embedded one."""

    folder: Path
    web: Web
    redis: str = ""
    tables: Tables = field(default_factory=dict)
    _started: list[Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out = self.folder / "out"
        self.settings = self.folder / "crawler.toml"
        self.seeds = self.folder / "seeds.txt"
        self.seeds.write_text("".join(f"{url}\n" for url in self.web.world.seeds()))
        self.configure({})

    def configure(self, changes: Tables) -> None:
        """Write the settings file: values for a short test, the bench's own tables, and `changes`."""
        redis = {"replica": {"redis": self.redis}} if self.redis else {}
        settings = short_settings(self.folder, self.web.host_map, redis, self.tables, changes)
        settings["replica"]["out"] = str(self.out)
        self.settings.write_text(toml(settings))

    def start(self, *words: str, environment: Mapping[str, str] | None = None, fresh: bool = False) -> Running:
        """Start `crawler words...` with the settings file. `fresh`: see `Running`."""
        command = [*CRAWLER, words[0], "--settings", str(self.settings), *words[1:]]
        running = Running(command, self.folder, f"{words[0]}-{len(self._started)}", environment or {}, fresh)
        self._started.append(running)
        return running

    def run(self, *words: str, environment: Mapping[str, str] | None = None) -> Finished:
        """Run `crawler words...` to its end."""
        return self.start(*words, environment=environment).wait()

    def crawl(self, *words: str) -> Running:
        """Start `crawler crawl` from all roots of the web."""
        return self.start("crawl", "-f", str(self.seeds), "--quiet", *words)

    def type(self, *words: str, code: int = 0) -> str:
        """Run `crawler words...` in this process, and return its output. This is much faster, and used for commands
        that are not themselves under test."""
        words = (words[0], "--settings", str(self.settings), *words[1:])
        done = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "200", "NO_COLOR": "1"})
        assert done.exit_code == code, done.output
        return done.stdout

    def apply(self, changes: Tables) -> str:
        """Write the settings file with `changes`, and let it replace the crawl's settings. Returns the output."""
        self.configure(changes)
        words = ["config", "apply", str(self.settings), "--replace"]
        done = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "200", "NO_COLOR": "1"})
        assert done.exit_code == 0, done.output
        return done.stdout

    def seed(self) -> None:
        """Queue all roots of the web."""
        self.type("seed", "-f", str(self.seeds))

    def status(self) -> dict[str, Any]:
        """The result of `crawler status --json`."""
        found: dict[str, Any] = json.loads(self.type("status", "--json"))
        return found

    def gather(self, count: int) -> list[Running]:
        """Seed the crawl and start `count` replicas, which begin to crawl at the same time: see `begin`."""
        self.seed()
        self.type("pause")
        replicas = [self.start("run", "--until-empty") for _ in range(count)]
        self.begin(count)
        return replicas

    def supervise(self, count: int) -> Running:
        """The same with replicas under one supervisor, which is returned."""
        self.seed()
        self.type("pause")
        supervisor = self.start("run", "--until-empty", "--replicas", str(count))
        self.begin(count)
        return supervisor

    def begin(self, count: int) -> None:
        """Resume the paused crawl once the view of `count` replicas includes all of them, so that each takes part in the
        crawl, however late it started."""
        whole: list[int] = []  # epochs in whose view there is an index `count`

        def all_know() -> bool:
            records = self.status()["replicas"]
            whole.extend(record["epoch"] for record in records if record["index"] == count)
            return len(records) == count and bool(whole) and all(r["epoch"] >= whole[0] for r in records)

        wait_until(all_know, f"a view of {count} replicas", step_s=0.1)
        self.type("resume")

    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines of all finished and unfinished volumes."""
        files = sorted([*self.out.glob("*.jsonl"), *self.out.glob("*.jsonl.open")])
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def close(self) -> None:
        """Kill all running processes with their children, and stop a leftover embedded server."""
        for running in self._started:
            for pid in running.children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if running.is_running:
                running.kill()
        if (self.folder / "data" / "valkey.sock").exists():
            words = ["status", "--settings", str(self.settings)]
            CliRunner().invoke(app, words)  # joins, and stops the server as the last to leave


@contextlib.contextmanager
def bench(
    folder: Path, web: Web, redis: str = "", tables: Tables | None = None, has_server: bool = False
) -> Iterator[Bench]:
    """A `Bench` whose processes are stopped at the end of the block. `has_server`: on a Valkey server of its own."""
    with contextlib.ExitStack() as stack:
        if has_server:
            (folder / "valkey").mkdir()
            redis = stack.enter_context(ValkeyProcess(folder / "valkey", persistent=False)).url
        made = Bench(folder, web, redis, tables or {})
        stack.callback(made.close)
        yield made


@contextlib.contextmanager
def crawling(folder: Path, url: str, settings: str) -> Iterator[list[str]]:
    """A crawl of `url` with the embedded store, one process and these `settings` runs until the end of the block, and then
    stops cleanly. Yields the options that name it."""
    (folder / "crawler.toml").write_text(settings)
    options = ["--settings", str(folder / "crawler.toml")]
    seeded = Running([*CRAWLER, "seed", *options, url], folder, "seed", {}).wait()
    assert seeded.code == 0, seeded.err
    replica = Running([*CRAWLER, "run", *options], folder, "run", {})
    try:
        yield options
    finally:
        replica.send(signal.SIGTERM)
        done = replica.wait()
    assert done.code == 0, done.err


def quick(folder: Path, host_map: list[str], **more: object) -> str:
    """Settings for `crawling`: a short delay and output below `folder`, and `more` tables."""
    replica = {"data_dir": str(folder / "data"), "out": str(folder / "out"), "interval": 0.5}
    politeness = {"delay": 0.02, "response_share": 0}
    return toml({"politeness": politeness, "fetch": {"host_map": host_map}, "replica": replica, **more})


def short_settings(folder: Path, host_map: list[str], *changes: Tables) -> Tables:
    """What suits a short test, with `changes`."""
    tables: Tables = {
        "politeness": {"delay": DELAY_S, "backoff_base": 0.2, "response_share": 0, "tries": TRIES},
        "scope": {"kind": "any", "guess_sitemaps": False},
        "fetch": {"host_map": host_map, "read_timeout": 10.0, "timeout": 20.0},
        "frontier": {"lease": LEASE_S, "shards": 64},
        "replica": {"data_dir": str(folder / "data"), "out": str(folder / "out"), "interval": 0.5, "grace": 5.0},
    }
    for change in changes:
        for table, keys in change.items():
            tables[table] = {**tables.get(table, {}), **keys}
    return tables


def toml(tables: Tables) -> str:
    """`tables` as TOML, whose numbers, strings, booleans and arrays of them are those of JSON."""
    lines: list[str] = []
    for table, keys in tables.items():
        lines.append(f"[{table}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in keys.items())
    return "\n".join(lines) + "\n"


def repeated(items: Iterable[str]) -> list[str]:
    """The `items` that occur more than once."""
    seen: set[str] = set()
    return sorted({item for item in items if item in seen or seen.add(item)})  # type: ignore[func-returns-value]
