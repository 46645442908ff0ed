"""What was done to whom, and when: the only excuse for a URL that is fetched twice.

What was done to which node of the Redis Cluster, when it served again, and what that excuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.standstills import Standstill, longest
from tests.simweb.server import Record

IN_HAND_S = 2.0
"""From the end of a response to its settling: some tens of milliseconds, on a busy machine more."""


class Kind(StrEnum):
    """A fault. Those of `HARMLESS` excuse nothing."""

    KILL = "kill -9"
    STOP = "SIGSTOP longer than a lease"
    RESTART = "Valkey killed and restarted"
    CUT = "connections cut in the middle of a reply"
    SWALLOW = "blackhole between replica and Valkey"
    DELAY = "slow replies of Valkey"
    LEAVE = "replica removed by SIGTERM"
    JOIN = "replica added"
    RESHARD = "other number of shards"


HARMLESS = frozenset({Kind.DELAY, Kind.LEAVE, Kind.JOIN, Kind.RESHARD})


@dataclass(frozen=True, slots=True)
class Fault:
    """`replica` suffered `kind` from `begin` to `end`, in the system's monotonic seconds; "": all of them did."""

    kind: Kind
    replica: str
    begin: float
    end: float


@dataclass(slots=True)
class Diary:
    """The faults of a run. `lease_s`: what a replica may still do after Redis has come back to it."""

    lease_s: float
    faults: list[Fault] = field(default_factory=list)
    standstills: list[Standstill] = field(default_factory=list)

    def note(self, kind: Kind, replica: str, begin: float, end: float) -> None:
        self.faults.append(Fault(kind, replica, begin, end))

    def stood_still(self, begin: float, end: float) -> None:
        """Note that this process, through which all replicas reach Redis, stood still."""
        self.standstills.append(Standstill("", begin, end))

    def count(self) -> Counter[Kind]:
        return Counter(fault.kind for fault in self.faults)

    def explains(self, record: Record) -> bool:
        """Whether the replica that made the request met a fault between asking and settling, or stood still for so much of
        its lease that it could not be expected to settle within the rest."""
        stood_still_s = self.stood_still_s(record, record.start, record.end + self.lease_s)
        return stood_still_s > self.lease_s - IN_HAND_S or any(
            fault.kind not in HARMLESS
            and fault.replica in ("", replica_of(record))
            and fault.begin < record.end + IN_HAND_S
            and record.start < fault.end + self.lease_s
            for fault in self.faults
        )

    def lease_end(self, record: Record, until: float) -> float:
        """When the lease of `record` ended, if its replica was killed before `until`. 0: it was not."""
        kills = [fault.end for fault in self.faults if fault.kind is Kind.KILL and fault.replica == replica_of(record)]
        return min((at + self.lease_s for at in kills if record.start - self.lease_s < at < until), default=0.0)

    def stood_still_s(self, record: Record, begin: float, end: float) -> float:
        """For how long the replica that made the request stood still between `begin` and `end`."""
        return longest(self.standstills, replica_of(record), begin, end)

    def excuses_closeness(self, record: Record) -> bool:
        """Whether `record` may come too early after the request before it. Never, if Redis keeps what it confirmed."""
        return False


def replica_of(record: Record) -> str:
    """The name that a replica of this run carries in its User-Agent, as the operator's contact."""
    return record.agent.partition("(+")[2].rstrip(")")


class NodeKind(StrEnum):
    """A fault of a node, or a change of the cluster."""

    KILL = "kill -9 of a master"
    STOP = "SIGSTOP of a master"
    FAILOVER = "failover by hand"
    CUT = "network cut between all replicas and a node"
    MOVE = "slot moved"
    JOIN = "node joined and took slots"
    LEAVE = "node gave its slots back and left"


OUTAGES = frozenset({NodeKind.KILL, NodeKind.STOP, NodeKind.FAILOVER, NodeKind.CUT})


@dataclass(frozen=True, slots=True)
class NodeFault:
    """`node` suffered `kind` from `begin`. `served_at`: when its slots answered again, by a probe of the cluster itself.
    `end`: when the cluster was whole again. All in the system's monotonic seconds. `domains`: the domains whose shards
    it served, by node, itself included. `forgets_s`: how much of what it had confirmed before `begin` it forgot."""

    kind: NodeKind
    node: str
    begin: float
    served_at: float
    end: float
    domains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    forgets_s: float = 0.0

    @property
    def hit(self) -> frozenset[str]:
        """The domains whose shards it served."""
        return self.domains.get(self.node, frozenset())


@dataclass(slots=True)
class NodeDiary(Diary):
    """Adds the faults of nodes. `loses_tails`: whether a failover may lose the writes of the last moments, and with them
    leases and settlements."""

    loses_tails: bool = False
    nodes: list[NodeFault] = field(default_factory=list)

    def count_nodes(self) -> Counter[NodeKind]:
        return Counter(fault.kind for fault in self.nodes)

    def explains(self, record: Record) -> bool:
        """Also if the shard of the domain was not to be reached between asking and settling. A fault of another node
        excuses nothing."""
        return Diary.explains(self, record) or self._is_hit(record)

    def excuses_closeness(self, record: Record) -> bool:
        """Whether a lease of the domain may have been forgotten before `record`."""
        return self.loses_tails and self._is_hit(record)

    def _is_hit(self, record: Record) -> bool:
        return any(
            fault.begin - fault.forgets_s < record.end + IN_HAND_S
            and record.start < fault.served_at + self.lease_s
            and record.domain in fault.hit
            for fault in self.nodes
            if fault.kind in OUTAGES
        )
