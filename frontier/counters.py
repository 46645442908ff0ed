"""Reads the counters of a crawl: how many URLs are queued, leased, waiting and done, whether the crawl has ended, and for
surveys also the owners of shards and some of the domains.

Nothing here changes state. All numbers come from the sizes of the sets, and from counters that the scripts update in the
same atomic step as the state, so they cannot drift.

**The end of a crawl.** A URL is *open* from the push that accepts it to the settle that ends it. The links of a page are
pushed before the page is settled. So the crawl has ended exactly when no URL is open in any shard at the same time. The
shards cannot be read at the same time, so they are read twice (Mattern 1987, "Algorithms for distributed termination
detection", the four-counter method). If the second reading, started after the first was complete, finds the same number
accepted as the first, and all of them were settled in the first, then no URL was open in between.

A link in an outbox (`frontier.outboxes`) counts as a URL of the shard that has the outbox: accepted when it is put there,
and settled when it is removed. It is pushed to its own shard before it is removed.

A visit that is due counts as accepted only when it is queued, which may be a little later. So a crawl that visits pages
again has not ended either while a domain has a visit that is due.

**Surveys** are shown to people who watch a crawl. On a cluster, the shards of nodes that are away are left out. A shard
takes 70 to 100 us of the server's time, whatever the number of URLs and domains. So one replica can take a survey every
few seconds for all the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from frontier.errors import RedisAway, ShardLost
from frontier.keys import CrawlKeys, ShardKeys
from frontier.scripts import SURVEY, Call, Reply, command, script_call
from frontier.store import Store, batched, count_in, fields_of, ms_in, send_in_parts, text_in

SHARDS_A_PART = 128
"""Shards read in one round trip. It takes about 10 ms of the server's time, so other clients do not wait long."""

FIRST_PART = 8
"""Shards that are read first when one with open URLs is looked for. While a crawl goes on, one of them nearly always has
some. Each further part is twice as long, up to `SHARDS_A_PART`."""

TEXTS = frozenset({b"crawl", b"forgotten", b"wrong_type"})
"""The fields of `stats` that are not counters."""

SETTLED = ("done", "denied", "dead", "requisite")
"""The counters of settled URLs. A page requisite is counted in the last one, whatever its outcome."""

_OUTCOMES = frozenset({"done", "denied", "dead", "retry"})


NOT_NAMED = "denied:no_sitemap"
"""The reason of URLs that were guessed and are not there."""


class Counts(msgspec.Struct, frozen=True):
    """The counters of one or all shards. They count URLs, unless the name says otherwise."""

    accepted: int = 0
    done: int = 0
    restored: int = 0  # of those done, by a repair
    denied: int = 0
    dead: int = 0
    retried: int = 0
    waiting: int = 0
    domains_unleased: int = 0
    domains_leased: int = 0
    leases_expired: int = 0
    seen: int = 0
    domains: int = 0
    requests: int = 0  # for URLs, without those for robots.txt
    received_bytes: int = 0
    duplicates: int = 0
    known: int = 0  # pages that wait for their next visit
    visits: dict[str, int] = {}  # what was found -> visits
    later_visits: int = 0  # visits after the first that were queued; each counts as accepted once more
    outbox: int = 0  # links that wait for the nodes of their shards
    requeued: dict[str, int] = {}  # outcome -> URLs that were queued again; counted neither there nor as accepted again
    first_ms: int = 0  # server time of the first settled URL, 0 if there is none
    last_ms: int = 0  # server time of the last one
    reasons: dict[str, int] = {}  # "outcome:reason" -> URLs
    dropped: dict[str, int] = {}
    cut: dict[str, int] = {}  # reason -> pages of which a part is missing
    items: dict[str, int] = {}  # data set -> items
    repaired: dict[str, int] = {}  # part -> malformed pages that could be read
    rejected: dict[str, int] = {}  # words of `Counted.rejected` -> items that were not written
    put_off: int = 0  # URLs that were queued again, to come last, because their shape brings nothing new
    shapes: dict[str, int] = {}  # "pages:", "useless:" or "denied:" and a shape that is put off -> URLs
    rendered: dict[str, int] = {}  # "why:", and of some the shape of the URL -> pages that were in a browser
    extras: dict[str, int] = {}  # kind -> requests that the handling of pages has made, such as "fetch"
    requisites_found: int = 0  # page requisites; each also counts as accepted
    requisites: dict[str, int] = {}  # reason -> page requisites that were settled

    @property
    def settled(self) -> int:
        return self.done + self.denied + self.dead + self.requisites_settled

    @property
    def denied_named(self) -> int:
        """Denied URLs that a seed, a page or a sitemap names. The others are sitemaps that were guessed."""
        return self.denied - self.reasons.get(NOT_NAMED, 0)

    @property
    def requisites_settled(self) -> int:
        return sum(self.requisites.values())

    @property
    def fetched(self) -> int:
        """Pages that were done since the data in Redis begin."""
        return self.done - self.restored

    @property
    def open(self) -> int:
        """Number of URLs queued, leased or waiting."""
        return self.accepted - self.settled


