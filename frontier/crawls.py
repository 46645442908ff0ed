"""Creates and opens named crawls in Redis. A crawl is created once, and all replicas share its settings.

They also share the types of the fields of data sets (`FieldTypes`): whole numbers may become decimal ones, and values of
different types make a field text. They are in one hash of the crawl. A replica remembers what it has read
(`crawler.worker.items`), so most pages cost no call, and a crawl without data sets none at all.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import chain

import msgspec

from frontier.clock import ServerClock, SystemClock, crawl_ms
from frontier.connection import fields
from frontier.domains import suffix_list_mark
from frontier.errors import (
    BadInput,
    CrawlLost,
    CrawlResharded,
    FrontierError,
    NoSuchCrawl,
    RedisMisused,
    Resharding,
    SchemaMismatch,
    SettingsOutdated,
)
from frontier.keys import MOST_SHARDS, SCHEMA, CrawlKeys, check_crawl_name, meta_key, shard_number, tokens_of
from frontier.scripts import CREATE_CRAWL, KEEP_TYPES, SAVE_SETTINGS, Call, Reply, command, script_call
from frontier.shards import found_keys, identify_shards
from frontier.store import Store, ask, batched, count_in, pairs, text_in

MOST_FIELDS = 5_000
"""Fields of all data sets whose types are kept, at about 70 bytes each. A program that invents names of fields, such as a
dict of words, must not fill Redis."""

LONGEST_FIELD = 200
"""Characters of the name of a field whose type is kept."""

CHUNK = 500
"""Fields per call, which then takes less than 1 ms."""

Types = Mapping[tuple[str, str], str]
"""Data set and field -> type."""


class FieldTypes:
    """The types of the fields of the crawl with `keys`. All methods raise RedisAway, and may be repeated."""

    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._key = keys.types

    async def read(self) -> dict[tuple[str, str], str]:
        (reply,) = await self._store.send([command("HGETALL", self._key)])
        fields = ((name.partition("\n"), kind) for name, kind in pairs(reply).items())
        return {(data_set, field): kind for (data_set, _, field), kind in fields}

    async def keep(self, offered: Types) -> dict[tuple[str, str], str]:
        """Keep the `offered` types of fields that have none, and return the types that all have now."""
        names = [name for name in offered if len(name[1]) <= LONGEST_FIELD]
        calls = [
            script_call(
                KEEP_TYPES, [self._key], MOST_FIELDS, *(w for name in part for w in ("\n".join(name), offered[name]))
            )
            for part in batched(names, CHUNK)
        ]
        replies = await self._store.send(calls)
        kinds = [kind.decode() for reply in replies for kind in reply[1:]]
        return {name: kind for name, kind in zip(names, kinds, strict=True) if kind}

    async def forget(self, data_set: str) -> int:
        """Forget the types of the fields of `data_set`. Returns their number."""
        names = [f"{name}\n{field}" for name, field in await self.read() if name == data_set]
        if names:
            await self._store.send([command("HDEL", self._key, *names)])
        return len(names)


class ReshardProgress(msgspec.Struct, frozen=True):
    """How far a crawl is from `before` to `after` shards: `done` of about `total` keys. `switched`: it has the new
    ones."""

    before: int
    after: int
    done: int
    total: int
    cancelled: bool = False
    crawl: str = ""
    switched: bool = False

    @property
    def percent(self) -> int:
        return 100 * self.done // max(1, self.total)

    def __str__(self) -> str:
        if self.cancelled:
            return f"being given back its {self.before:,} shards"
        copied = "all is copied" if self.switched else f"{self.percent} % copied"
        return f"being resharded from {self.before:,} to {self.after:,} shards: {copied}"

    @property
    def advice(self) -> str:
        """What to do if its command was killed."""
        command = f"crawler reshard --crawl {self.crawl}"
        option = "--cancel" if self.cancelled else f"--shards {self.after}"
        again = f"if that was interrupted, run `{command} {option}` again"
        return again if self.cancelled or self.switched else f"{again}, or undo it with `{command} --cancel`"


RESHARD_FIELDS = ("shards", "former", "resharding", "reshard_may_switch", "reshard_progress")


def reshard_progress(
    crawl: str, shards: bytes, former: bytes | None, after: bytes | None, may_switch: bytes | None, report: bytes | None
) -> ReshardProgress | None:
    """The progress of a reshard, from the fields `RESHARD_FIELDS` of a crawl's `meta` key; None if there is none."""
    if not after:
        return None
    done, total, *_ = map(int, (report or b"0 0").split()[:2])
    return ReshardProgress(int(former or shards), int(after), done, total, not may_switch, crawl, bool(former))


