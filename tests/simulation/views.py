"""The referee of views: I4 and I5."""

from __future__ import annotations

import json
import math
from collections import Counter, deque

from frontier.peers import Member, View, fair_shares
from frontier.scripts import SAVE_OWNERS, Call, Reply
from tests.frontier.helpers import moved
from tests.simulation.loop import Breach

LOAD_LIMIT = 1.1
"""I5: no replica owns more than so many times its fair share, rounded up."""

KEPT = 5
"""Tables from which a new one may start: the last, or an older one if those who made the last could not keep it."""


class Views:
    """Sees each view that was emitted."""

    def __init__(self, shards: int) -> None:
        self._shards = {shards}  # of all layouts
        self._seen: dict[tuple[int, int], tuple[tuple[Member, ...], tuple[str, ...]]] = {}  # by epoch and shards
        self._tables: deque[tuple[str, ...]] = deque(maxlen=KEPT)  # all for the same shards

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        """Sees each call that was carried out. What Redis keeps is what the next table starts from, though its maker may
        have died before it had a view."""
        if call.script is SAVE_OWNERS and reply[0] == b"kept":
            table = call.arguments[2]
            assert isinstance(table, bytes)
            replicas, places = json.loads(table)
            self._keep(tuple(replicas[place] for place in places))

    def switch(self, shards: int) -> None:
        """The crawl has so many shards from now on. A replica that has not noticed it makes views with those of before."""
        self._shards.add(shards)

    def _keep(self, owners: tuple[str, ...]) -> None:
        if self._tables and len(self._tables[0]) != len(owners):
            self._tables.clear()  # a table for other shards is of no use
        self._tables.append(owners)

    def see(self, view: View) -> None:
        """Raises Breach if `view` is not that of others, not dense, shares the shards badly, or moves too many."""
        key = view.epoch, len(view.owners)
        if key in self._seen:
            if self._seen[key] != (view.roster, view.owners):
                raise Breach("I4", f"{view} in epoch {view.epoch}, others saw {self._seen[key]}", view.me)
            return
        self._seen[key] = (view.roster, view.owners)
        known = view.roster
        if [member.index for member in known] != list(range(1, len(known) + 1)):
            raise Breach("I4", f"indices of epoch {view.epoch} have holes: {known}", view.me)
        if len({member.replica for member in known}) != len(known):
            raise Breach("I4", f"a replica is twice in epoch {view.epoch}: {known}", view.me)
        if known:
            roster = {member.replica: member.capacity for member in known}
            self._judge_shares(roster, view.owners)
            if key[0] == max(self._seen)[0]:  # a view that comes late started from tables that are forgotten by now
                self._judge_moves(roster, view.owners)

    def _judge_shares(self, roster: dict[str, float], owners: tuple[str, ...]) -> None:
        if len(owners) not in self._shards or not set(owners) <= roster.keys():
            raise Breach("I4", f"shards without an owner: {owners}")
        loads = Counter(owners)
        for replica, fair in fair_shares(roster, len(owners)).items():
            limit = math.ceil(LOAD_LIMIT * fair - 1e-9)
            if loads[replica] > limit:
                raise Breach("I5", f"{replica} owns {loads[replica]} shards, at most {limit}", replica)

    def _judge_moves(self, roster: dict[str, float], owners: tuple[str, ...]) -> None:
        """Only what the gone leave behind, and what somebody holds beyond its fair share, may move."""
        tables = [before for before in self._tables if len(before) == len(owners)]
        excess = [moved(before, owners) - self._may_move(roster, before) for before in tables]
        if excess and min(excess) > 0:
            raise Breach("I5", f"{min(excess)} shards moved without need to {sorted(roster)}")
        if owners not in self._tables:
            self._keep(owners)

    def _may_move(self, roster: dict[str, float], before: tuple[str, ...]) -> int:
        loads = Counter(before)
        gone = sum(load for replica, load in loads.items() if replica not in roster)
        shares = fair_shares(roster, len(before)).items()
        return gone + sum(max(0, loads[replica] - math.floor(fair)) for replica, fair in shares)