class ShardCounters(NamedTuple):
    """The raw counters of one shard: its `stats`, and the sizes of its sets. `counts_of` turns them into `Counts`."""

    stats: Mapping[bytes, bytes]
    waiting: int
    domains_unleased: int
    domains_leased: int

    @property
    def open(self) -> int:
        """Number of URLs queued, leased or waiting, and of links in the outbox."""
        accepted, outboxed, delivered, *settled = (
            count_in(self.stats.get(name.encode())) for name in ("accepted", "outboxed", "delivered", *SETTLED)
        )
        return accepted - sum(settled) + outboxed - delivered


class LastHolder(msgspec.Struct, frozen=True):
    """The replica that last leased from a shard: the fence. It may have lost the shard to another owner since. `epoch`: of
    its view; `since_ms`: server time at which it first leased from it, after another replica."""

    shard: int
    replica: str
    epoch: int
    since_ms: int


class Counters:
    """Reads counters. All methods raise RedisAway. With keys of an unknown identity, no shard counts as lost."""

    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._keys = keys
        self._witness: int | None = None  # a shard with open URLs

    async def counts(self) -> Counts:
        """The sum of the counters of all shards. Costs four small calls per shard."""
        return counts_of(
            ShardCounters(fields_of(stats), *sizes)
            for stats, *sizes in await self._read_each(self._keys.shards, _counter_calls)
        )

    async def open(self) -> list[int]:
        """Per shard, the URLs queued, leased or waiting, and links in the outbox. Raises ShardLost."""
        return [accepted - settled for accepted, settled in await self._totals(self._keys.shards)]

    async def done(self) -> int:
        """The number of URLs settled as done. Costs one small call per shard."""
        replies = await self._read_each(self._keys.shards, lambda shard: [command("HGET", shard.stats, "done")])
        return sum(count_in(reply) for (reply,) in replies)

    async def next_visit_ms(self) -> int:
        """When the next planned visit of a known page is due, in server time; 0 if none is planned."""
        replies = await self._read_each(
            self._keys.shards, lambda shard: [command("ZRANGE", shard.revisits, 0, 0, "WITHSCORES")]
        )
        return min((int(float(reply[1])) for (reply,) in replies if reply and reply[1] != b"inf"), default=0)

    async def has_ended(self, visits_by_ms: int | None = None) -> bool:
        """Whether no URL is queued, leased or waiting, no link is in an outbox, and no planned visit is due by
        `visits_by_ms`, None if planned visits are not made. Never True while a page in flight can still add links. Raises
        ShardLost if a shard that is read has lost its data, because nobody knows then.

        One shard with open URLs is enough to know. The others are not read then, and it is read first the next time. Once
        it has none, reading goes on with the shards after it, since those before it had none either. Otherwise a replica
        that only waits would spend much of its CPU time on reading a thousand mostly idle shards.
        """
        begin = self._witness or 0
        if self._witness is not None:
            witness = self._keys.shards[begin]
            if _most_open(await self._totals([witness], visits_by_ms)) is not None:
                return False
        shards, first = [*self._keys.shards[begin:], *self._keys.shards[:begin]], list[tuple[int, int]]()
        part = FIRST_PART
        while len(first) < len(shards):
            totals = await self._totals(shards[len(first) : len(first) + part], visits_by_ms)
            if (found := _most_open(totals)) is not None:
                self._witness = (begin + len(first) + found) % len(shards)
                return False
            first += totals
            part = min(2 * part, SHARDS_A_PART)
        self._witness = None
        return await self._totals(shards, visits_by_ms) == first

    async def _totals(self, shards: Sequence[ShardKeys], visits_by_ms: int | None = None) -> list[tuple[int, int]]:
        """(accepted, settled) of each of `shards`, including the links in its outbox, and domains with a visit that is due
        by `visits_by_ms`. Costs one call per shard, with visits two. Raises ShardLost."""
        names = ("crawl", "accepted", "outboxed", *SETTLED, "delivered")

        def calls_of(shard: ShardKeys) -> list[Call]:
            visits = [] if visits_by_ms is None else [command("ZCOUNT", shard.revisits, "-inf", visits_by_ms)]
            return [command("HMGET", shard.stats, *names), *visits]

        replies = await self._read_each(shards, calls_of)
        identity = self._keys.identity.encode()
        lost = [
            self._keys.shards.index(of) for of, (reply, *_) in zip(shards, replies, strict=True) if reply[0] != identity
        ]
        if lost and identity:
            raise ShardLost(self._keys.crawl, lost)
        numbers = ([sum(due), *map(count_in, reply[1:])] for reply, *due in replies)
        return [(due + accepted + outboxed, sum(settled)) for due, accepted, outboxed, *settled in numbers]

    async def _read_each(
        self, shards: Sequence[ShardKeys], calls_of: Callable[[ShardKeys], Sequence[Call]]
    ) -> list[Sequence[Reply]]:
        """For each of `shards`, the replies to the calls of `calls_of`, which returns the same number for every shard."""
        calls = ([call for of in part for call in calls_of(of)] for part in batched(shards, SHARDS_A_PART))
        width = len(calls_of(shards[0]))
        rows: list[Sequence[Reply]] = []

        def look(replies: list[Reply]) -> None:
            rows.extend(batched(replies, width))

        await send_in_parts(self._store.send, calls, look)
        return rows


