"""The processes of a run: Valkey, and replicas that each reach it through a link of their own."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field

from tests.chaos.diary import Kind
from tests.chaos.proxy import Link
from tests.chaos.replicas import Member, Replicas
from tests.valkey import ValkeyProcess


@dataclass(slots=True, kw_only=True)
class Cluster(Replicas):
    """What may be done to the processes, each deed noted in `diary`."""

    valkey: ValkeyProcess
    _restarting: asyncio.Lock = field(default_factory=asyncio.Lock)

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
