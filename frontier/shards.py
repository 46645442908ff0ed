"""The shards of a crawl: their identity, the nodes that serve them, and whether their data is on disk.

Each shard holds the identity of its crawl. A server that came back empty has none, and a shard of it would otherwise look
like one in which all is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from frontier.clock import Clock
from frontier.connection import wrong_type
from frontier.errors import CrawlLost, CrawlResharded, RedisMisused, ShardLost, WritesRefused
from frontier.keys import CrawlKeys, prefix_of, shard_number
from frontier.scripts import IDENTIFY_SHARD, Argument, Call, Reply, Script, command, script_call
from frontier.store import Store, ask, scan, text_in, wrong_keys


def shard_call(script: Script, keys: CrawlKeys, shard: int, *arguments: Argument) -> Call:
    """A call of `script` for `shard`: its keys are `stats` and the prefix of the others, and its first argument is the
    identity of the crawl."""
    of = keys.shards[shard]
    return script_call(script, (of.stats, of.base), keys.identity, *arguments)


async def send_to_shards(store: Store, keys: CrawlKeys, calls: Sequence[tuple[int, Call]]) -> list[Reply]:
    """The replies to `calls` of scripts, each for a shard. Raises ShardLost if one lacks the identity of the crawl, and
    RedisAway."""
    replies = await store.send([call for _, call in calls])
    check_identity(keys.crawl, [shard for shard, _ in calls], replies)
    return replies


async def identify_shards(
    store: Store, keys: CrawlKeys, shards: Sequence[int], former: str = "", cancelled: str = ""
) -> None:
    """Give `shards` the identity of the crawl. `former`: an identity that it replaces; `cancelled`: the last claim of a
    reshard that is cancelled. Repeating the call is harmless.

    Raises CrawlLost if a shard belongs to another crawl of that name, CrawlResharded if another command for the same crawl
    has given it another identity, and RedisAway.
    """
    calls = [
        script_call(IDENTIFY_SHARD, (of.stats, of.owner), keys.identity, former, store.run_of(of.base), cancelled)
        for of in (keys.shards[shard] for shard in shards)
    ]
    foreign = [text_in(reply[1]) for reply in await ask(store, calls) if reply[0] == b"foreign"]
    if foreign and all(_fingerprint_key(identity) == _fingerprint_key(keys.identity) for identity in foreign):
        raise CrawlResharded(
            f"{len(foreign):,} of the shards that this command has to fill belong to another command, of which Redis may "
            f"have lost its record; run the command for crawl {keys.crawl!r} again"
        )
    if foreign:
        raise CrawlLost(
            f"{len(foreign)} shards of crawl {keys.crawl!r} hold data of another crawl of that name, whose {keys.meta} is "
            "gone; restore that key, choose another name, or remove all keys of the crawl"
        )


def _fingerprint_key(identity: str) -> str:
    """That of the crawl, with which all its identities begin."""
    return identity.partition(":")[0]


async def lost_shards(store: Store, keys: CrawlKeys, shards: Sequence[int] | None = None) -> Mapping[int, str]:
    """Those of `shards`, or of all, that lack the identity of the crawl, and the identity that each has instead, "" for
    none. Raises RedisAway."""
    asked = range(len(keys.shards)) if shards is None else shards
    found = await ask(store, [command("HGET", keys.shards[shard].stats, "crawl") for shard in asked])
    identities = {shard: text_in(identity) for shard, identity in zip(asked, found, strict=True)}
    return {shard: identity for shard, identity in identities.items() if identity != keys.identity}


def frozen(keys: CrawlKeys) -> str:
    """The identity of the shards of `keys` while, and after, a reshard copies them."""
    return f"{keys.identity}:moved"


def check_not_frozen(keys: CrawlKeys, lost: Mapping[int, str]) -> None:
    """Raises CrawlResharded if `lost` are shards of an open crawl that a reshard has frozen: the server that knew of it has
    lost that. No data is missing."""
    if lost and all(identity == frozen(keys) for identity in lost.values()):
        raise CrawlResharded(
            f"a reshard of crawl {keys.crawl!r} has frozen {len(lost):,} of its {len(keys.shards):,} shards, and Redis has "
            "lost who began it; nothing else is lost: run `crawler reshard --shards N` again, which completes it"
        )


def check_identity(crawl: str, shards: Iterable[int], replies: Iterable[Reply]) -> None:
    """Raises ShardLost if a script has replied that its shard lacks the identity of `crawl`. `replies`: one for each of
    `shards`."""
    if lost := {shard for shard, reply in zip(shards, replies, strict=True) if reply[0] == b"lost"}:
        raise ShardLost(crawl, lost)


T = TypeVar("T")


class Nodes:
    """The nodes of a Redis Cluster that serve the shards of the crawl with `keys`. On a single server, one node serves them
    all.

    The slot map of a cluster changes with failovers and slot moves, and is then read again. A part that is sorted by an
    older map costs nothing but time: the store sends each call to the node that serves it.
    """

    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._keys = keys
        self._runs: Hashable = None
        self._of_shard: tuple[str, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._apart: dict[str, str] = {}  # what keys begin with of which some have a wrong type -> their name as a node

    def __repr__(self) -> str:
        return f"<Nodes {sorted(self.names)}>"

    def _by_shard(self) -> tuple[str, ...]:
        runs = self._store.runs()
        if self._runs != runs or not self._of_shard:  # for a thousand shards, this takes about a millisecond
            self._runs = runs
            self._of_shard = tuple(self._apart.get(of.base) or self._store.node_of(of.base) for of in self._keys.shards)
            self._names = frozenset((*self._of_shard, self.crawl_node))
        return self._of_shard

    @property
    def names(self) -> frozenset[str]:
        """The nodes that serve anything of this crawl."""
        self._by_shard()
        return self._names

    @property
    def has_many_nodes(self) -> bool:
        """Whether some nodes may serve while others cannot."""
        return len(self.names) > 1

    @property
    def crawl_node(self) -> str:
        """The node of the keys of the whole crawl: roster, settings, commands, page limit."""
        return self._apart.get(prefix_of(self._keys.meta)) or self._store.node_of(self._keys.meta)

    def set_apart(self, key: str) -> str:
        """Take the shard of `key`, or the keys of the crawl, for a node of its own, because keys of it have a wrong type.
        So they cost no other shard. Returns the name of the node, "" for a key of neither."""
        prefix = prefix_of(key)
        if prefix not in self._apart:
            if prefix != prefix_of(self._keys.meta) and all(of.base != prefix for of in self._keys.shards):
                return ""
            self._apart[prefix] = f"{prefix}*"
            self._of_shard = ()
        return self._apart[prefix]

    async def _check_apart(self, node: str) -> None:
        """Raises WrongType if `node` stands for keys of which some have a wrong type."""
        for prefix in [prefix for prefix, name in self._apart.items() if name == node]:
            if names := await wrong_keys(self._store, [prefix]):
                raise wrong_type(self._store.node_of(prefix), node, prefix, names)

    def of(self, shard: int) -> str:
        """The node of `shard`."""
        return self._by_shard()[shard]

    def split(self, items: Iterable[T], shard_of: Callable[[T], int]) -> dict[str, list[T]]:
        """`items` by the node of their shards, in their order."""
        by_shard = self._by_shard()
        parts: dict[str, list[T]] = {}
        for item in items:
            parts.setdefault(by_shard[shard_of(item)], []).append(item)
        return parts

    async def refusals(self) -> dict[str, str]:
        """Why nodes refuse writes now, by name, without those that are away."""
        first = {node: shards[0] for node, shards in self.split(range(len(self._keys.shards)), int).items()}
        try:
            answers = await self._store.send_each([self._no_write(shard) for shard in first.values()])
        except RedisMisused:  # a user who may not write
            return {}
        found = zip(first, answers, strict=True)
        return {node: str(answer) for node, answer in found if isinstance(answer, WritesRefused)}

    def _no_write(self, shard: int) -> Call:
        """A write that changes nothing: XX adds no member."""
        return command("ZADD", self._keys.shards[shard].due, "XX", 0, "")

    async def check(self, node: str, writes: bool = False) -> None:
        """Ask `node` whether it serves and has its shards, and with `writes` whether it takes writes,
        too. Raises RedisAway, RedisMisused and ShardLost."""
        await self._check_apart(node)
        shards = [shard for shard, name in enumerate(self._by_shard()) if name == node]
        if not shards:  # nobody creates the field ""
            verb = ("HDEL", self._keys.control, "") if writes else ("EXISTS", self._keys.meta)
            await self._store.send([command(*verb)])
        elif lost := await lost_shards(self._store, self._keys, shards):
            raise ShardLost(self._keys.crawl, lost)
        elif writes:
            await self._store.send([self._no_write(shards[0])])
        self._apart = {prefix: name for prefix, name in self._apart.items() if name != node}
        self._of_shard = ()


async def found_keys(store: Store, keys: CrawlKeys, name: str = "*") -> AsyncIterator[list[str]]:
    """Pages of the keys called `name` of the shards that Redis has of the crawl, in any layout, some of them perhaps twice.
    All keys of the servers are looked at. Raises RedisAway."""
    for of_node in Nodes(store, keys).split(keys.shards, lambda of: shard_number(of.base)).values():
        pattern = f"{{{keys.crawl}:*}}:{name}"
        async for page in scan(store, "SCAN", "", "MATCH", pattern, "COUNT", 1_000, at=of_node[0].base):
            yield [key.decode() for key in page]


DURABLE_S = 2.0
"""After so many seconds, a server has normally written to disk what it took: its log once a second by default, and up to a
second later if the disk is slow."""


async def until_synced(store: Store, clock: Clock, keys: CrawlKeys, others: Iterable[str] = ()) -> None:
    """Wait until what was sent to the servers of `keys`, and of the keys `others`, is on their disks, for `DURABLE_S` at
    most. A single server says when it is (WAITAOF, Redis 7.2), and one without a log has nothing to write. Raises
    RedisAway."""
    if len({store.node_of(key) for key in (keys.meta, *(of.base for of in keys.shards), *others)}) == 1:
        # It speaks of the writes of the same connection, so there has to be one.
        mark = command("SET", keys.shards[0].acked, "", "PX", int(1000 * DURABLE_S))
        try:
            await store.send([mark, Call(("WAITAOF", 1, 0, int(1000 * DURABLE_S)), at=keys.meta)])
        except RedisMisused as error:
            if "appendonly is disabled" in str(error):
                return
        else:
            return
    await clock.sleep(DURABLE_S)
