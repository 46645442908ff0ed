"""The owner table: who saves it, that all views of an epoch have the same one, and that few shards move."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from frontier.errors import RedisAway
from frontier.peers import OwnerTable, PeerLoop, PeerSettings, View, assign
from frontier.scripts import SAVE_OWNERS, Call, Reply, script_call
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, moved

SHARDS = 64
INTERVAL_MS = 5000


class FaultyStore:
    """A real store with a manual server clock. While `loses` is set, calls of save_owners.lua are kept in `lost`."""

    def __init__(self, store: RedisStore, time: ManualTime) -> None:
        self._store = store
        self._time = time
        self.loses = False
        self.lost: list[Call] = []
        self.placed = 0

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if calls[0].script is SAVE_OWNERS:
            self.placed += 1
            if self.loses:
                self.lost += calls
                raise RedisAway("no answer")
        return await self._store.send(calls)

    async def time_ms(self) -> float:
        return self._time.ms

    async def close(self) -> None: ...


class Cluster:
    """Replicas that claim one after another in each epoch."""

    def __init__(self, store: RedisStore, key: str) -> None:
        self._store = store
        self.key = key
        self.time = ManualTime(ms=1_000_000_000)
        self.stores: dict[str, FaultyStore] = {}
        self.peers: dict[str, PeerLoop] = {}

    def join(self, *replicas: str, capacity: float = 1.0) -> None:
        settings = PeerSettings(INTERVAL_MS / 1000, capacity, shards=SHARDS)
        for replica in replicas:
            store = self.stores[replica] = FaultyStore(self._store, self.time)
            self.peers[replica] = PeerLoop(store, self.key, self.time, settings, replica, random.Random(1))

    async def epoch(self) -> list[View]:
        """The next epoch's views, in the order in which the replicas claim."""
        self.time.ms += INTERVAL_MS
        return [await peer.tick() for peer in self.peers.values()]


@pytest.fixture
async def cluster(store: RedisStore, crawl_name: str) -> Cluster:
    cluster = Cluster(store, f"{{{crawl_name}}}:peers")
    cluster.join("one", "two", "three")
    await cluster.epoch()  # its table has only the one that came first
    for faulty in cluster.stores.values():
        faulty.placed = 0
    return cluster


def owners_of(views: Sequence[View]) -> tuple[str, ...]:
    """The owners that all of `views` have."""
    (owners,) = {view.owners for view in views}
    return owners


async def test_all_views_of_an_epoch_have_the_same_owners(cluster: Cluster) -> None:
    owners = owners_of(await cluster.epoch())
    assert sorted(Counter(owners).values()) == [21, 21, 22]
    assert len({view.checksum for view in await cluster.epoch()}) == 1


async def test_a_replica_that_finds_nobody_owns_all_shards_at_once(store: RedisStore, crawl_name: str) -> None:
    cluster = Cluster(store, f"{{{crawl_name}}}:peers")
    cluster.join("one")
    assert (await cluster.epoch())[0].owners == ("one",) * SHARDS


async def test_only_the_first_to_see_a_change_writes_the_table(cluster: Cluster) -> None:
    for _ in range(3):
        await cluster.epoch()
    assert [store.placed for store in cluster.stores.values()] == [1, 0, 0]


async def test_a_join_and_a_leave_move_one_share(cluster: Cluster) -> None:
    before = owners_of(await cluster.epoch())
    cluster.join("four")
    await cluster.epoch()
    joined = owners_of(await cluster.epoch())
    assert moved(before, joined) == joined.count("four") == 16
    await cluster.peers.pop("two").leave()
    left = owners_of(await cluster.epoch())
    assert moved(joined, left) == joined.count("two") == 16


async def test_after_a_silence_all_have_what_they_had(cluster: Cluster) -> None:
    """After Redis was away for some epochs, there is first a view without a roster, and then the old owners."""
    before = owners_of(await cluster.epoch())
    cluster.time.ms += 10 * INTERVAL_MS
    assert owners_of(await cluster.epoch()) == ()
    assert owners_of(await cluster.epoch()) == before


async def test_a_table_that_did_not_arrive_is_made_again(cluster: Cluster) -> None:
    """Given a first replica whose table is lost, then the others compute the same one, as does the first when it
    retries."""
    cluster.stores["one"].loses = True
    cluster.time.ms += INTERVAL_MS
    with pytest.raises(RedisAway):
        await cluster.peers["one"].tick()
    others = [await cluster.peers[name].tick() for name in ("two", "three")]
    assert owners_of([*others, await cluster.peers["one"].tick()])
    assert [store.placed for store in cluster.stores.values()] == [1, 1, 0]


async def test_a_late_table_of_a_closed_epoch_is_refused(cluster: Cluster, store: RedisStore) -> None:
    """Given a table that is delayed until another epoch is open, when it arrives, then it is refused."""
    before = owners_of(await cluster.epoch())
    cluster.join("four")
    await cluster.epoch()
    cluster.stores["one"].loses = True
    cluster.time.ms += INTERVAL_MS
    with pytest.raises(RedisAway):
        await cluster.peers["one"].tick()
    del cluster.peers["four"]
    cluster.time.ms += INTERVAL_MS
    await cluster.peers["two"].tick()
    cluster.time.ms += INTERVAL_MS
    first = await cluster.peers["two"].tick()
    assert await store.send(cluster.stores["one"].lost) == [[b"closed"]]
    assert first == replace(await cluster.peers["three"].tick(), me="two")
    assert moved(before, first.owners) == before.count("one") + before.count("three")