def _counter_calls(shard: ShardKeys) -> Sequence[Call]:
    return (
        command("HGETALL", shard.stats),
        command("ZCARD", shard.waiting),
        command("ZCARD", shard.due),
        command("ZCARD", shard.leases),
    )


def _most_open(totals: Sequence[tuple[int, int]]) -> int | None:
    """The position of the shard with the most open URLs, or None. It is likely to have some for a while."""
    open_urls = [abs(accepted - settled) for accepted, settled in totals]
    return open_urls.index(max(open_urls)) if any(open_urls) else None


def counts_of(shards: Iterable[ShardCounters]) -> Counts:
    """The sum of the counters of `shards`."""
    numbers: defaultdict[bytes, int] = defaultdict(int)
    first_ms: list[int] = []
    last_ms = waiting = due = leased = 0
    for one in shards:
        waiting += one.waiting
        due += one.domains_unleased
        leased += one.domains_leased
        for name, value in one.stats.items():
            if name in TEXTS:
                continue
            if name == b"first_ms":
                first_ms.append(count_in(value))
            elif name == b"last_ms":
                last_ms = max(last_ms, count_in(value))
            else:
                numbers[name] += count_in(value)
    named = {name.decode(errors="replace"): number for name, number in numbers.items()}
    requeued_by = _with_prefix("requeued:", named)
    requeued = {outcome: sum(_with_prefix(f"{outcome}:", requeued_by).values()) for outcome in SETTLED[1:]}
    requisites = Counter(_with_prefix("requisite:", named))
    requisites.subtract(_with_prefix("requisite:", requeued_by))
    postponed = {"retry:put_off", "retry:backoff"}  # without a request
    outcomes = {name for name in named if ":" in name and name.partition(":")[0] in _OUTCOMES} - postponed
    return Counts(
        accepted=numbers[b"accepted"] - sum(requeued.values()),
        done=numbers[b"done"],
        restored=numbers[b"restored"],
        denied=numbers[b"denied"] - requeued["denied"],
        dead=numbers[b"dead"] - requeued["dead"],
        retried=numbers[b"retry"] - sum(named.get(name, 0) for name in postponed),
        put_off=numbers[b"retry:put_off"],
        waiting=waiting,
        domains_unleased=due,
        domains_leased=leased,
        leases_expired=numbers[b"expired"],
        seen=numbers[b"seen"],
        domains=numbers[b"domains"],
        requests=numbers[b"requests"],
        received_bytes=numbers[b"bytes"],
        duplicates=numbers[b"duplicates"],
        known=numbers[b"known"],
        visits=_with_prefix("visit:", named),
        later_visits=numbers[b"revisited"],
        outbox=numbers[b"outboxed"] - numbers[b"delivered"],
        requeued=requeued,
        first_ms=min(first_ms, default=0),
        last_ms=last_ms,
        reasons={name: left for name in outcomes if (left := named[name] - requeued_by.get(name, 0))},
        dropped=_with_prefix("drop:", named),
        cut=_with_prefix("cut:", named),
        items=_with_prefix("items:", named),
        repaired=_with_prefix("repaired:", named),
        rejected=_with_prefix("rejected:", named),
        extras=_with_prefix("extras:", named),
        shapes=_with_prefix("shapes:", named),
        rendered=_with_prefix("rendered:", named),
        requisites_found=numbers[b"requisites"],
        requisites={reason: number for reason, number in requisites.items() if number},
    )


def _with_prefix(prefix: str, named: Mapping[str, int]) -> dict[str, int]:
    return {name.removeprefix(prefix): number for name, number in named.items() if name.startswith(prefix)}


