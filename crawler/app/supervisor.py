"""Runs several replicas on one machine: starts them, replaces those that crash, and stops them cleanly.

Each replica is a process, so a crash does not affect the others. A replacement joins the cluster as a new replica and
gets its share of the shards. Each listens at a port of its own, counted up from the one in the settings. The progress
of the whole crawl is logged here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from msgspec import json
from msgspec.structs import replace

from crawler.errors import TRY_LATER, UPLOADS_LEFT, UserError
from crawler.logs import log
from crawler.observe.status import NOTHING_LEFT, Status, failing, obstacles, status, waiting
from crawler.processes import python_command
from crawler.settings.guarded import accepted
from crawler.settings.load import Settings
from crawler.settings.tables import HIGHEST_PORT, ReplicaTable
from crawler.wording import count_of, with_place
from frontier.crawls import open_crawl
from frontier.errors import FrontierError
from frontier.store import RedisStore


def port_of(address: str) -> int:
    """Return the port in `address`, 0 if it has none."""
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else 0


def count_up(address: str, count: int) -> list[str]:
    """Return `address` for each of `count` replicas, with its port counted up unless it is 0. Raises UserError."""
    head, colon, _ = address.rpartition(":")
    first = port_of(address)
    if not first or (":" in head and not head.endswith("]")):  # or an IPv6 address alone
        return [address] * count
    last = first + count - 1
    if last > HIGHEST_PORT:
        raise UserError(
            f"address {address!r}: the last of {count_of(count, 'replica')} needs port {last}, above {HIGHEST_PORT}"
        )
    return [f"{head}{colon}{first + number}" for number in range(count)]


def check_free(addresses: Sequence[str]) -> None:
    """Raise UserError unless one process can listen at each of `addresses`, "HOST:PORT" or "PORT" on loopback."""
    with contextlib.ExitStack() as stack:
        for address in addresses:
            host, colon, port = address.rpartition(":")
            host = host.strip("[]") if colon else "127.0.0.1"
            if int(port) > HIGHEST_PORT:
                raise UserError(f"cannot listen at {address}: the last port is {HIGHEST_PORT}; choose another --listen")
            try:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                stack.enter_context(socket.create_server((host, int(port)), family=family))
            except OSError as error:  # its own text repeats the address
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
                raise UserError(f"cannot listen at {address}: {reason}; choose another --listen") from error


EMBEDDED_INTERVAL_S = 0.5
"""The peer interval on one machine, in seconds. Claims cost little there, and the user waits for the first view."""

TERMINAL_PROGRESS_S = 5.0
"""Seconds between two lines of progress in a terminal unless `replica.progress` is set. Logs that are kept need
fewer."""

LOOK_S = 1.0
"""Seconds between two looks for failures that keep the whole crawl waiting. A new one is logged at once."""


@contextlib.asynccontextmanager
async def progress_logged(store: RedisStore, crawl: str, every_s: float) -> AsyncIterator[None]:
    """Log the progress of `crawl` every `every_s` seconds, 0 for never, and at once what keeps all of it waiting."""
    task = asyncio.create_task(_repeat(store, crawl, every_s)) if every_s else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


async def _repeat(store: RedisStore, crawl: str, every_s: float) -> None:
    told: set[tuple[str, str]] = set()
    due_s = every_s
    while True:
        step_s = min(LOOK_S, due_s)
        await asyncio.sleep(step_s)
        due_s -= step_s
        with contextlib.suppress(FrontierError):  # the replicas log that Redis is away
            found = await status(store, await open_crawl(store, crawl, for_reshard=True), exact=False)
            failed = {(line.domain, line.robots or line.reason): line for line in found.hindered}
            if due_s <= 0 or failed.keys() - told:
                _tell(found)
                due_s = every_s
            told |= failed.keys()


def _tell(found: Status) -> None:
    reasons = [*obstacles(found.replicas), *failing(found), *waiting(found.replicas)]
    if NOTHING_LEFT in found.condition.obstacles:
        reasons = [NOTHING_LEFT]
    if found.condition.word == "resharding":
        reasons = found.condition.obstacles[:1]  # without what to do if its command was killed
    waits = {"waits_for": "; ".join(with_place(reasons, f"--crawl {found.crawl}"))} if reasons else {}
    log(
        logging.INFO,
        "progress",
        crawl=found.crawl,
        pages=found.done,
        pages_per_s=round(sum(record.pages_per_s for record in found.replicas), 1),
        known=found.accepted,
        left=found.open,
        denied=found.denied_named,
        dead=found.dead,
        replicas=len(found.replicas),
        **waits,
    )


def progress_s(settings: Settings) -> float:
    """Return the seconds between two lines of progress, 0 for none: they are for somebody at a terminal."""
    if not sys.stderr.isatty():
        return 0.0
    return settings.replica.progress if settings.names("replica.progress") else TERMINAL_PROGRESS_S


def local_settings(settings: Settings) -> ReplicaTable:
    """Return the settings of a replica, with all that it accepts from Redis. With the embedded store, where all
    replicas are on one machine, the interval is shorter unless the user has set it. In a terminal, lines about the
    whole crawl (`progress_s`) replace those of replicas."""
    local = replace(settings.replica, accept=tuple(accepted(settings)))
    if sys.stderr.isatty():
        local = replace(local, progress=0.0)
    if local.redis or settings.names("replica.interval"):
        return local
    return replace(local, interval=EMBEDDED_INTERVAL_S)


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Seconds before a crashed replica is replaced, doubled for each further crash in a row."""

