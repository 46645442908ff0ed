"""The processes of a run: Valkey, and replicas that each reach it through a link of their own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from dataclasses import dataclass, field

from tests.chaos.diary import Kind
from tests.chaos.proxy import Link
from tests.chaos.replicas import ROOT, Member, Replicas
from tests.valkey import ValkeyProcess

FEW, MANY = 64, 1_024
"""The numbers of shards between which reshards change. A run begins with few."""

TRIES = 60
"""How often a reshard is tried, which needs Redis to be there for some seconds."""


@dataclass(slots=True, kw_only=True)
class Cluster(Replicas):
    """What may be done to the processes, each deed noted in `diary`."""

    valkey: ValkeyProcess
    _restarting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _resharding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _shards: int = FEW

    async def _own_link(self) -> Link | None:
        link = Link(self.valkey.socket)
        await link.start()
        return link

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

    async def reshard(self, killed_after_s: float) -> None:
        """Give the crawl many shards if it has few, and otherwise few. The command is repeated until it succeeds: Redis may
        be away. `killed_after_s`: when the first one is killed, 0 for never."""
        async with self._resharding:
            self._shards = MANY if self._shards == FEW else FEW
            begin = time.monotonic()
            code, number = await self._reshard(killed_after_s), 1
            while code and not self._has_all():  # it may have been killed when all but the report was done
                assert number < TRIES, f"no reshard to {self._shards} shards, see {self._log('reshard')}"
                await asyncio.sleep(0.5)
                code, number = await self._reshard(0.0), number + 1
            self._note(Kind.RESHARD, "", begin)

    def _has_all(self) -> bool:
        """Whether the last command has said that the crawl has so many shards already."""
        lines = self._log("reshard").read_text().splitlines()
        return bool(lines) and f"the crawl has {self._shards:,} shards already" in lines[-1]

    async def _reshard(self, killed_after_s: float) -> int:
        with self._log("reshard").open("ab") as log:
            words = ("--settings", str(self.settings), "--redis", self.valkey.url, "--shards", str(self._shards))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "crawler", "reshard", *words),
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), killed_after_s or None)
        process.kill()
        return await process.wait()

    async def spoil(self, member: Member, kind: Kind, seconds: float) -> None:
        """Do `kind` to the member's link for so long."""
        assert member.link is not None
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
