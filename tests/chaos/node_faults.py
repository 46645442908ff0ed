"""What was done to which node of the Redis Cluster, when it served again, and what that excuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.diary import IN_HAND_S, Diary
from tests.simweb.server import Record


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
