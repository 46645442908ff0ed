"""The table of shard owners, which Redis stores from one epoch to the next.

No leader maintains the table. In each epoch, the first replica that finds a changed roster computes the new owners and
saves them in Redis (`lua/save_owners.lua`), which accepts them only while the epoch is open. All views of an epoch are
still equal, whether a replica read the table before or after that. The replicas share the roster and the table from when
the epoch was opened, and assigning the shards again changes nothing (`ring`). If a table is not saved, nothing is lost: in
the next epoch all replicas start from the previous one.

If Redis loses the table, all shards are assigned again from scratch. Meanwhile the fence of each shard prevents two
replicas from owning it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from xxhash import xxh3_64_hexdigest

from frontier.ring import assign


class OwnerTable:
    """One replica's copy of the table. `version`: hash of its content, or empty if there is none. `owners`: by shard."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._roster: Mapping[str, float] = {}
        self.version = ""
        self.owners: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<OwnerTable {self.version or '-'} shards={self._shards} replicas={len(self._roster)}>"

    def read(self, version: str, table: bytes) -> None:
        """Use the stored table. `table`: encoded."""
        self.version, self.owners, self._roster = version, self._decoded(table), {}

    def update(self, roster: Mapping[str, float]) -> bool:
        """Assign the shards to `roster` (id -> capacity). True if the table has changed and must be saved in Redis."""
        if not (roster and self._shards) or roster == self._roster:
            return False
        before, self._roster = self.owners, roster
        self.owners = assign(roster, self._shards, before)
        if self.owners == before:
            return False
        self.version = xxh3_64_hexdigest(self.encoded())
        return True

    def encoded(self) -> bytes:
        """The table as JSON: the replicas, and for each shard the position of its owner in that list."""
        replicas = sorted(set(self.owners))
        places = {replica: place for place, replica in enumerate(replicas)}
        return json.dumps([replicas, [places[owner] for owner in self.owners]], separators=(",", ":")).encode()

    def _decoded(self, table: bytes) -> tuple[str, ...]:
        """The owners in `table`. Empty if the table is empty or has another number of shards."""
        replicas, places = json.loads(table) if table else ([], [])
        return tuple(replicas[place] for place in places) if len(places) == self._shards else ()
