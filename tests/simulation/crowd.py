"""What must hold when many replicas join within a minute, and a tenth of them dies at once.

`Crowd` sees each view that a replica adopts. It finds the moment from which on all replicas have a view that includes every
living replica and no other, and how many shards each has in it.

An interval is that of the peer loop, in which each replica claims once (`scenario.interval_s`, 5 s). It is the same for any
number of replicas: `frontier.peers` lets many of them ask for commands and report less often, but not claim. Time
is counted from the start of the last replica, or from the deaths.

What the replicas of a simulation ask the node of the control keys, and what this costs a real server.

`ControlLoad` records each call to a key that is not one of a shard, and when it was made. `replay` sends the same calls to
another Valkey, in the same order, each replica over a TCP connection of its own. Calls that the store sends in one write
are sent in one write, and everything else after the reply to what was before. So the server reads and writes a socket for
each exchange, as with replicas on machines of their own. Its CPU time, divided by the simulated seconds, is the share of a
core that the control keys take.
"""

from __future__ import annotations

import math
import resource
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import hiredis

from frontier import scripts
from frontier.connection import fields
from frontier.peers import View, fair_shares
from frontier.scripts import Call, Reply, packed
from tests.ports import free_port
from tests.simulation.loop import Breach, Universe
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


INTERVALS = 2.0
"""Within so many intervals, the first replica has the right view."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How views came to agree after something had happened, in intervals since then.

    `in_effect`: when the first replica adopted the right view; `held`: when the last one did. `least`, `most`: shards of a
    replica; `fair`: the share of a replica of mean capacity; `furthest`: by how much a replica differs from its own.
    """

    replicas: int
    in_effect: float
    held: float
    least: int
    most: int
    fair: float
    furthest: float

    def __str__(self) -> str:
        return (
            f"{self.replicas:,} replicas: the right view is in effect after {self.in_effect:.2f} intervals, all have it "
            f"after {self.held:.2f}; {self.least} to {self.most} shards each, on average {self.fair:.2f}, at most "
            f"{self.furthest:.2f} from the fair share"
        )


class Crowd:
    """The views of all replicas. `agreement`: the last one that was found, None while it is awaited."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._views: dict[str, View] = {}
        self._right: dict[str, float] = {}  # replica -> since when it has a right view
        self._living: Set[str] = frozenset()
        self._gone: Set[str] = frozenset()
        self._since = 0.0
        self._judged: tuple[int, bool] = (0, False)  # the last epoch, and whether its view is right
        self.agreement: Agreement | None = None

    def expect(self, living: Set[str], gone: Set[str], since: float) -> None:
        """Await views that include all `living` replicas and none that are `gone`. `since`: simulated seconds."""
        self._living, self._gone, self._since = living, gone, since
        self._right, self._judged, self.agreement = {}, (0, False), None
        for view in self._views.values():
            if view.me in living:
                self._look(view, since)

    def see(self, view: View, now: float) -> None:
        """A replica adopts `view`."""
        self._views[view.me] = view
        if view.me in self._living:
            self._look(view, now)

    def _look(self, view: View, now: float) -> None:
        if not self._is_right(view):
            self._right.pop(view.me, None)
            return
        self._right.setdefault(view.me, now)
        if self.agreement is None and len(self._right) == len(self._living):
            self.agreement = self._agreed(view)

    def _is_right(self, view: View) -> bool:
        if self._judged[0] != view.epoch:
            names = {member.replica for member in view.roster}
            self._judged = view.epoch, self._living <= names and not self._gone & names
        return self._judged[1]

    def _agreed(self, view: View) -> Agreement:
        since, last = self._since, max(self._right.values())
        loads, shares = Counter(view.owners), _shares(view)
        counts = [loads[name] for name in shares]
        furthest = max(abs(loads[name] - share) for name, share in shares.items())
        first = min(self._right.values())
        intervals = ((first - since) / self._interval_s, (last - since) / self._interval_s)
        return Agreement(len(counts), *intervals, min(counts), max(counts), len(view.owners) / len(counts), furthest)


def _shares(view: View) -> dict[str, float]:
    return fair_shares({member.replica: member.capacity for member in view.roster}, len(view.owners))


def judge(agreement: Agreement | None, what: str, adopted_within: float) -> Agreement:
    """Return `agreement`. Raises Breach unless the right view came into effect within two intervals, all had it within
    `adopted_within`, and no replica has a shard more or less than its fair share."""
    if agreement is None or agreement.in_effect > INTERVALS or agreement.held > adopted_within:
        raise Breach("I4", f"views do not agree in time {what}: {agreement}")
    if agreement.furthest >= 1 or math.isnan(agreement.furthest):
        raise Breach("I5", f"shards are not within one of the fair share {what}: {agreement}")
    return agreement
