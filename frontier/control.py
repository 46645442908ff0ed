"""What operators tell all replicas of a crawl: pause, resume, stop, rules for single domains, and retries.

Each replica polls about once a second, with one small read. The rules for domains are read again only if their version
number has changed. The same read returns the revision of the crawl's settings, so that a replica knows when to read them
again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import msgspec

from frontier.crawls import RESHARD_FIELDS, ReshardProgress, reshard_progress
from frontier.domains import forgotten_mark
from frontier.keys import CrawlKeys, tokens_of
from frontier.lookup import escaped
from frontier.scripts import RETRY_NOW, command, script_call
from frontier.store import Store, batched, count_in, pairs, scan, text_in

BEGUN = "begun"
"""The value of a rule to forget a domain until its shard has nothing of it any more."""


def _is_delay(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return 0 <= float(text) < float("inf")
    return False  # somebody else has written it


class DomainRules(msgspec.Struct, frozen=True):
    """Rules for single domains, set by an operator. `delays`: seconds, which replace the crawl's own delay. `forgotten`:
    the marks of domains that were forgotten and stay blocked; `half_forgotten`: those of them of which shards may still
    have something, because that was not completed."""

    blocked: frozenset[str] = frozenset()
    delays: dict[str, float] = msgspec.field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    half_forgotten: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, fields: dict[str, str]) -> DomainRules:
        """Parse the fields of the hash: "block DOMAIN", "delay DOMAIN" -> seconds, and "forget MARK"."""
        rules = {(name.partition(" ")[0], name.partition(" ")[2]): value for name, value in fields.items()}
        return cls(
            blocked=frozenset(domain for kind, domain in rules if kind == "block"),
            delays={
                domain: float(value) for (kind, domain), value in rules.items() if kind == "delay" and _is_delay(value)
            },
            forgotten=frozenset(mark for kind, mark in rules if kind == "forget"),
            half_forgotten=frozenset(mark for (kind, mark), value in rules.items() if value == BEGUN),
        )

    def is_blocked(self, domain: str) -> bool:
        return domain in self.blocked or (bool(self.forgotten) and self.is_forgotten(domain))

    def is_forgotten(self, domain: str) -> bool:
        """Whether `domain` was forgotten, so that nothing may be stored of it."""
        return bool(self.forgotten) and forgotten_mark(domain) in self.forgotten

    def is_half_forgotten(self, domain: str) -> bool:
        """Whether `domain` is being forgotten, or the command that does it was interrupted."""
        return bool(self.half_forgotten) and forgotten_mark(domain) in self.half_forgotten


class Control:
    """The control keys of a crawl: a hash of state and version, and a hash of rules. `settings_revision`: revision of the
    settings that replicas must apply; `seedings`: how often URLs were seeded. Both are from the last `refresh`, and 0
    before the first. `resharding`: how far a reshard of the crawl is, None if there is none; `has_other_shards`: the crawl
    has another layout of shards than `keys`, or is being given one. `limit`: the setting whose limit the crawl has reached,
    with its latest settings, "" for none. `wanted`: domains for which others than `replica` wait
    (`frontier.reservations`)."""

    def __init__(self, store: Store, keys: CrawlKeys, replica: str = "") -> None:
        self._store = store
        self._replica = replica
        self._keys = keys
        self._version: bytes | None = None
        self.state = "run"
        self.settings_revision = 0
        self.seedings = 0
        self.limit = ""
        self.wanted: frozenset[str] = frozenset()
        self.resharding: ReshardProgress | None = None
        self.has_other_shards = False
        self.rules = DomainRules()

    @property
    def paused(self) -> bool:
        return self.state == "pause"

    @property
    def stopped(self) -> bool:
        return self.state == "stop"

    async def refresh(self) -> None:
        words = command("HMGET", self._keys.control, "state", "version", "seedings", "limit")
        about = command("HMGET", self._keys.meta, "revision", "last_tokens", *RESHARD_FIELDS)
        wanted_now = command("ZRANGE", self._keys.wanted, 0, -1)
        answers = await self._store.send([words, about, wanted_now])
        (state, version, seedings, limit), (revision, tokens, *fields), wanted = answers
        wants = (text_in(want).partition(" ") for want in wanted)
        self.wanted = frozenset(domain for domain, _, replica in wants if not replica or replica != self._replica)
        self.state = text_in(state) or "run"
        self.seedings = count_in(seedings)
        self.settings_revision = count_in(revision) or 1
        name, _, limit_revision = text_in(limit).partition(" ")
        self.limit = name if limit_revision == str(self.settings_revision) else ""
        self.resharding = reshard_progress(self._keys.crawl, *fields)
        self.has_other_shards = bool(self.resharding) or tokens_of(tokens) != self._keys.last_tokens
        if version != self._version:
            (reply,) = await self._store.send([command("HGETALL", self._keys.domains)])
            self.rules, self._version = DomainRules.parse(pairs(reply)), version

    async def seeded(self) -> None:
        """Notify all replicas that URLs were seeded. Links that were out of scope may be in scope from now on."""
        await self._store.send([command("HINCRBY", self._keys.control, "seedings", 1)])

    async def reach_limit(self, name: str, revision: int) -> None:
        """Have all replicas end, because the crawl has reached the limit `name` in the settings of `revision`."""
        await self._store.send([command("HSET", self._keys.control, "limit", f"{name} {revision}")])

    async def set(self, state: str) -> None:
        await self._store.send([command("HSET", self._keys.control, "state", state)])
        self.state = state

    async def block(self, *domains: str) -> None:
        """Stop fetching from `domains`, all of them or none. Their URLs are settled as denied when they are leased."""
        await self._write("HSET", *(word for domain in domains for word in (f"block {domain}", "1")))

    async def forget(self, domain: str) -> None:
        """Block `domain` for good, without its name being stored."""
        await self._write("HSET", f"forget {forgotten_mark(domain)}", BEGUN)
        await self._write("HDEL", f"block {domain}", f"delay {domain}")

    async def forgot(self, domain: str) -> None:
        """Note that the shards have nothing of `domain` any more, which was forgotten."""
        await self._write("HSET", f"forget {forgotten_mark(domain)}", "1")

    async def restore_forgotten(self, marks: Collection[str]) -> None:
        """Block the domains with these `marks` for good."""
        await self._write("HSET", *(word for mark in marks for word in (f"forget {mark}", "1")))

    async def unblock(self, domain: str) -> None:
        """Undo `block`. URLs that were denied meanwhile are not fetched again."""
        await self._write("HDEL", f"block {domain}")

    async def set_delay(self, domain: str, seconds: float | None) -> None:
        """Set the delay between requests to `domain`, in seconds. None: use the crawl's delay again."""
        if seconds is None:
            await self._write("HDEL", f"delay {domain}")
        else:
            await self._write("HSET", f"delay {domain}", repr(float(seconds)))

    async def show_delay(self, domain: str, delay_ms: int) -> None:
        """Replace the delay that is stored for `domain`, unless that was never queued."""
        key = self._keys.of(domain).domain(domain)
        (is_known,) = await self._store.send([command("HEXISTS", key, "accepted")])
        if is_known:
            await self._store.send([command("HSET", key, "delay", delay_ms)])

    async def _write(self, verb: str, *words: str) -> None:
        # In this order: a replica that polls in between reads the new rules with the old version, and then reads them
        # again.
        await self._store.send([command(verb, self._keys.domains, *words)])
        await self._store.send([command("HINCRBY", self._keys.control, "version", 1)])


