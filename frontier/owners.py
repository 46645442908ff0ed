"""Who owns which shard, as it stands in Redis: what the ring remembers from one epoch to the next.

There is no leader to keep the table. In each epoch the first replica that finds the roster changed works out the new
owners and puts them into Redis (`lua/save_owners.lua`), which takes them only while the epoch is open. All views of an
epoch are equal all the same, whether their replicas read the table before that or after: they share the roster and the
table that stood there when the epoch was opened, and to assign again changes nothing (`ring`). A table that did not
arrive is missed by nobody: in the next epoch all start from the one before.

If Redis forgets the table, all shards are given out afresh; the fence of a shard keeps two owners apart meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from xxhash import xxh3_64_hexdigest

from frontier.ring import assign


class OwnerTable:
    """One replica's copy of the table. `version`: names its content; empty if there is none. `owners`: of each shard."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._roster: Mapping[str, float] = {}
        self.version = ""
        self.owners: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<OwnerTable {self.version or '-'} shards={self._shards} replicas={len(self._roster)}>"

    def read(self, version: str, table: bytes) -> None:
        """Take over what Redis has: its `version`, and the encoded table unless that is the version we know."""
        if version != self.version:
            self.version, self.owners, self._roster = version, self._decoded(table), {}

    def update(self, roster: Mapping[str, float]) -> bool:
        """Give the shards to `roster` (id -> capacity). True if that is a new table, which Redis has to keep."""
        if not (roster and self._shards) or roster == self._roster:
            return False
        before, self._roster = self.owners, roster
        self.owners = assign(roster, self._shards, before)
        if self.owners == before:
            return False
        self.version = xxh3_64_hexdigest(self.encoded())
        return True

    def encoded(self) -> bytes:
        """The table as JSON: the replicas, and for each shard the place of its owner among them."""
        replicas = sorted(set(self.owners))
        places = {replica: place for place, replica in enumerate(replicas)}
        return json.dumps([replicas, [places[owner] for owner in self.owners]], separators=(",", ":")).encode()

    def _decoded(self, table: bytes) -> tuple[str, ...]:
        """The owners in `table`; none if it is empty, or of another number of shards."""
        replicas, places = json.loads(table) if table else ([], [])
        return tuple(replicas[place] for place in places) if len(places) == self._shards else ()