class DomainSample(msgspec.Struct, frozen=True):
    """A domain found at an end of its shard's sets. `at_ms`: when it is due, when its lease ends, or when the first of its
    waiting URLs is ready, in server time. `queued`: number of URLs in its queue, without leased ones; of a waiting domain,
    which has none in its queue, how many of those that wait were found."""

    domain: str
    shard: int
    held: Literal["due", "leased", "waiting"]
    at_ms: int
    queued: int


class DomainDelay(msgspec.Struct, frozen=True):
    """The delay of a domain, None before the first fetch. `state`: of the politeness layer; `robots`: its records
    by their origins."""

    delay_ms: int | None
    state: str
    robots: Mapping[bytes, bytes] = MappingProxyType({})


class ShardSurvey(msgspec.Struct, frozen=True):
    """The state of one shard, read atomically. `ready`: number of domains that are due now; `oldest_due_ms`: when the first
    queued domain is or was due, None if none is queued; `last_holder`: the replica that last leased from it, None if none
    has; `identity`: of the crawl whose data the shard has, "" if it has lost them; `wrong_types`:
    some of the keys of domains that have a wrong type (`lua/set_aside.lua`), without the prefix of the shard."""

    shard: int
    counters: ShardCounters
    ready: int
    oldest_due_ms: int | None
    last_holder: LastHolder | None
    domains: tuple[DomainSample, ...]
    identity: str
    wrong_types: tuple[str, ...] = ()


async def survey(store: Store, keys: CrawlKeys, shards: Sequence[int], now_ms: int, names: int) -> list[ShardSurvey]:
    """Survey `shards`, and list up to `names` domains, at least 1, at each end of their sets. The shards of nodes that are
    away are missing in the result. Raises RedisAway if no shard can be read.

    The calls are sent in parts of `SHARDS_A_PART`. Each shard is read atomically, but the whole survey is not.
    """
    calls = ([_survey_call(keys, shard, now_ms, names) for shard in part] for part in batched(shards, SHARDS_A_PART))
    numbers = iter(shards)
    surveys: list[ShardSurvey] = []
    away: list[RedisAway] = []

    def look(replies: list[Reply]) -> None:
        for shard, reply in zip(islice(numbers, len(replies)), replies, strict=True):
            if isinstance(reply, RedisAway):
                away.append(reply)
            else:
                surveys.append(_parsed(shard, reply))

    await send_in_parts(store.send_each, calls, look)
    if away and not surveys:
        raise away[0]
    return surveys


async def domain_delays(store: Store, keys: CrawlKeys, samples: Iterable[DomainSample]) -> dict[str, DomainDelay]:
    """Delay and state of the domains of `samples`; unknown on nodes that are away or with keys of a wrong type."""
    found = {sample.domain: sample for sample in samples}
    idle = [sample for sample in found.values() if sample.held != "leased"]
    calls = [command("HMGET", keys.shards[one.shard].domain(one.domain), "delay", "state") for one in found.values()]
    calls += [command("HGETALL", keys.shards[one.shard].robots(one.domain)) for one in idle]
    replies = await store.send_each(calls)
    robots = dict(zip((one.domain for one in idle), replies[len(found) :], strict=True))
    return {name: _delay(reply, robots.get(name, ())) for name, reply in zip(found, replies, strict=False)}


def _delay(reply: Reply | RedisAway, robots: Reply | RedisAway) -> DomainDelay:
    delay, state = (None, None) if reply is None or isinstance(reply, RedisAway) else reply
    records = {} if robots is None or isinstance(robots, RedisAway) else fields_of(robots)
    return DomainDelay(count_in(delay) if delay else None, text_in(state), records)


def _survey_call(keys: CrawlKeys, shard: int, now_ms: int, names: int) -> Call:
    of = keys.shards[shard]
    return script_call(SURVEY, (of.stats, of.base), now_ms, names)


def _parsed(shard: int, reply: Reply) -> ShardSurvey:
    _, stats, waiting, due, leased, ready, oldest, holder, *domains = reply
    oldest_ms = ms_in(oldest)
    counters = ShardCounters(fields_of(stats), waiting, due, leased)
    epoch, replica, since_ms = holder
    return ShardSurvey(
        shard=shard,
        counters=counters,
        ready=ready,
        oldest_due_ms=None if oldest_ms < 0 else oldest_ms,
        last_holder=None
        if replica is None
        else LastHolder(shard, text_in(replica), count_in(epoch), count_in(since_ms)),
        domains=tuple(_sample(shard, *fields) for fields in domains),
        identity=text_in(counters.stats.get(b"crawl")),
        wrong_types=tuple(text_in(counters.stats.get(b"wrong_type")).split()),
    )


def _sample(shard: int, held: bytes, domain: bytes, at: bytes, queued: int) -> DomainSample:
    return DomainSample(text_in(domain), shard, held.decode(), ms_in(at), queued)  # type: ignore[arg-type]
