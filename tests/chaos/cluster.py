"""The processes of a run: Valkey, and replicas that each reach it through a link of their own."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from crawler.errors import TRY_LATER
from tests.chaos.diary import Diary, Kind
from tests.chaos.proxy import Link
from tests.valkey import ValkeyProcess

ROOT = Path(__file__).parents[2]


@dataclass(eq=False, slots=True)
class Member:
    """A replica's process and its link. `expected`: the exit code that it should end with. `leaving`: made to end.
    `busy`: a fault has hold of it."""

    name: str
    process: asyncio.subprocess.Process
    link: Link
    expected: int = 0
    leaving: bool = False
    busy: bool = False


@dataclass(slots=True)
class Cluster:
    """What may be done to the processes, each deed noted in `diary`."""

    folder: Path
    settings: Path
    valkey: ValkeyProcess
    diary: Diary
    rng: random.Random
    members: list[Member] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)  # ended otherwise than they were made to
    started: int = 0
    changed_at: float = 0.0
    _restarting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _watches: list[asyncio.Task[None]] = field(default_factory=list)

    async def add(self) -> Member:
        """One more replica."""
        self.started += 1
        name = f"r{self.started}"
        link = Link(self.valkey.socket)
        await link.start()
        with self._log(name).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.chaos.replica", name),
                *(str(self.settings), f"redis://127.0.0.1:{link.port}/0"),
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        member = Member(name, process, link)
        self.members.append(member)
        self._watches.append(asyncio.create_task(self._watch(member)))
        self._note(Kind.JOIN, name)
        return member

    def pick(self) -> Member | None:
        """A replica that nothing has hold of, by chance."""
        free = [m for m in self.members if m.process.returncode is None and not m.leaving and not m.busy]
        return self.rng.choice(free) if free else None

    async def kill(self, member: Member) -> None:
        """kill -9."""
        member.leaving = True
        member.expected = -signal.SIGKILL
        self._note(Kind.KILL, member.name)
        member.process.kill()
        await member.process.wait()

    async def remove(self, member: Member) -> None:
        """SIGTERM, and wait for its end."""
        member.leaving = True
        self._note(Kind.LEAVE, member.name)
        member.process.send_signal(signal.SIGTERM)
        await member.process.wait()

    async def suspend(self, member: Member, seconds: float) -> None:
        """SIGSTOP for so long, then SIGCONT."""
        member.busy = True
        begin = time.monotonic()
        member.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        member.process.send_signal(signal.SIGCONT)
        self._note(Kind.STOP, member.name, begin)
        member.busy = False

    async def restart_valkey(self, away_s: float) -> None:
        """kill -9 of the server, and a new one on the same append-only file."""
        async with self._restarting:
            begin = time.monotonic()
            self.valkey.kill()
            await asyncio.sleep(away_s)
            await asyncio.to_thread(self.valkey.start)
            self._note(Kind.RESTART, "", begin)

    async def spoil(self, member: Member, kind: Kind, seconds: float) -> None:
        """Do `kind` to the member's link for so long."""
        member.busy = True
        begin = time.monotonic()
        if kind is Kind.DELAY:
            member.link.delay_s = 0.3
        elif kind is Kind.SWALLOW:
            member.link.swallow(True)
        else:
            member.link.cut_next()
        await asyncio.sleep(seconds)
        member.link.delay_s = 0.0
        member.link.swallow(False)
        self._note(kind, member.name, begin)
        member.busy = False

    async def wait(self) -> None:
        """Until every replica has ended by itself."""
        while self.members:
            await asyncio.gather(*self._watches)

    async def end(self) -> None:
        """Kill whatever is left."""
        for member in list(self.members):
            await self.kill(member)
        await asyncio.gather(*self._watches)

    async def _watch(self, member: Member) -> None:
        """See a replica's end; one that found no Redis at its start is started again, as any supervisor would."""
        code = await member.process.wait()
        self.members.remove(member)
        await member.link.stop()
        if code == TRY_LATER and not member.leaving:
            await asyncio.sleep(0.5)
            await self.add()
        elif code not in (member.expected, TRY_LATER) and not self._is_young(member, code):
            self.crashed.append(f"{member.name} ended with {code}, see {self._log(member.name)}")

    def _is_young(self, member: Member, code: int) -> bool:
        """Whether SIGTERM met it while Python was still importing: it had nothing in hand yet, and ended as any program."""
        return code == -signal.SIGTERM and b"replica_started" not in self._log(member.name).read_bytes()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _note(self, kind: Kind, replica: str, begin: float | None = None) -> None:
        self.changed_at = time.monotonic()
        self.diary.note(kind, replica, self.changed_at if begin is None else begin, self.changed_at)