HEALTHY_S, GIVEN_UP_AFTER = 10.0, 4
"""A replica that ran for `HEALTHY_S` seconds was healthy. After `GIVEN_UP_AFTER` crashes in a row that came sooner, the
setup is considered broken and all replicas are stopped."""

NOT_STARTED = 1
"""Stands for the exit code of a replica for which no process could be started."""


class Crashes:
    """The crashes of one replica, and how to answer them."""

    def __init__(self) -> None:
        self._pause_s = FIRST_PAUSE_S
        self._sooner = 0

    def pause_s(self, ran_s: float, code: int) -> float | None:
        """Return how many seconds to wait before a replacement is started for a replica that ended with `code` after it
        ran for `ran_s` seconds; None if the setup is considered broken. A replica that asks to be started later,
        because Redis is away, has not crashed."""
        if ran_s > HEALTHY_S:
            self._pause_s, self._sooner = FIRST_PAUSE_S, 0
        elif code != TRY_LATER:
            self._sooner += 1
        if self._sooner == GIVEN_UP_AFTER:
            return None
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, LONGEST_PAUSE_S)
        return pause_s


class Supervisor:
    """Runs a replica process with the command line `command` for each of `environments`, which takes the place of the
    settings of replicas in the environment of this process. Each begins when it reads a line. `addresses`: where the
    replicas listen, as far as that was chosen; a replica finds a free port otherwise. `log`: the file descriptor that
    the replicas use as standard error; None for that of this process."""

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        addresses: Sequence[str] = (),
        log: int | None = None,
    ) -> None:
        self.addresses = addresses
        self._command = tuple(command)
        own = {name: text for name, text in os.environ.items() if not name.upper().startswith("CRAWLER_REPLICA__")}
        self._environments = [{**own, **environment} for environment in environments]
        self._log = log
        self._prepared: list[asyncio.subprocess.Process | None] = []
        self._processes: set[asyncio.subprocess.Process] = set()
        self._asked_to_stop = asyncio.Event()

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        """Start the processes, which import what they need and wait for `run`. Those that still wait at the end are
        killed."""
        self._prepared = [await self._start(environment) for environment in self._environments]
        try:
            yield
        finally:
            for process in filter(None, self._prepared):
                process.kill()
                await process.wait()

    async def run(self) -> int:
        """Run until every replica has ended or was stopped. Returns the highest of their final exit codes."""
        async with asyncio.TaskGroup() as group:
            prepared, self._prepared = iter(self._prepared), []
            keepers = [
                group.create_task(self._keep_one(environment, next(prepared, None)))
                for environment in self._environments
            ]
        return max(keeper.result() for keeper in keepers)

    async def _keep_one(self, environment: Mapping[str, str], process: asyncio.subprocess.Process | None) -> int:
        """Run one replica, in `process` if it is prepared, and a replacement after each crash. Usage errors (exit code
        2) and repeated crashes right after the start are not retried, because a new replica would fail in the same way.
        Neither are uploads that have failed (UPLOADS_LEFT)."""
        crashes = Crashes()
        while True:
            started = time.monotonic()
            process = process or await self._start(environment)
            code = NOT_STARTED if process is None else await self._run_one(process)
            process = None
            if code in (0, 2, UPLOADS_LEFT) or self._stopping:
                return max(code, 0)
            pause_s = crashes.pause_s(time.monotonic() - started, code)
            if code < 0:  # a replica that fails says why itself
                end = "the setup is considered broken, and all replicas are stopped"
                result = end if pause_s is None else "another one is started"
                log(logging.WARNING, "replica_killed", signal=signal.Signals(-code).name, result=result)
            if pause_s is None:
                self.stop()
                return 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked_to_stop.wait(), pause_s)
            if self._stopping:
                return 0

    @property
    def _stopping(self) -> bool:
        return self._asked_to_stop.is_set()

    async def _run_one(self, process: asyncio.subprocess.Process) -> int:
        """Let the replica in `process` begin, and return its exit code; negative if a signal ended it."""
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended; its exit code says why
            process.stdin.write(b"\n")
            await process.stdin.drain()
        self._processes.add(process)
        if self._stopping:
            process.send_signal(signal.SIGTERM)
        code = await process.wait()
        self._processes.discard(process)
        return code

    async def _start(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process | None:
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stderr=self._log,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches only the supervisor, so each replica gets one signal per Ctrl-C
            )
        except OSError as error:
            log(logging.WARNING, "replica_not_started", error=error)
            return None

    def stop(self) -> None:
        """Ask all replicas to stop cleanly. A second call makes them stop without waiting for requests in flight."""
        self._asked_to_stop.set()
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)