SCAN_COUNT = 2_000
"""Waiting URLs of a shard that are searched in one call, which takes about 2 ms."""

RETRIED_AT_ONCE = 500
"""Waiting URLs that one call makes ready, which then takes about 1 ms."""


class RetryReply(msgspec.Struct, frozen=True):
    """`ready`: URLs that no longer wait; `queued`: others; `is_held`: the domain is requested now, its backoff stays."""

    ready: int
    queued: int
    is_held: bool


async def retry_now(store: Store, keys: CrawlKeys, domain: str, now_ms: int, delay_ms: int) -> RetryReply:
    """End the backoff of `domain`, and have its waiting URLs tried now. `delay_ms`: of a domain without one. May be
    repeated. Raises RedisAway."""
    shard = keys.of(domain)
    found: set[bytes] = set()
    async for page in scan(store, "ZSCAN", shard.waiting, "MATCH", f"{escaped(domain)}\n*", "COUNT", SCAN_COUNT):
        found.update(page[::2])
    members = sorted(found)
    names = (shard.due, shard.leases, shard.waiting, shard.domain(domain))
    calls = [
        script_call(RETRY_NOW, names, domain, now_ms, delay_ms, *part)
        for part in (batched(members, RETRIED_AT_ONCE) if members else ((),))
    ]
    *replies, queued = await store.send([*calls, command("ZCARD", shard.queue(domain))])
    return RetryReply(sum(int(reply[1]) for reply in replies), queued, replies[-1][0] == b"held")
