"""The settings of a frontier."""

from __future__ import annotations

import msgspec

from frontier.packing import Sizes


class FrontierSettings(msgspec.Struct, frozen=True):
    """`lease_ms`: how long a domain stays leased to a replica that stopped responding. Raise it for slow sites, lower
    it for a faster takeover. `batch`: maximum number of URLs in a lease. `domain_cap`: maximum number of URLs accepted
    per domain, 0 for no limit. `delay_ms`: delay between requests to a domain that has no delay of its own.
    `replicas_ack`: how many replicas of a Redis node must have pushed URLs. `pack_above`: how many queued URLs of a
    domain make a long queue, which is packed; 0 for never. `known_share`: the share of known pages in a lease while new
    ones are queued; None if pages are not visited again."""

    lease_ms: int = 30_000
    batch: int = 32
    domain_cap: int = 0
    delay_ms: int = 1_000
    replicas_ack: int = 0
    pack_above: int = 1_000
    known_share: float | None = None

    @property
    def packing(self) -> Sizes:
        return Sizes(self.pack_above, self.batch)