async def test_a_table_lost_by_redis_is_made_anew_and_the_same_for_all(cluster: Cluster, store: RedisStore) -> None:
    await cluster.epoch()
    cluster.join("four")
    await cluster.epoch()
    remembered = owners_of(await cluster.epoch())
    await ask(store, "DEL", f"{cluster.key}:owners")
    fresh = owners_of(await cluster.epoch())
    assert fresh == assign(dict.fromkeys(("one", "two", "three", "four"), 1.0), SHARDS) != remembered
    assert sum(faulty.placed for faulty in cluster.stores.values()) == 3


async def test_a_server_that_went_back_is_followed(cluster: Cluster, store: RedisStore) -> None:
    """A failover may lose the last second of writes, and with it the newest table. The stored table then applies."""
    await cluster.epoch()
    old = await ask(store, "DUMP", f"{cluster.key}:owners")
    assert old is not None
    cluster.join("four")
    await cluster.epoch()
    owners = owners_of(await cluster.epoch())
    await ask(store, "RESTORE", f"{cluster.key}:owners", 0, old, "REPLACE")
    assert owners_of(await cluster.epoch()) == owners


async def test_capacities_count(cluster: Cluster) -> None:
    cluster.join("big", capacity=3.0)
    await cluster.epoch()
    assert Counter(owners_of(await cluster.epoch()))["big"] == SHARDS / 2


async def test_a_loop_without_shards_keeps_no_table(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime(ms=1_000_000_000)
    key = f"{{{crawl_name}}}:peers"
    peer = PeerLoop(FaultyStore(store, time), key, time, PeerSettings(INTERVAL_MS / 1000), "one", random.Random(1))
    await peer.tick()
    time.ms += INTERVAL_MS
    assert (await peer.tick()).owners == ()
    assert not await ask(store, "EXISTS", f"{key}:owners")


async def test_a_replica_that_has_missed_a_reshard_leaves_the_table_of_the_others_alone(
    cluster: Cluster, store: RedisStore
) -> None:
    """It was suspended, and goes on with the old shards for a moment."""
    for peer in cluster.peers.values():
        peer.settings = replace(peer.settings, shards=2 * SHARDS, table="@4")
        peer._table = OwnerTable(2 * SHARDS)
    late = PeerLoop(cluster.stores["one"], cluster.key, cluster.time, PeerSettings(5.0, shards=SHARDS), "late")
    await cluster.epoch()
    table = await ask(store, "HGET", f"{cluster.key}:owners", "table@4")
    cluster.peers["late"] = late
    await cluster.epoch()
    assert (await cluster.epoch())[-1].owners
    assert await ask(store, "HGET", f"{cluster.key}:owners", "table@4") != table  # of four replicas
    assert len(late._table.owners) == SHARDS
    views = (await cluster.epoch())[:3]
    assert len({view.owners for view in views}) == 1
    assert len(views[0].owners) == 2 * SHARDS


class TestPlace:
    """`save_owners.lua`: each reply."""

    @pytest.fixture
    def key(self, crawl_name: str) -> str:
        return f"{{{crawl_name}}}:peers"

    @pytest.mark.parametrize(("epoch", "reply"), [(6, b"closed"), (7, b"kept"), (8, b"closed")])
    async def test_only_the_open_epoch_is_taken(self, store: RedisStore, key: str, epoch: int, reply: bytes) -> None:
        await ask(store, "SET", key, 7)
        for _ in range(2):
            assert await store.send([script_call(SAVE_OWNERS, [key], epoch, "v", "t")]) == [[reply]]
        assert await ask(store, "EXISTS", f"{key}:owners") == (reply == b"kept")

    async def test_nothing_is_open(self, store: RedisStore, key: str) -> None:
        assert await store.send([script_call(SAVE_OWNERS, [key], 1, "v", "t")]) == [[b"closed"]]


def test_the_table_survives_its_encoding() -> None:
    table, copy = OwnerTable(8), OwnerTable(8)
    assert table.update({'a "quoted" name': 1.0, "ünïcode": 1.0, "c,d": 2.0})
    copy.read(table.version, table.encoded())
    assert (copy.owners, copy.version) == (table.owners, table.version)
    assert not copy.update({'a "quoted" name': 1.0, "ünïcode": 1.0, "c,d": 2.0})


def test_a_table_of_another_number_of_shards_is_none() -> None:
    table, other = OwnerTable(8), OwnerTable(9)
    table.update({"a": 1.0})
    other.read(table.version, table.encoded())
    assert other.owners == ()
    assert other.update({"a": 1.0})


def test_a_table_says_what_it_is() -> None:
    table = OwnerTable(8)
    assert repr(table) == "<OwnerTable - shards=8 replicas=0>"
    table.update({"a": 1.0, "b": 1.0})
    assert repr(table) == f"<OwnerTable {table.version} shards=8 replicas=2>"
