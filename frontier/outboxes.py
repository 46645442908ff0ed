"""The outbox of a shard: links of its pages that belong to shards whose nodes are away.

The links of a page have to be in the frontier before the page is settled. While the node of a link's shard is away, the
link is kept with the shard of the page instead. When the node is back, the owner of the page's shard pushes the link and
then removes it from the outbox. If it dies in between, the link is pushed twice, which changes nothing.

For the end of the crawl, a link in an outbox counts as an open URL of the shard that has the outbox
(`frontier.counters`). Its memory is what the link would take in its own queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from frontier.entries import Entry, PushMode, parse_entry
from frontier.keys import CrawlKeys
from frontier.scripts import ADD_TO_OUTBOX, REMOVE_FROM_OUTBOX, Call, command
from frontier.shards import send_to_shards, shard_call
from frontier.store import Store, batched

OUTBOX_LINKS = 20_000
"""The most links in one outbox: about 3 MB. The pages of a shard whose outbox is full wait until there is room."""

LINKS_A_CALL = 250
"""As many as URLs in a push call (`queue.PUSH_CHUNK`)."""


_MODES: dict[str, PushMode] = {mode: mode for mode in get_args(PushMode)}


class KeptLink(msgspec.Struct, frozen=True):
    """A link in the outbox of `shard`. `target`: the shard where it belongs; `member`: how it is stored."""

    shard: int
    target: int
    member: bytes

    @property
    def entry(self) -> Entry:
        mode, domain, priority, raw = self.member.decode().split("\n", 3)
        return msgspec.structs.replace(parse_entry(raw, domain, float(priority)), mode=_MODES[mode])


class Outboxes:
    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._keys = keys
        self._was_used = False

    async def keep(self, links: Mapping[int, Sequence[tuple[int, Entry]]]) -> set[int]:
        """Put `links` into the outboxes: by shard of the page, the shard where each belongs and the link. Returns the
        shards whose outboxes were full; some of their links may be missing. Raises RedisAway and ShardLost."""
        calls = [
            (shard, self._keep_call(shard, part))
            for shard, of_shard in links.items()
            for part in batched(of_shard, LINKS_A_CALL)
        ]
        self._was_used = self._was_used or bool(calls)
        replies = await send_to_shards(self._store, self._keys, calls)
        return {shard for (shard, _), reply in zip(calls, replies, strict=True) if reply[0] == b"full"}

    def take_use(self) -> bool:
        """Whether links were put into an outbox since the last call."""
        was_used, self._was_used = self._was_used, False
        return was_used

    def _keep_call(self, shard: int, links: Sequence[tuple[int, Entry]]) -> Call:
        arguments: list[str | int] = [OUTBOX_LINKS]
        for target, link in links:
            arguments += (target, f"{link.mode}\n{link.domain}\n{link.priority!r}\n{link.raw}")
        return shard_call(ADD_TO_OUTBOX, self._keys, shard, *arguments)

    async def filled(self, shards: Sequence[int]) -> list[int]:
        """Those of `shards` whose outboxes are not empty. Raises RedisAway."""
        calls = [command("EXISTS", self._keys.shards[shard].outbox) for shard in shards]
        replies = await self._store.send(calls)
        return [shard for shard, found in zip(shards, replies, strict=True) if found]

    async def read(self, starts: Mapping[int, int], at_most: int) -> list[list[KeptLink]]:
        """For each shard in `starts`, up to `at_most` links in its outbox that belong to the shard with the number in
        `starts` or to later ones, ordered by that shard. Raises RedisAway."""
        calls = [
            command(
                *("ZRANGE", self._keys.shards[shard].outbox, start, "+inf"),
                *("BYSCORE", "LIMIT", 0, at_most, "WITHSCORES"),
            )
            for shard, start in starts.items()
        ]
        replies = await self._store.send(calls)
        return [
            [KeptLink(shard, int(float(target)), member) for member, target in zip(flat[::2], flat[1::2], strict=True)]
            for shard, flat in zip(starts, replies, strict=True)
        ]

    async def deliver(self, links: Sequence[KeptLink]) -> None:
        """Remove `links`, which were pushed. Raises RedisAway and ShardLost."""
        members: dict[int, list[bytes]] = {}
        for link in links:
            members.setdefault(link.shard, []).append(link.member)
        calls = [
            (shard, shard_call(REMOVE_FROM_OUTBOX, self._keys, shard, *part))
            for shard, of_shard in members.items()
            for part in batched(of_shard, LINKS_A_CALL)
        ]
        await send_to_shards(self._store, self._keys, calls)