class Crawl(msgspec.Struct, frozen=True):
    """The `meta` key of a crawl. `settings`: in the caller's format; `revision`: how many times it was written."""

    name: str
    shards: int
    fingerprint_key: bytes
    settings: bytes
    revision: int
    created: bool  # by this call
    last_tokens: tuple[int, ...] = ()  # of each former layout
    resharding: ReshardProgress | None = None
    former: int = 0  # the number of shards of the former layout while its keys are still there
    reshard_claims: int = 0  # how often a command has begun, continued or undone a reshard
    local: frozenset[str] = frozenset()  # tables of settings that replicas had on their machines: see `mark_local`

    @property
    def left(self) -> str:
        """What is left of its last reshard, and how it is removed; "" for nothing."""
        if not self.former or self.resharding:
            return ""
        return (
            f"keys of the former {self.former:,} shards are being removed; if that was interrupted, run `crawler reshard "
            f"--crawl {self.name} --shards {self.shards}` again"
        )

    @property
    def keys(self) -> CrawlKeys:
        return self.keys_of(self.last_tokens, self.shards)

    def keys_of(self, last_tokens: tuple[int, ...], shards: int) -> CrawlKeys:
        """The keys of the layout after those with `last_tokens`, which has `shards` shards."""
        key = self.fingerprint_key.hex()
        identity = f"{key}:{last_tokens[-1]}" if last_tokens else key
        return _keys(self.name, shards, identity, last_tokens)


_keys = lru_cache(maxsize=4)(CrawlKeys)
"""Built once: with the most shards, this takes a twentieth of a second."""


async def create_crawl(store: Store, name: str, shards: int, settings: bytes) -> Crawl:
    """Create the crawl `name`, or open it if it exists. An existing crawl keeps its shards and settings.

    All shards get its identity before the crawl exists. Raises BadInput for an unusable name or shard count, SchemaMismatch
    for keys of another version, CrawlLost if only shards are left of a crawl of that name, RedisAway.
    """
    check_crawl_name(name)
    store.keep_time_by(meta_key(name))
    if not 1 <= shards <= MOST_SHARDS:
        raise BadInput(f"{shards} shards: use 1 to {MOST_SHARDS}")
    return await _create(store, name, shards, settings, has_shards=True)


async def recreate_crawl(store: Store, name: str, shards: int, settings: bytes) -> Crawl:
    """Create a crawl again of which Redis has lost everything, or a cluster the node of the control keys. Shards that are
    left keep what they have, and the crawl their identity. The others count as lost, for `frontier.repair` to restore.
    Raises what `create_crawl` raises."""
    return await _create(store, name, shards, settings, has_shards=False)


async def _surviving_identity(store: Store, name: str, shards: int) -> tuple[str, str]:
    """The fingerprint key in the shards of `name` that Redis still has, "" if there are none, and the last token of the
    layout before theirs, "" for the first layout. Raises BadInput unless the crawl may have had `shards` shards, and
    CrawlLost if they are of several crawls."""
    first = CrawlKeys(name, shards)
    # All are looked for, because the shards of a later layout have a number in their keys that is not known.
    stats = {key async for page in found_keys(store, first, "stats") for key in page}
    found = await ask(store, [command("HGET", key, "crawl") for key in stats])
    shards_of: dict[tuple[str, str], list[int]] = {}
    for key, identity in zip(stats, found, strict=True):
        if identity:  # "key", or "key:token", with ":moved" or ":repair" at the end
            fingerprint_key, *more = identity.decode().split(":")
            token = more[0] if more and more[0].isdecimal() else ""
            shards_of.setdefault((fingerprint_key, token), []).append(shard_number(key))
    if len({fingerprint_key for fingerprint_key, _ in shards_of}) > 1:
        raise CrawlLost(
            f"Redis has shards of several crawls named {name!r}; remove all keys of those that nobody needs"
        )
    latest = max(shards_of, key=lambda identity: int(identity[1] or 0), default=("", ""))
    highest = max(shards_of.get(latest, [0]))
    if highest >= shards:
        raise BadInput(
            f"crawl {name!r} had at least {highest + 1:,} shards, not {shards:,}: name the output folder that has its "
            "latest settings, or set frontier.shards"
        )
    return latest


