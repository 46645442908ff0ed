"""What the referee knows of a domain: its URLs, who holds it, and until when it rests."""

from __future__ import annotations

from dataclasses import dataclass, field

NOBODYS = 0
"""The token of a revoked lease. No replica has it, and the lease stays until it expires."""


@dataclass(slots=True)
class Holding:
    """A lease as its holder knows it. `until_ms`: the latest end of the lease that the holder was told."""

    token: int
    replica: str
    until_ms: int
    urls: set[str]


@dataclass(slots=True)
class Domain:
    """`rests_until_ms`: no lease may be given before. `delay_ms`: as last settled, 0 for the default."""

    name: str
    shard: str
    queued: dict[str, float] = field(default_factory=dict)  # url -> priority
    packed: set[str] = field(default_factory=set)  # those of `queued` that are in blocks
    waiting: dict[str, int] = field(default_factory=dict)  # url -> ready ms
    holding: Holding | None = None
    rests_until_ms: int = 0
    filled_ms: int = 0  # by the clock of whoever queued a URL last
    delay_ms: int = 0
    accepted: int = 0
    raw: dict[str, str] = field(default_factory=dict)  # url -> its text, where it is known to have changed

    @property
    def due_ms(self) -> int:
        """When the domain is due: from then on a lease call must return it if anything is queued."""
        return max(self.rests_until_ms, self.filled_ms)

    def wake(self, now_ms: int) -> None:
        """Queue the waiting URLs that are ready."""
        ready = [url for url, ready_ms in self.waiting.items() if ready_ms <= now_ms]
        if ready and not self.queued:  # it is due from now on, for a late call with an earlier time not yet
            self.filled_ms = max(self.filled_ms, now_ms)
        for url in ready:
            del self.waiting[url]
            self.queued[url] = 0.0
