"""Several replicas on one machine: start them, replace those that crash, stop them in good order.

Replicas are processes of their own, so one that crashes or is killed takes nothing with it; a replacement is a new
replica to the cluster and takes its share like any other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from crawler.errors import TRY_LATER
from crawler.settings.model import Settings
from frontier.clock import Clock, SystemClock

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Before a crashed replica is replaced, doubling while replacements crash as well."""

HEALTHY_S, GIVEN_UP_AFTER = 10.0, 4
"""A replica that lived this many seconds was healthy; so many that did not, one after the other, are a broken setup."""


class Supervisor:
    """Runs `count` replica processes, each with the command line `command` and `environment` added to ours."""

    def __init__(
        self, command: Sequence[str], count: int, clock: Clock, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._command = tuple(command)
        self._environment = {**os.environ, **environment}
        self._count = count
        self._clock = clock
        self._processes: set[asyncio.subprocess.Process] = set()
        self._asked_to_stop = asyncio.Event()

    async def run(self) -> int:
        """Until every replica has ended by itself or was stopped. Returns the worst exit code among the last ones."""
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._keep_one()) for _ in range(self._count)]
        return max(keeper.result() for keeper in keepers)

    async def _keep_one(self) -> int:
        """Run one replica, and its replacements while they crash. A usage error (exit code 2) is not retried, and
        neither is a crash that repeats itself at once: something is broken that a new replica will not mend."""
        pause_s, at_once = FIRST_PAUSE_S, 0
        while True:
            started = self._clock.monotonic()
            code = await self._run_one()
            if code in (0, 2) or self._stopping:
                return max(code, 0)
            if self._clock.monotonic() - started > HEALTHY_S:
                pause_s, at_once = FIRST_PAUSE_S, 0
            at_once += code != TRY_LATER
            if at_once == GIVEN_UP_AFTER:
                self.stop()
                return 1
            await self._sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            if self._stopping:
                return 0

    @property
    def _stopping(self) -> bool:
        return self._asked_to_stop.is_set()

    async def _sleep(self, seconds: float) -> None:
        """Sleep, unless we are asked to stop."""
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._asked_to_stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _run_one(self) -> int:
        """The exit code of one replica; negative if a signal ended it."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,  # Ctrl-C goes to us alone, so that "again" means hurry and not twice at once
        )
        self._processes.add(process)
        if self._stopping:
            process.send_signal(signal.SIGTERM)
        code = await process.wait()
        self._processes.discard(process)
        return code

    def stop(self) -> None:
        """Ask all replicas to stop in good order; called again, to hurry."""
        self._asked_to_stop.set()
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)


def replica_command(*words: str) -> list[str]:
    """The command line of `crawler run` with `words`, in this very Python."""
    return [sys.executable, "-m", "crawler", "run", *words]


def supervise(
    crawl: str, settings: Settings, replicas: int, until_empty: bool, log_level: str | None = None
) -> Supervisor:
    """A supervisor of replicas of `crawl`, which take its settings as they are: whoever starts the supervisor has compared
    them. The Redis URL, which may hold a password, travels by the environment, where `ps` does not show it."""
    local = settings.replica
    words = ["--keep-settings", "--crawl", crawl, "--data-dir", str(local.data_dir), "--out", str(local.out)]
    words += ["--concurrency", str(local.concurrency), "--capacity", str(local.capacity), "--grace", str(local.grace)]
    if "interval" in local.model_fields_set:
        words += ["--interval", str(local.interval)]
    if until_empty:
        words.append("--until-empty")
    environment = {
        "CRAWLER_REPLICA__LOG": local.log,
        "CRAWLER_REPLICA__LOG_LEVEL": log_level or local.log_level,
    }
    if local.redis:
        environment["CRAWLER_REPLICA__REDIS"] = local.redis
    return Supervisor(replica_command(*words), replicas, SystemClock(), environment)
