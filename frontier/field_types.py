"""The types of the fields of data sets, as all replicas of a crawl agree on them: the first one that a replica offers.
Whole numbers may become decimal ones later.

They are in one hash of the crawl. A replica remembers what it has read (`crawler.worker.item_type_check`), so most
pages cost no call, and a crawl without data sets none at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from frontier.redis_keys import CrawlKeys
from frontier.scripts import KEEP_TYPES
from frontier.store import Store, command, pairs, script_call

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
        """Return the types that are kept."""
        (reply,) = await self._store.send([command("HGETALL", self._key)])
        flat = [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else reply
        return {_parsed(name): kind for name, kind in pairs(flat).items()}

    async def keep(self, offered: Types) -> dict[tuple[str, str], str]:
        """Keep the `offered` types of fields that have none. Returns the types that all of them have from now on, without
        those that are not kept."""
        names = [name for name in offered if len(name[1]) <= LONGEST_FIELD]
        calls = [
            script_call(KEEP_TYPES, [self._key], MOST_FIELDS, *_words(offered, names[at : at + CHUNK]))
            for at in range(0, len(names), CHUNK)
        ]
        replies = await self._store.send(calls) if calls else []
        kinds = [kind.decode() for reply in replies for kind in reply[1:]]
        return {name: kind for name, kind in zip(names, kinds, strict=True) if kind}

    async def forget(self, data_set: str) -> int:
        """Forget the types of the fields of `data_set`. Returns their number."""
        names = [f"{name}\n{field}" for name, field in await self.read() if name == data_set]
        if names:
            await self._store.send([command("HDEL", self._key, *names)])
        return len(names)


def _words(offered: Types, names: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name in names:
        yield "\n".join(name)
        yield offered[name]


def _parsed(name: str) -> tuple[str, str]:
    data_set, _, field = name.partition("\n")
    return data_set, field