async def _create(store: Store, name: str, shards: int, settings: bytes, has_shards: bool) -> Crawl:
    with contextlib.suppress(NoSuchCrawl):
        return await open_crawl(store, name)
    key, last_token = ("", "") if has_shards else await _surviving_identity(store, name, shards)
    if not key:
        # The first to come chooses the key, and all who create the crawl at the same time use it.
        key = secrets.token_hex(16)
        draft = CrawlKeys(name, shards).draft
        (earlier,) = await store.send([command("SET", draft, key, "NX", "GET")])
        key = earlier.decode() if earlier else key
    if has_shards:
        await identify_shards(store, CrawlKeys(name, shards, key), range(shards))
    fields: dict[str, str | bytes] = {
        "schema": str(SCHEMA),
        "shards": str(shards),
        "fingerprint_key": key,
        "settings": settings,
        "revision": "1",
        **({"last_tokens": last_token} if last_token else {}),
    }
    call = script_call(CREATE_CRAWL, [meta_key(name)], *chain.from_iterable(fields.items()))
    (reply,) = await store.send([call])
    crawl = _crawl(name, reply[1:], created=reply[0] == b"created")
    if crawl.created:
        with contextlib.suppress(FrontierError):  # the first look begins to count
            await forget_evictions(store, crawl.keys)
    return crawl


async def open_crawl(store: Store, name: str, for_reshard: bool = False) -> Crawl:
    """Open an existing crawl. Raises NoSuchCrawl, SchemaMismatch, RedisAway, and Resharding except `for_reshard`."""
    check_crawl_name(name)
    store.keep_time_by(meta_key(name))
    (fields,) = await store.send([command("HGETALL", meta_key(name))])
    if not fields:
        raise NoSuchCrawl(f"no crawl named {name!r} here; create it with `crawler seed`")
    crawl = _crawl(name, fields, created=False)
    if crawl.resharding and not for_reshard:
        raise Resharding(name, crawl.resharding, crawl.resharding.advice)
    return crawl


async def crawl_clock(store: Store, crawl: Crawl) -> ServerClock:
    """A clock that shows the crawl time of `crawl`, for commands. Raises RedisAway."""
    clock = ServerClock(SystemClock(), crawl_ms(store, crawl.keys.peers))
    await clock.refresh()
    return clock


async def verify_crawl(store: Store, crawl: Crawl) -> None:
    """Raises CrawlLost or CrawlResharded unless Redis has `crawl` with the same key and layout, and RedisAway."""
    fields = command("HMGET", meta_key(crawl.name), "fingerprint_key", "last_tokens", "resharding")
    ((found, last_tokens, resharding),) = await store.send([fields])
    if text_in(found) != crawl.fingerprint_key.hex():
        raise CrawlLost(
            f"crawl {crawl.name!r} is gone from Redis, which has lost its data or was cleared; "
            "restore the data, or the crawl from its output with `crawler repair` (and enable persistence: appendonly yes)"
        )
    if resharding or tokens_of(last_tokens) != crawl.last_tokens:
        raise CrawlResharded(
            f"the number of shards of crawl {crawl.name!r} is being changed, or was changed since it was opened"
        )


_LOCAL = "local "
"""How the fields of `meta` begin that say which local tables replicas had."""


async def mark_local(store: Store, crawl: Crawl, tables: Collection[str]) -> None:
    """Remember that a replica has started with these `tables` of its own machine, for commands that lack them. Raises
    RedisAway."""
    if new := set(tables) - crawl.local:
        words = [word for table in sorted(new) for word in (_LOCAL + table, 1)]
        await store.send([command("HSET", crawl.keys.meta, *words)])


_SUFFIX_LIST = "suffix_list"


async def compare_suffix_list(store: Store, crawl: Crawl) -> str:
    """Remember the Public Suffix List of this replica. Returns how that of the last one differs, or "". Raises
    RedisAway."""
    here = suffix_list_mark()
    (there,) = await store.send([command("HGET", crawl.keys.meta, _SUFFIX_LIST)])
    if there == here.encode():
        return ""
    await store.send([command("HSET", crawl.keys.meta, _SUFFIX_LIST, here)])
    digest, _, date = text_in(there).partition(" ")
    if not digest or digest == here.partition(" ")[0]:
        return ""
    return (
        f"the Public Suffix List is {here.partition(' ')[2]}, and another replica of crawl {crawl.name!r} used {date}: "
        "URLs whose domain differs may be fetched twice, so give all replicas the same list"
    )


