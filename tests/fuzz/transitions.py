"""Random transitions of the frontier with odd arguments: whatever is pushed, leased, settled, reserved or given back, the
counters add up after each, and no call ends in an error of the script."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from frontier.clock import ServerClock
from frontier.control import retry_now
from frontier.counters import Counters
from frontier.crawls import Crawl, FieldTypes
from frontier.domains import shard_of
from frontier.entries import Entry, PushMode
from frontier.errors import BadUrl
from frontier.forget import Forgetting
from frontier.keys import CrawlKeys
from frontier.known_pages import pages_in, refresh_domain, rest_of_record
from frontier.packing import First, Packer, Queue, Sizes, rows_of
from frontier.queue import Frontier, FrontierSettings
from frontier.reservations import Reservation, Reservations
from frontier.scripts import RESTORE_VISITS, SAVE_ROBOTS, Call, Reply, command, script_call
from frontier.settle import Counted, Lease, SettledUrl, Settlement, postpone, retry, with_next_visit
from frontier.shards import identify_shards
from frontier.store import RedisStore, connect
from frontier.urls import canonicalize
from politeness.rate_limit import RateLimitPolicy, SharedRateLimiter
from tests.frontier.helpers import ManualTime
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS
from tests.valkey import ValkeyProcess

SHARDS = 2
CHECK_EVERY = 25
FORGOTTEN = "d5.test"
_URL = next(target for target in TARGETS if target.name == "url")
_STATES = ("", "1 2 3 x", "\n", "é" * 50, "-1", "nil", "%s")


class Machine:
    """A frontier under random calls."""

    def __init__(self, store: RedisStore, time: ManualTime, clock: ServerClock, rng: random.Random) -> None:
        keys = CrawlKeys("fuzz", SHARDS, b"key".hex())
        self._store, self._time, self._rng, self._keys = store, time, rng, keys
        settings = FrontierSettings(
            lease_ms=500,
            batch=rng.choice((1, 3)),
            domain_cap=40,
            pack_above=rng.choice((0, 2, 20)),
            known_share=rng.choice((None, 0.5)),
        )
        self._frontier = Frontier(store, keys, clock, settings, b"key")
        self._reservations = Reservations(store, keys, clock, hold_ms=300, delay_ms=100)
        self._limiter = SharedRateLimiter(
            store, keys, time, clock, RateLimitPolicy(rng.choice((0.1, 7.7, 1e6)), rng.randint(1, 9))
        )
        self._leases: list[Lease] = []
        self._sent: list[Call] = []  # pack and unpack calls, to be repeated
        self._held: list[Reservation] = []
        self.counters = Counters(store, keys)
        self.has_forgotten = False

    def _entry(self) -> Entry | None:
        rng = self._rng
        text = mutated(_URL.seeds, _URL.tokens, rng).decode("utf-8", "replace")
        try:
            url = canonicalize(text, f"https://d{rng.randrange(6)}.test/")
        except BadUrl:
            return None
        priority = rng.choice((0.0, -1e300, 1e-300, 0.1, float("inf")))
        depth, tries, hops = rng.choice((0, 1, 255, 999)), rng.randrange(20), rng.randrange(20)
        mode: PushMode = rng.choice(("new", "new", "again", "moved", "requisite", "requisite"))
        return Entry(url.href, url.domain, priority, depth, tries, hops, mode=mode)

    async def step(self) -> None:
        """One transition."""
        self._time.ms += self._rng.choice((0, 1, 40, 700))
        await self._rng.choice(
            (
                *(self._push, self._lease, self._settle, self._release, self._repack),
                *(self._reserve, self._ask_gate, self._save_robots, self._retry_now, self._forget, self._refresh),
                *(self._keep_types, self._restore_visits),
            )
        )()

    async def _push(self) -> None:
        made = [self._entry() for _ in range(self._rng.randint(0, 12))]
        await self._frontier.push([entry for entry in made if entry])

    async def _repack(self) -> None:
        """Pack or unpack a part of a queue, whatever its size, or repeat an earlier call."""
        rng = self._rng
        shard = rng.randrange(SHARDS)
        keys, domain = self._keys.shards[shard], f"d{rng.randrange(6)}.test"
        size, packed, blocks = await self._store.send(
            [
                command("ZCARD", keys.queue(domain)),
                command("HGET", keys.domain(domain), "packed"),
                command("ZRANGE", keys.blocks(domain), 0, -1),
            ]
        )
        noting = _Noting(self._store, self._sent)
        packer = Packer(noting, self._keys, lambda: self._time.ms)  # type: ignore[arg-type]
        if self._sent and rng.random() < 0.3:
            await self._store.send([rng.choice(self._sent)])
        elif blocks and rng.random() < 0.5:
            name = rng.choice(blocks).decode()
            (contents,) = await self._store.send([command("GET", keys.block(name, domain))])
            await packer.unpack([First(shard, domain, int(packed), name, contents)], Sizes(rng.choice((0, 2, 40)), 1))
        elif size:
            await packer.pack([Queue(shard, domain, size, int(packed or 0))], Sizes(rng.choice((2, 20)), 0))

    async def _lease(self) -> None:
        epoch, replica = self._rng.choice(((1, "a"), (2, "a"), (2, "b")))
        leased, _ = await self._frontier.lease(range(SHARDS), epoch, replica, self._rng.randint(0, 4))
        self._leases += [lease for answer in leased for lease in answer.leases]

    def _settlement(self) -> Settlement | None:
        rng = self._rng
        if not self._leases:
            return None
        lease = rng.choice(self._leases)  # old ones too: stale tokens and doubled calls
        next_ms = self._time.ms + rng.choice((-5, 0, 10, 5_000))
        told = Settlement(
            lease,
            next_ms,
            rng.choice((None, 0, 10**9)),
            rng.choice(_STATES),
            counted=Counted(received_bytes=rng.choice((0, 2**40))),
        )
        for entry in lease.entries[: rng.randint(0, 3)]:
            reason = rng.choice(("ok", "http_500", "é:\n"))
            again = (retry(entry, reason, next_ms, entry.priority - 1), postpone(entry, reason, next_ms))
            ends = [SettledUrl(entry, outcome, reason) for outcome in ("done", "dead", "denied")]
            if self._frontier.settings.known_share is not None:
                due_ms = rng.choice((None, next_ms, self._time.ms + 700))
                ends.append(
                    with_next_visit(ends[0], rng.choice(("new", "changed")), due_ms, rng.choice(("00", "200a2f61ff")))
                )
            told.urls.append(rng.choice((*ends, *again)))
        return told

    async def _settle(self) -> None:
        if told := self._settlement():
            await self._frontier.settle([told, told] if self._rng.random() < 0.3 else [told])

    async def _release(self) -> None:
        if told := self._settlement():
            await self._frontier.release([told])

    async def _reserve(self) -> None:
        if self._held and self._rng.random() < 0.5:
            await self._reservations.end(self._rng.choice(self._held), self._time.ms + self._rng.choice((-9, 0, 300)))
            return
        answer = await self._reservations.reserve(f"d{self._rng.randrange(8)}.test", self._rng.choice((0, 1_000)))
        if isinstance(answer, Reservation):
            self._held.append(answer)

    async def _ask_gate(self) -> None:
        wait_s = await self._limiter.reserve(self._rng.choice(("192.0.2.1", "2001:db8::/64", "", "{x}", "\n")))
        assert wait_s is None or 0 <= wait_s <= 21

    async def _forget(self) -> None:
        """At the first of these calls that counts, a domain is gone, and stays away."""
        if self._rng.random() < 0.1:
            crawl = Crawl("fuzz", SHARDS, b"key", b"{}", 1, created=False)
            await Forgetting(self._store, crawl, self._frontier, FORGOTTEN).purge(durable_s=0.0)
            self.has_forgotten = True

    async def _refresh(self) -> None:
        await refresh_domain(self._store, self._keys, f"d{self._rng.randrange(6)}.test", self._time.ms)

    async def _restore_visits(self) -> None:
        """Repeated, it changes nothing."""
        made = [self._entry() for _ in range(self._rng.randint(0, 5))]
        pages = [
            msgspec.structs.replace(entry, visit=self._rng.choice(("00", "200a2f61ff"))) for entry in made if entry
        ]
        due_s = self._time.ms // 1000 + self._rng.choice((0, 1))
        for entry in pages:
            keys = self._keys.shards[shard_of(entry.domain, SHARDS)]
            words = (entry.domain, due_s, rest_of_record(entry))
            call = script_call(RESTORE_VISITS, (keys.stats, keys.base), self._keys.identity, *words)
            assert (await self._store.send([call, call]))[1] == [b"restored", 0]

    async def _retry_now(self) -> None:
        """A domain is then due no later than its delay from now, unless it is leased or reserved."""
        domain = f"d{self._rng.randrange(6)}.test"
        delay_ms = self._rng.choice((0, 700))
        reply = await retry_now(self._store, self._keys, domain, self._time.ms, delay_ms)
        shard = self._keys.shards[shard_of(domain, SHARDS)]
        due, own = await self._store.send(
            [command("ZSCORE", shard.due, domain), command("HGET", shard.domain(domain), "delay")]
        )
        if due is not None and not reply.is_held:
            assert float(due) <= self._time.ms + int(own or delay_ms)

    async def _keep_types(self) -> None:
        """A type stays, becomes text, or an int becomes a float; and the reply is what is kept."""
        rng, types = self._rng, FieldTypes(self._store, self._keys)
        before = await types.read()
        names = [(rng.choice("ab"), rng.choice(("", "x", "é\n:", "y" * 201))) for _ in range(rng.randint(0, 5))]
        kept = await types.keep({name: rng.choice(("int", "float", "text")) for name in names})
        after = await types.read()
        assert kept.items() <= after.items()
        assert all(after[name] in (kind, "text", "float" if kind == "int" else kind) for name, kind in before.items())

    async def _save_robots(self) -> None:
        """Afterwards the domain's other records have at most the limit of bytes, and none of them has expired."""
        rng, now_ms, limit = self._rng, self._time.ms, self._rng.choice((0, 100, 5_000))
        key = self._keys.shards[rng.randrange(SHARDS)].robots(f"d{rng.randrange(3)}.test")
        origin = rng.choice(("http://a.test", "https://b.test:8443", "", "é\n{x}")).encode()
        expiry_ms = now_ms + rng.choice((5_000, 60_000, 86_400_000))  # the key expires by the server's own clock
        record = b"%013d" % expiry_ms + rng.randbytes(rng.choice((0, 30, 3_000)))
        await self._store.send([script_call(SAVE_ROBOTS, [key], now_ms, origin, record, limit)])
        (saved,) = await self._store.send([command("HGETALL", key)])
        kept = dict(zip(saved[::2], saved[1::2], strict=True))
        assert kept.pop(origin) == record
        assert sum(len(name) + len(value) for name, value in kept.items()) <= limit
        assert all(int(value[:13]) > now_ms for value in kept.values())

    async def check(self) -> None:
        """Every accepted URL is settled, queued, leased or waiting, and each once."""
        counts = await self.counters.counts()
        kept = known = 0
        for keys in self._keys.shards:
            waiting, names = await self._store.send(
                [command("ZCARD", keys.waiting), command("KEYS", _literal(keys.base) + "*")]
            )
            # A reservation for a robots.txt may still note when the domain may be requested.
            left = [name for name in names if FORGOTTEN.encode() in name and b":d:" not in name]
            assert not (self.has_forgotten and left), left
            sets = [
                name for name in names if name.startswith((f"{keys.base}q:".encode(), f"{keys.base}inflight:".encode()))
            ]
            kept += waiting + sum(await self._store.send([command("ZCARD", name) for name in sets]) if sets else [])
            pages = [name for name in names if name.startswith(f"{keys.base}known:".encode())]
            buckets = await self._store.send([command("HVALS", name) for name in pages]) if pages else []
            known += sum(1 for of_domain in buckets for records in of_domain for _ in pages_in(records, "d.test"))
            blocks = [name for name in names if name.startswith(f"{keys.base}block:".encode())]
            contents = await self._store.send([command("GET", name) for name in blocks]) if blocks else []
            kept += sum(len(rows_of(text)) for text in contents)
        assert counts.open == kept, f"open {counts.open}, found {kept}"
        assert counts.known == known, f"known {counts.known}, found {known}"


class _Noting:
    """Notes the script calls."""

    def __init__(self, store: RedisStore, sent: list[Call]) -> None:
        self._store, self._sent = store, sent

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self._sent += [call for call in calls if call.script]
        return await self._store.send(calls)


def _literal(text: str) -> str:
    return "".join(f"\\{char}" if char in "*?[]^\\" else char for char in text)


async def run_transitions(count: int, seed: int) -> None:
    """Make `count` random transitions on a server of their own. Raises AssertionError when the counters do not add up."""
    with tempfile.TemporaryDirectory() as folder, ValkeyProcess(Path(folder), persistent=False) as server:
        store = await connect(server.url)
        time = ManualTime()
        clock = ServerClock(time, time.read_ms)
        await clock.refresh()
        await identify_shards(store, CrawlKeys("fuzz", SHARDS, b"key".hex()), range(SHARDS))
        machine = Machine(store, time, clock, random.Random(seed))
        for number in range(count):
            await machine.step()
            if number % CHECK_EVERY == 0:
                await machine.check()
        await machine.check()
        await store.close()
