"""The replicas of a run: processes that are started, killed and made to leave, each deed noted in the diary."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from crawler.errors import TRY_LATER
from tests.chaos import standstills
from tests.chaos.diary import Diary, Kind
from tests.chaos.proxy import Link
from tests.copies import Copy

ROOT = Path(__file__).parents[2]


@dataclass(eq=False, slots=True)
class Member:
    """A replica's process, and the link to Redis that it has to itself, if any. `expected`: the exit code that it should
    end with. `leaving`: made to end. `busy`: a fault has hold of it."""

    name: str
    process: Copy
    link: Link | None
    expected: int = 0
    leaving: bool = False
    busy: bool = False


@dataclass(slots=True, kw_only=True)
class Replicas:
    """Replicas that share the Redis at `url`."""

    folder: Path
    settings: Path
    diary: Diary
    rng: random.Random
    url: str = ""
    members: list[Member] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)  # ended otherwise than they were made to
    started: int = 0
    changed_at: float = 0.0
    _watches: list[asyncio.Task[None]] = field(default_factory=list)

    async def add(self) -> Member:
        """One more replica."""
        self.started += 1
        name = f"r{self.started}"
        link = await self._own_link()
        url = self.url if link is None else f"redis://127.0.0.1:{link.port}/0"
        words = ["tests.chaos.replica", name, str(self._standstills(name)), str(self.settings), url]
        member = Member(name, self._process(name, words), link)
        self.members.append(member)
        self._watches.append(asyncio.create_task(self._watch(member)))
        self._note(Kind.JOIN, name)
        return member

    def _process(self, name: str, words: list[str]) -> Copy:
        with Path(os.devnull).open("rb") as nothing, self._log(name).open("wb") as log:
            return Copy(words, ROOT, os.environ, (nothing.fileno(), log.fileno(), log.fileno()))

    async def _own_link(self) -> Link | None:
        """A started link for one more replica, if each has one of its own."""
        return None

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
        await member.process.ended()

    async def remove(self, member: Member) -> None:
        """SIGTERM, and wait for its end."""
        member.leaving = True
        self._note(Kind.LEAVE, member.name)
        member.process.send_signal(signal.SIGTERM)
        await member.process.ended()

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
        code = await member.process.ended()
        self.members.remove(member)
        self.diary.standstills += standstills.read(self._standstills(member.name), member.name)
        if member.link is not None:
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

    def _standstills(self, name: str) -> Path:
        return self.folder / f"{name}.standstills"

    def _note(self, kind: Kind, replica: str, begin: float | None = None) -> None:
        self.changed_at = time.monotonic()
        self.diary.note(kind, replica, self.changed_at if begin is None else begin, self.changed_at)
