"""What the replicas of a simulation ask the node of the control keys, and what this costs a real server.

`ControlLoad` records each call to a key that is not one of a shard, and when it was made. `replay` sends the same calls to
another Valkey, in the same order, each replica over a TCP connection of its own. Calls that the store sends in one write
are sent in one write, and everything else after the reply to what was before. So the server reads and writes a socket for
each exchange, as with replicas on machines of their own. Its CPU time, divided by the simulated seconds, is the share of a
core that the control keys take.
"""

from __future__ import annotations

import resource
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hiredis

from frontier import scripts
from frontier.connection import fields
from frontier.scripts import Call, Reply, packed
from tests.ports import free_port
from tests.simulation.loop import Universe
from tests.simulation.network import is_of_shard
from tests.valkey import ValkeyProcess

BUSY = 0.1
"""The share of a core that the control keys may take."""


@dataclass(slots=True)
class Sent:
    """What `replica` has sent in one write: `calls` calls, as sent, and the bytes of the replies. `is_split`: in the
    simulation, calls of others came between them."""

    replica: str
    words: bytes = b""
    size: int = 0
    calls: int = 0
    is_split: bool = False


@dataclass(slots=True)
class Phase:
    """A part of a run, and what was sent in it."""

    name: str
    began_s: float
    ended_s: float = 0.0
    sent: list[Sent] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.sent)

    @property
    def bytes_in(self) -> int:
        return sum(len(one.words) for one in self.sent)

    @property
    def bytes_out(self) -> int:
        return sum(one.size for one in self.sent)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a phase cost a real server: its CPU in shares of a core, and in microseconds a write."""

    phase: Phase
    core: float
    write_us: float

    def __str__(self) -> str:
        phase = self.phase
        return (
            f"{phase.name}, {phase.seconds:.0f} s: {phase.calls / phase.seconds:,.0f} calls a second in "
            f"{len(phase.sent) / phase.seconds:,.0f} writes, {phase.bytes_in / phase.seconds / 1e3:,.0f} kB in, "
            f"{phase.bytes_out / phase.seconds / 1e3:,.0f} kB out; {self.write_us:.1f} us of a real Valkey for a write: "
            f"{self.core:.1%} of a core"
        )


class ControlLoad:
    """Records the calls in `phases`. Those of a phase that has no name are needed, and not counted. `exchange_of`: returns
    the exchange of the call that is observed."""

    def __init__(self, universe: Universe, exchange_of: Callable[[], object]) -> None:
        self._universe = universe
        self._exchange_of = exchange_of
        self._last: Sent | None = None
        self._latest: dict[str, tuple[object, Sent]] = {}  # by replica: its last exchange, and what was sent in it
        self.phases = [Phase("", universe.now)]

    def begin(self, name: str) -> None:
        """End the phase, and begin the next one."""
        self.phases[-1].ended_s = self._universe.now
        self.phases.append(Phase(name, self._universe.now))

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        if is_of_shard(call):
            return
        exchange, (before, sent) = self._exchange_of(), self._latest.get(replica, (None, None))
        if sent is None or exchange is not before:
            sent = Sent(replica)
            self.phases[-1].sent.append(sent)
            self._latest[replica] = exchange, sent
        elif sent is not self._last:
            sent.is_split = True
        self._last = sent
        sent.words, sent.size, sent.calls = sent.words + packed([call]), sent.size + size_of(reply), sent.calls + 1


def size_of(reply: Reply) -> int:
    """The bytes of `reply` on the wire (RESP 2)."""
    match reply:
        case bytes():
            return len(reply) + len(str(len(reply))) + 5
        case list():
            return sum(map(size_of, reply)) + len(str(len(reply))) + 3
        case None:
            return 5
        case _:
            return len(str(reply)) + 3


def replay(phases: Sequence[Phase]) -> list[Cost]:
    """Send the calls of `phases` to a real server, and return what those cost that have a name."""
    replicas = {one.replica for phase in phases for one in phase.sent}
    _allow_files(len(replicas) + 100)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), port) as valkey:
        meter = _Connection(port)
        for script in scripts.ALL:
            meter.ask(hiredis.pack_command(("SCRIPT", "LOAD", script.source)))  # type: ignore[arg-type]
        connections = {replica: _Connection(port) for replica in replicas}
        costs = [_cost(phase, connections, meter) for phase in phases]
        for one in (meter, *connections.values()):
            one.close()
        assert valkey.pid
    return [cost for cost in costs if cost.phase.name]


def _server(folder: Path, port: int) -> ValkeyProcess:
    return ValkeyProcess(folder, persistent=False, options=("--port", str(port), "--bind", "127.0.0.1"))


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _cost(phase: Phase, connections: dict[str, _Connection], meter: _Connection) -> Cost:
    before = _cpu_s(meter)
    for one in phase.sent:
        found = sum(map(size_of, connections[one.replica].ask(one.words, one.calls)))
        if phase.name and found != one.size and not one.is_split and b"$4\r\nTIME" not in one.words:
            raise AssertionError(f"{one.words!r} is answered with {found} bytes, not with {one.size}")
    used_s = _cpu_s(meter) - before
    return Cost(phase, used_s / (phase.seconds or 1.0), 1e6 * used_s / (len(phase.sent) or 1))


def _cpu_s(meter: _Connection) -> float:
    used = fields(meter.ask(hiredis.pack_command(("INFO", "cpu")))[0])  # type: ignore[arg-type]
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


class _Connection:
    """A blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def ask(self, sent: bytes, count: int = 1) -> list[Reply]:
        """The replies to `count` calls."""
        self._socket.sendall(sent)
        replies: list[Reply] = []
        while len(replies) < count:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 16))
            elif isinstance(reply, hiredis.ReplyError):
                raise reply
            else:
                replies.append(reply)
        return replies

    def close(self) -> None:
        self._socket.close()