def supervise(
    crawl: str, settings: Settings, replicas: int, until_empty: bool, log: tuple[str, int] | None = None
) -> Supervisor:
    """Return a supervisor for replicas of `crawl`. The replicas use the crawl's settings without comparing them, since
    the caller has done that. Settings are passed in the environment, which `ps` does not show: the Redis URL may have a
    password. `log`: level and file descriptor of the replicas' logs, instead of `replica.log_level` and standard error;
    the caller then logs the progress, and they do not.

    Each replica listens at a port of its own: they count up from those in `replica.listen` and `replica.advertise`.
    Raises UserError if one of these addresses cannot be used.
    """
    addresses = count_up(settings.replica.listen, replicas)
    check_free(addresses)
    words = ["run", "--when-told", crawl, *(["--until-empty"] if until_empty else [])]  # see `crawler.cli.run`
    local = local_settings(settings)
    if log:
        local = replace(local, log_level=log[0], progress=0.0)
    # The rules for requests name variables with secrets, which the replicas inherit.
    tables: dict[str, Any] = {"IDENTITY": settings.identity, "REQUESTS": settings.requests}
    environments = []
    name = local.name or socket.gethostname()
    for number, (listen, advertise) in enumerate(zip(addresses, count_up(local.advertise, replicas), strict=True), 1):
        own = f"{name}-{number}" if replicas > 1 else name
        tables["REPLICA"] = replace(local, name=own, listen=listen, advertise=advertise)
        environments.append(
            {f"CRAWLER_{name}": json.encode(table, enc_hook=str).decode() for name, table in tables.items()}
        )
    chosen = [address if ":" in address else f"127.0.0.1:{address}" for address in addresses if port_of(address)]
    return Supervisor(python_command("crawler", *words), environments, chosen, log[1] if log else None)