_EVICTED = "evicted"


async def evicted_keys(store: Store, keys: CrawlKeys) -> int:
    """Return how many keys the server has evicted since the crawl was created or last restored, of whatever crawl, also if
    it evicts none any more. Remember them, because its counter begins again when it restarts. Raises RedisAway."""
    counter = await _evictions(store)
    ((known, exists),) = await store.send([command("HMGET", keys.meta, _EVICTED, "fingerprint_key")])
    if not exists:  # it may be among them
        return counter
    before, evicted = map(count_in, known.split(b" ")) if known and known.count(b" ") == 1 else (counter, 0)
    evicted += counter - before if counter >= before else counter
    if known != (now := f"{counter} {evicted}".encode()):
        with contextlib.suppress(FrontierError):  # a later reader remembers it
            await store.send([command("HSET", keys.meta, _EVICTED, now)])
    return evicted


async def forget_evictions(store: Store, keys: CrawlKeys) -> None:
    """Count evicted keys from now on, because the crawl has all of its own. Raises RedisAway."""
    await store.send([command("HSET", keys.meta, _EVICTED, f"{await _evictions(store)} 0")])


async def _evictions(store: Store) -> int:
    """How many keys the server has evicted since its start, or the node of a cluster that tells the time."""
    (reply,) = await store.send([Call(("INFO", "stats"))])
    return int(fields(reply).get("evicted_keys", 0))


async def save_settings(store: Store, crawl: Crawl, settings: bytes) -> int:
    """Replace the settings that `crawl` was opened with. Returns the revision. Raises SettingsOutdated and RedisAway."""
    (reply,) = await store.send([script_call(SAVE_SETTINGS, [crawl.keys.meta], settings, crawl.revision)])
    if reply[0] == b"outdated":
        raise SettingsOutdated(
            f"another command has changed the settings of crawl {crawl.name!r} meanwhile; nothing was changed by this "
            "one: repeat it to compare again"
        )
    return int(reply[1])


def _crawl(name: str, fields: Reply, created: bool) -> Crawl:
    meta = {text_in(key): value for key, value in zip(fields[::2], fields[1::2], strict=True)}
    try:
        if (schema := int(meta["schema"])) != SCHEMA:
            raise SchemaMismatch(
                f"crawl {name!r} was written with key schema {schema}, this version uses {SCHEMA}; "
                "run the version that created it, or start a crawl with another name"
            )
        return Crawl(
            name=name,
            shards=int(meta["shards"]),
            fingerprint_key=bytes.fromhex(meta["fingerprint_key"].decode()),
            settings=meta["settings"],
            revision=count_in(meta.get("revision")) or 1,
            created=created,
            last_tokens=tokens_of(meta.get("last_tokens")),
            resharding=reshard_progress(name, meta["shards"], *map(meta.get, RESHARD_FIELDS[1:])),
            former=count_in(meta.get("former")),
            reshard_claims=count_in(meta.get("reshard_claims")),
            local=frozenset(field.removeprefix(_LOCAL) for field in meta if field.startswith(_LOCAL)),
        )
    except (ValueError, KeyError) as error:
        raise RedisMisused(
            f"somebody else has written to {meta_key(name)} in Redis, and it cannot be read ({error}); stop the crawl, "
            "delete that key, and run `crawler repair --evicted`"
        ) from error


def check_new_shards(before: int, after: int) -> None:
    """Raises BadInput unless a crawl with `before` shards can get `after`."""
    if not 1 <= after <= MOST_SHARDS:
        raise BadInput(f"{after:,} shards: use 1 to {MOST_SHARDS:,}")
    if after == before:
        raise BadInput(f"the crawl has {before:,} shards already")
    if before % after and after % before:
        fewer = max((number for number in range(1, min(before, after)) if before % number == 0), default=1)
        more = max(2, min(-(-after // before), MOST_SHARDS // before)) * before
        such = f", such as {more:,}" if more <= MOST_SHARDS else ""
        raise BadInput(
            f"{after:,} shards: use a multiple of {before:,}{such}, or a number that divides it, such as {fewer:,}; for "
            "others, two commands are needed"
        )
