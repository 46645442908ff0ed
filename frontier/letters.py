"""Dead letters: the URLs that ended without a page though the crawl wanted them. They can be listed and queued again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from frontier.entries import parse_entry
from frontier.keys import CrawlKeys
from frontier.scripts import REQUEUE
from frontier.store import Store, command, pairs, run

SCAN_COUNT = 200
REQUEUE_CHUNK = 500
"""Letters a call: it runs for about 1 ms."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead URL. `reason`: one word, the same as in the books; `entry`: its text in the frontier."""

    shard: int
    domain: str
    entry: str
    reason: str

    @property
    def url(self) -> str:
        return parse_entry(self.entry, self.domain, 0.0).url


class DeadLetters:
    """The dead letters of the crawl that `keys` name."""

    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._keys = keys

    async def find(self, domain: str | None = None, reason: str | None = None) -> AsyncIterator[DeadLetter]:
        """All letters, or those of `domain` or with `reason`, in no order. Reads in small parts; a letter that comes or
        goes meanwhile may be missed or told twice. Raises RedisAway."""
        for shard, keys in enumerate(self._keys.shards):
            cursor = 0
            while True:
                (reply,) = await self._store.send([command("HSCAN", keys.dead, cursor, "COUNT", SCAN_COUNT)])
                flat = [part for pair in reply[1].items() for part in pair] if isinstance(reply[1], dict) else reply[1]
                for key, why in pairs(flat).items():
                    of, _, entry = key.partition("\n")
                    if domain in (None, of) and reason in (None, why):
                        yield DeadLetter(shard, of, entry, why)
                cursor = int(reply[0])
                if cursor == 0:
                    break

    async def requeue(self, letters: Iterable[DeadLetter], now_ms: int, priority: float = 0.0) -> int:
        """Queue `letters` again; returns how many were still dead. Sending one twice is harmless. Raises RedisAway."""
        by_shard: dict[int, list[DeadLetter]] = defaultdict(list)
        for letter in letters:
            by_shard[letter.shard].append(letter)
        calls = []
        for shard, of_shard in by_shard.items():
            keys = self._keys.shards[shard]
            for at in range(0, len(of_shard), REQUEUE_CHUNK):
                words = [word for letter in of_shard[at : at + REQUEUE_CHUNK] for word in (letter.domain, letter.entry)]
                calls.append(run(REQUEUE, (keys.due, keys.leases, keys.stats, keys.dead), now_ms, priority, *words))
        replies = await self._store.send(calls) if calls else []
        return sum(int(reply[1]) for reply in replies)
