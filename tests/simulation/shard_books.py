"""What the referee knows of a shard beside its domains: who leased last, the last grant, and the restarts of its server."""

from __future__ import annotations

from dataclasses import dataclass, field

GRACE_MS = 1_000
TOKENS_LOST = 10_000


@dataclass(slots=True)
class ShardBook:
    """`call`: number of the last call that got leases; `granted`: domain -> token of these. `tails`: tokens that the server
    may have lost, above the first number of each pair and up to the second. `decided`: (token, entry) settled under
    them, or found unsettled."""

    epoch: int = 0
    replica: str = ""
    run: str = ""
    token: int = 0
    quiet_ms: int = 0
    call: int = 0
    granted: dict[str, int] = field(default_factory=dict)
    tails: list[tuple[int, int]] = field(default_factory=list)
    decided: set[tuple[int, str]] = field(default_factory=set)

    def own(self, epoch: int, replica: str) -> None:
        """A call of `replica` in `epoch` was not refused."""
        if replica != self.replica:
            self.call, self.granted = 0, {}
        self.epoch, self.replica = epoch, replica

    def notice(self, run: str, now_ms: int) -> None:
        """A call was sent to the server process `run`."""
        if not run or run == self.run:
            return
        last = max(self.token + TOKENS_LOST, now_ms)
        self.tails.append((self.token, last))
        self.run, self.token, self.quiet_ms = run, last, now_ms + GRACE_MS

    def has_lost(self, token: int) -> bool:
        """Whether a lease with this token was lost with the last writes of a server."""
        return any(first < token <= last for first, last in self.tails)
