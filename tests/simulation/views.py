"""The referee of views and of the end: I4, I5 and I7."""

from __future__ import annotations

from frontier.peers import Member, View
from frontier.ring import assign, load_limits
from tests.simulation.history import Breach


class Views:
    """Sees each view that was emitted."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._rosters: dict[int, tuple[Member, ...]] = {}

    def see(self, view: View) -> None:
        """Raises Breach if `view` is not that of others, not dense, or shares the shards badly."""
        known = self._rosters.setdefault(view.epoch, view.roster)
        if known != view.roster:
            raise Breach("I4", f"{view.me} sees {view.roster} in epoch {view.epoch}, others saw {known}", view.me)
        if known is not view.roster:
            return
        if [member.index for member in known] != list(range(1, len(known) + 1)):
            raise Breach("I4", f"indices of epoch {view.epoch} have holes: {known}", view.me)
        if len({member.replica for member in known}) != len(known):
            raise Breach("I4", f"a replica is twice in epoch {view.epoch}: {known}", view.me)
        if known:
            self._judge_shares({member.replica: member.capacity for member in known})

    def _judge_shares(self, roster: dict[str, float]) -> None:
        owners = assign(roster, self._shards)
        limits = load_limits(roster, self._shards)
        if len(owners) != self._shards or not set(owners) <= roster.keys():
            raise Breach("I4", f"shards without an owner: {owners}")
        for replica in roster:
            if owners.count(replica) > limits[replica]:
                raise Breach("I5", f"{replica} owns {owners.count(replica)} shards, at most {limits[replica]}", replica)

    def owner(self, epoch: int, shard: int) -> str | None:
        """Who owns `shard` in the view of `epoch`; None if nobody has seen that view."""
        roster = self._rosters.get(epoch)
        if not roster:
            return None
        return assign({member.replica: member.capacity for member in roster}, self._shards)[shard]
