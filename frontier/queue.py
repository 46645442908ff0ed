"""The frontier of one crawl: push, lease, settle, release.

This is the Python side of the scripts that change a crawl's state. Each method takes many items, groups them by shard and
sends them in one round trip, long pushes in several. The headers of the scripts state what they guarantee (one holder per
domain, nothing lost, repeated calls count once). This module also keeps what may have to be sent again after a restart of a
server (`recent_writes`), has long queues packed (`packing`), and drops links to domains outside of the crawl before a push.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec

from frontier.clock import ServerClock
from frontier.entries import Entry, PushMode, bounded
from frontier.errors import Fenced, RedisAway, ShardLost
from frontier.keys import CrawlKeys, layout_of, meta_key, shard_keys, tokens_of
from frontier.outboxes import Outboxes
from frontier.packing import Packer, Queue, Sizes
from frontier.recent_writes import RecentWrites, Write
from frontier.scripts import LEASE, MARK_SENT, PUSH, RELEASE, REVOKE, SETTLE, Argument, Call, command, script_call
from frontier.settle import Lease, LeasedUrl, LeaseReply, Settlement, SettleReply, lease_reply, parts_of, settle_reply
from frontier.shards import send_to_shards, shard_call
from frontier.store import Store, ask, batched, count_in, sound_replies, text_in

PUSH_CHUNK = 250
"""URLs per push call. It takes about a millisecond, and 7 at most in a queue of a million URLs, where 10 are the limit of a
script. Lua's unpack() takes up to about 8,000 values."""

PUSH_BATCH = 500
"""URLs per round trip, approximately. Packing this many blocks the event loop for 3 ms."""

Groups = dict[tuple[str, PushMode], list[Entry]]
"""URLs by their domain and the mode in which they are pushed."""


class PushReply(msgspec.Struct, frozen=True):
    """How many pushed URLs were queued, were seen before, were dropped because their domain is full, and were dropped
    because the crawl does not know their domain or has forgotten it. `shards`: those in which URLs were
    queued; `unknown`: domains that the crawl does not know."""

    accepted: int = 0
    seen: int = 0
    capped: int = 0
    outside: int = 0
    shards: frozenset[int] = frozenset()
    unknown: frozenset[str] = frozenset()


class FrontierSettings(msgspec.Struct, frozen=True):
    """`lease_ms`: how long a domain stays leased to a replica that stopped responding. Raise it for slow sites, lower
    it for a faster takeover. `batch`: maximum number of URLs in a lease. `domain_cap`: maximum number of URLs accepted
    per domain, 0 for no limit. `delay_ms`: delay between requests to a domain that has no delay of its own.
    `replicas_ack`: how many replicas of a Redis node must have pushed URLs. `pack_above`: how many queued URLs of a
    domain make a long queue, which is packed; 0 for never. `known_share`: the share of known pages in a lease while new
    ones are queued; None if pages are not visited again."""

    lease_ms: int = 30_000
    batch: int = 32
    domain_cap: int = 0
    delay_ms: int = 1_000
    replicas_ack: int = 0
    pack_above: int = 1_000
    known_share: float | None = None

    @property
    def packing(self) -> Sizes:
        return Sizes(self.pack_above, self.batch)


SEEN_DOMAINS = 10_000
"""Maximum number of seen domains that are cached, at about 100 bytes each."""

OnPushed = Callable[[int, Sequence[Entry]], None]
"""Called with a shard, and with entries that were pushed into it."""


def _chunks(groups: Groups) -> Iterator[Groups]:
    """Split the URLs for a shard into those of one call each. No URLs, no call: most links to other sites are dropped."""
    if sum(map(len, groups.values())) <= PUSH_CHUNK:
        if groups:
            yield groups
        return
    rows = [(group, entry) for group, entries in groups.items() for entry in entries]
    for part in batched(rows, PUSH_CHUNK):
        yield {group: [entry for _, entry in same] for group, same in groupby(part, itemgetter(0))}


def _batches(parts: Iterable[tuple[int, Groups]]) -> Iterator[list[tuple[int, Groups]]]:
    batch: list[tuple[int, Groups]] = []
    size = 0
    for shard, groups in parts:
        if size >= PUSH_BATCH:
            yield batch
            batch, size = [], 0
        batch.append((shard, groups))
        size += sum(map(len, groups.values()))
    if batch:
        yield batch


class Frontier:
    """The frontier of the crawl with `keys`. All replicas of a crawl share `fingerprint_key`. A change of `settings` leaves
    existing leases their duration."""

    def __init__(
        self, store: Store, keys: CrawlKeys, clock: ServerClock, settings: FrontierSettings, fingerprint_key: bytes
    ) -> None:
        self._store = store
        self.keys = keys
        self._clock = clock
        self.settings = settings
        self._fingerprint_key = fingerprint_key
        self.outboxes = Outboxes(store, keys)
        self._seen_domains: set[str] = set()  # domains of which the crawl has accepted a URL
        self._packer = Packer(store, keys, clock.now_ms)
        self._calls: dict[int, int] = {}  # shard -> number of its next reply with leases, from 1
        self._recent = RecentWrites(self._run_of, store.runs, self._is_away, clock.now_ms)

    def __repr__(self) -> str:
        return f"<Frontier crawl={self.keys.crawl} shards={len(self.keys.shards)}>"

    def shard_of(self, domain: str) -> int:
        return self.keys.shard_of(domain)

    def fingerprint(self, url: str) -> int:
        """63 bits that represent `url` in the seen-set. The hash is keyed, so that outsiders cannot construct collisions.
        With a billion URLs in a crawl, a shard has 1 M. The probability of any collision in a shard is then 1 in 18
        million.
        """
        digest = hashlib.blake2b(url.encode(), digest_size=8, key=self._fingerprint_key).digest()
        return int.from_bytes(digest, "big") >> 1

    async def is_seen(self, entry: Entry) -> bool:
        """Whether the URL of `entry` was queued, as a page or requisite as it says, or fetched. Raises RedisAway."""
        keys, mark = self.keys.of(entry.domain), self.fingerprint(entry.url)
        (buckets,) = await self._store.send([command("HGET", keys.stats, "buckets")])
        mark = -mark if entry.is_requisite else mark
        (seen,) = await self._store.send(
            [command("SISMEMBER", keys.seen(seen_bucket(mark, count_in(buckets) or 1)), mark)]
        )
        return bool(seen)

    async def push(self, entries: Iterable[Entry]) -> PushReply:
        """Queue the entries whose URL is new, or as their `mode` says. Idempotent. Raises RedisAway."""
        return await self._push(entries, self.settings.replicas_ack, self._recent.pushed)

    async def _push(self, entries: Iterable[Entry], replicas_ack: int, on_pushed: OnPushed) -> PushReply:
        by_shard: dict[int, Groups] = defaultdict(lambda: defaultdict(list))
        shard_of = self.keys.shard_of
        for number, entry in enumerate(entries, 1):
            by_shard[shard_of(entry.domain)][entry.domain, entry.mode].append(entry)
            if number % PUSH_BATCH == 0:
                await asyncio.sleep(0)
        outside, unknown = await self._drop_outside(by_shard)
        seeds = {
            (shard, domain): of_group
            for shard, groups in by_shard.items()
            for (domain, mode), of_group in groups.items()
            if mode == "again"
        }
        unpacked = await self._packer.unpack_seeds(seeds)
        counts = [0, 0, 0, outside]  # accepted, seen, capped, outside
        shards: set[int] = set()
        for batch in _batches([(shard, part) for shard, groups in by_shard.items() for part in _chunks(groups)]):
            calls = [(shard, self._push_call(shard, part, replicas_ack)) for shard, part in batch]
            long: list[Queue] = []
            replies = await send_to_shards(self._store, self.keys, calls)
            for (shard, part), (_, *numbers) in zip(batch, replies, strict=True):
                on_pushed(shard, [entry for of_group in part.values() for entry in of_group])
                counts = [total + int(number) for total, number in zip(counts, numbers, strict=False)]
                if int(numbers[0]):
                    shards.add(shard)
                long += (Queue(shard, domain.decode(), size, int(packed)) for domain, size, packed in numbers[4:])
            await self._packer.pack(long, self.settings.packing)
        await self._packer.repack(unpacked, self.settings.packing)
        accepted, seen, capped, outside = counts
        return PushReply(accepted, seen, capped, outside, frozenset(shards), unknown)

    async def _drop_outside(self, by_shard: dict[int, Groups]) -> tuple[int, frozenset[str]]:
        """Remove URLs with mode "known" from `by_shard` if their domain is unknown. Returns how many were removed,
        and these domains.

        The script does the same. But most links to other sites lead out of the crawl, each to a different shard, and a
        script call for each of them costs ten times as much.
        """
        doubtful = [
            (shard, domain)
            for shard, groups in by_shard.items()
            for domain, mode in groups
            if mode == "known"
            and domain not in self._seen_domains
            and not groups.keys() & {(domain, "new"), (domain, "again"), (domain, "moved")}
        ]
        outside, unknown = 0, set[str]()
        for part in batched(doubtful, PUSH_BATCH):
            calls = [command("HEXISTS", self.keys.shards[shard].domain(domain), "accepted") for shard, domain in part]
            for (shard, domain), is_known in zip(part, await sound_replies(self._store, calls), strict=True):
                if is_known:
                    self._seen_domains.add(domain)
                else:
                    outside += len(by_shard[shard].pop((domain, "known")))
                    unknown.add(domain)
        if len(self._seen_domains) > SEEN_DOMAINS:
            self._seen_domains.clear()
        return outside, frozenset(unknown)

    def _push_call(self, shard: int, groups: Groups, replicas_ack: int) -> Call:
        keys = self.keys.shards[shard]
        self._recent.reached(shard)
        limits = (self.settings.domain_cap, self.settings.packing.least_step)
        arguments: list[Argument] = [self.keys.identity, self._clock.now_ms(), *limits]
        for (domain, mode), entries in groups.items():
            labelled = [(entry, key) for entry in entries if entry.tag and (key := entry.label_key) and mode != "moved"]
            if labelled:  # first, so that URLs are not queued without their labels before
                arguments += (domain, f"{mode}@", len(labelled))
                for entry, key in labelled:
                    arguments += (self.fingerprint(entry.url), bounded(entry.priority), entry.raw)
                    arguments += (self.fingerprint(f"{entry.url}#{key}"), key)
                entries = [entry for entry in entries if not entry.label_key]
                if not entries:
                    continue
            arguments += (domain, mode, len(entries))
            for entry in entries:
                arguments += (self.fingerprint(entry.url), bounded(entry.priority), entry.raw)
        return Call(arguments, (keys.stats, keys.base), PUSH, replicas_ack)

    async def lease(
        self, shards: Sequence[int], epoch: int, replica: str, max_domains: int
    ) -> tuple[list[LeaseReply], list[Fenced]]:
        """Lease up to `max_domains` due domains of each of `shards`, which `replica` owns in the view of `epoch`. Shards
        in `replaced_runs` are left out: what this replica has settled there may be queued again. Returns the replies,
        and a `Fenced` for each shard that has another owner in a newer view. Raises RedisAway."""
        now_ms, lease_ms = self._clock.now_ms(), self._lease_ms
        share = "" if self.settings.known_share is None else self.settings.known_share
        limits = (now_ms, lease_ms, max_domains, self.settings.batch, self.settings.delay_ms, share)
        shards = [shard for shard in shards if not self._recent.is_replaced(shard)]
        self._recent.reached(*shards)
        calls = []
        for shard in shards:
            caller = (epoch, replica, self._run_of(shard), self._calls.get(shard, 1))
            calls.append((shard, shard_call(LEASE, self.keys, shard, *caller, *limits)))
        replies = await send_to_shards(self._store, self.keys, calls)
        leased, fenced = [], []
        for shard, reply in zip(shards, replies, strict=True):
            if reply[0] == b"fenced":
                fenced.append(Fenced(f"shard {shard} belongs to {reply[2].decode()} since epoch {int(reply[1])}"))
            else:
                leased.append(lease_reply(shard, reply, now_ms + lease_ms))
                if leased[-1].leases:
                    self._recent.leased(shard, leased[-1].leases)
                    self._calls[shard] = self._calls.get(shard, 1) + 1
        await self._packer.unpack([block for reply in leased for block in reply.low], self.settings.packing)
        return leased, fenced

    @property
    def visits_by_ms(self) -> int | None:
        """By when planned visits are due now, None if they are not made."""
        return None if self.settings.known_share is None else self._clock.now_ms()

    async def shards_with_work(self, shards: Collection[int]) -> set[int]:
        """Those of `shards` with something queued, leased, waiting or due. A tenth of the cost of a lease. Raises
        RedisAway."""
        keys = [self.keys.shards[shard] for shard in shards]
        calls = [command("EXISTS", of.stats, of.due, of.leases, of.waiting) for of in keys]
        if self.visits_by_ms is not None:
            calls += [command("ZCOUNT", of.revisits, "-inf", self.visits_by_ms) for of in keys]
        replies = await self._store.send(calls)
        existing = dict(zip(shards, replies, strict=False))
        visits = replies[len(existing) :] or [0] * len(existing)
        if lost := [shard for shard, number in existing.items() if not number]:
            raise ShardLost(self.keys.crawl, lost)
        return {shard for (shard, number), due in zip(existing.items(), visits, strict=True) if number > 1 or due}

    async def shards_with_urgent(self, shards: Collection[int]) -> list[int]:
        """Those of `shards` in which a domain may have URLs with a priority above 0. Raises RedisAway."""
        found = await ask(self._store, [command("EXISTS", self.keys.shards[shard].urgent) for shard in shards])
        return [shard for shard, exists in zip(shards, found, strict=True) if exists]

    @property
    def _lease_ms(self) -> int:
        """The duration of a lease from `now_ms`: at least `lease_ms` by the server's clock."""
        return self.settings.lease_ms + self._clock.uncertainty_ms

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleReply]:
        """Send `settlements`, those of a shard in order. Repeating the call is harmless. Raises RedisAway."""
        by_shard: dict[int, list[int]] = defaultdict(list)
        for place, settlement in enumerate(settlements):
            by_shard[settlement.lease.shard].append(place)
        chunks = [(shard, part) for shard, places in by_shard.items() for part in parts_of(settlements, places)]
        calls = [(shard, self._settle_call(shard, [settlements[place] for place in part])) for shard, part in chunks]
        replies = await send_to_shards(self._store, self.keys, calls)
        for settlement in settlements:
            if settlement.urls:
                self._recent.settled(settlement)
        settled = [SettleReply(stale=True)] * len(settlements)
        for (_, places), reply in zip(chunks, replies, strict=True):
            for place, word, ms in zip(places, reply[1::2], reply[2::2], strict=True):
                settled[place] = settle_reply(word, ms)
        return settled

    def _settle_call(self, shard: int, settlements: Sequence[Settlement]) -> Call:
        self._recent.reached(shard)
        words = [word for one in settlements for word in one.words(self._clock.uncertainty_ms)]
        return shard_call(SETTLE, self.keys, shard, self._run_of(shard), self._clock.now_ms(), self._lease_ms, *words)

    async def mark_sent(self, lease: Lease, entry: Entry, marked: Entry) -> bool:
        """Replace `entry` of `lease` by `marked` (`Entry.sent`), or back. False if the lease has ended. Raises
        RedisAway."""
        words = (lease.domain, lease.token, entry.raw, marked.raw)
        calls = [(lease.shard, shard_call(MARK_SENT, self.keys, lease.shard, *words))]
        (reply,) = await send_to_shards(self._store, self.keys, calls)
        return bool(reply[0] == b"marked")

    async def release(self, settlements: Sequence[Settlement]) -> list[SettleReply]:
        """Return the leases of `settlements`, with the URLs left in them. Their `urls` are ignored. Raises RedisAway."""
        calls = []
        for settlement in settlements:
            lease, state = settlement.lease, "" if settlement.state is None else settlement.state
            words = (lease.domain, lease.token, settlement.next_ms + self._clock.uncertainty_ms, state)
            calls.append((lease.shard, shard_call(RELEASE, self.keys, lease.shard, *words)))
        return [settle_reply(*reply) for reply in await send_to_shards(self._store, self.keys, calls)]

    async def revoke(self, urls: Sequence[LeasedUrl], crawl: str = "") -> list[bool | None]:
        """For each of `urls`, whether it was not settled under its lease. Then it never will be under this lease, and is
        pushed again, unless it is of another crawl. None if this is unknown: the lease was lost days ago, or the shard has
        lost its data. `crawl`: that of `urls`; empty for this one. Use this only for leases whose holder has died, or
        knows that they are stale. Raises RedisAway."""
        places: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        for place, url in enumerate(urls):
            places[url.shard, url.domain, url.token].append(place)
        now_ms, last_tokens = self._clock.now_ms(), self.keys.last_tokens
        if crawl:
            last_tokens = tokens_of((await self._store.send([command("HGET", meta_key(crawl), "last_tokens")]))[0])
        calls = []
        for (shard, domain, token), of_lease in places.items():
            entries = [urls[place].entry.raw for place in of_lease]
            layout = layout_of(token, last_tokens)  # a lease stays with the layout in which it was granted
            of = shard_keys(crawl or self.keys.crawl, shard, layout)
            identity = "" if crawl or layout != self.keys.layout else self.keys.identity
            keys = (of.lost, of.inflight(domain), of.domain(domain), of.owner, of.stats)
            calls.append(script_call(REVOKE, keys, identity, self._store.run_of(of.base), token, now_ms, *entries))
        answers: list[bool | None] = [None] * len(urls)
        for of_lease, reply in zip(places.values(), await self._store.send(calls), strict=True):
            for place, answer in zip(of_lease, reply[1:], strict=False):  # none if the shard is lost
                answers[place] = None if answer == 2 else bool(answer)
        unsettled = {url for url, answer in zip(urls, answers, strict=True) if answer}
        if unsettled and crawl in ("", self.keys.crawl):  # the server may have lost them with their leases
            with contextlib.suppress(ShardLost):  # frozen by a reshard: the URLs are queued in it again
                await self._push([url.entry for url in unsettled], 0, self._recent.pushed)
        # At last: if a call fails, all of this is repeated, and has to find them again.
        self._recent.withdraw(unsettled)
        return answers

    def _run_of(self, shard: int) -> str:
        return self._store.run_of(self.keys.shards[shard].base)

    def _node_of(self, shard: int) -> str:
        return self._store.node_of(self.keys.shards[shard].base)

    def _is_away(self, shard: int) -> bool:
        return self._store.is_away(self._node_of(shard))

    def runs(self) -> dict[int, str]:
        """The run that serves each shard, as far as it is known."""
        return {shard: run for shard in range(len(self.keys.shards)) if (run := self._run_of(shard))}

    def replaced_runs(self) -> dict[int, str]:
        """The shards whose server was replaced since the writes, and the run that serves them: see `repeat_pushes`."""
        return self._recent.replaced_runs()

    async def old_shards(self, runs: Mapping[int, str]) -> dict[int, int]:
        """Those of the shards in `runs`, which were replaced by these, that came back in a state older than the last writes
        reach, as from a snapshot: shard -> the time of the last lease that it knows, in server ms, 0 for none. Raises
        RedisAway."""
        urls = [url for shard in runs if (url := self._recent.safe_url(shard)) is not None]
        calls = []
        for url in urls:
            keys = self.keys.shards[url.shard]
            calls.append(command("HMGET", keys.owner, "run", "token", "tails"))
            calls.append(command("HGET", keys.domain(url.domain), "token"))
            calls.append(command("ZSCORE", keys.inflight(url.domain), url.entry.raw))
            calls.append(command("ZSCORE", keys.lost, f"{url.token}\n{url.entry.raw}"))
        replies = await ask(self._store, calls)
        old: dict[int, int] = {}
        for url, (run, token, tails), holder, leased, was_lost in zip(
            urls, *(replies[at::4] for at in range(4)), strict=True
        ):
            # The last of the ranges of lost tokens begins with the last token that this run has found.
            has_noticed = text_in(run) == runs[url.shard] and tails
            known = count_in(tails.rpartition(b" ")[2].partition(b"-")[0] if has_noticed else token)
            is_leased = leased is not None and count_in(holder) == url.token
            if url.token > known or is_leased or was_lost:
                old[url.shard] = known
        return old

    def may_repeat(self, url: LeasedUrl) -> bool:
        """Whether a settlement under the lease of `url` may still turn out to have no effect. In any thread."""
        return self._recent.may_repeat(url)

    @property
    def is_in_doubt(self) -> bool:
        """Whether servers may have lost the last writes to them, and this replica could not send them again yet."""
        return self._recent.is_in_doubt

    @property
    def are_writes_safe(self) -> bool:
        """Whether all servers have normally synced the last writes to them, and were not replaced since."""
        return self._recent.are_safe

    async def look_for_new_runs(self, if_lately: bool = False) -> None:
        """Ask each node that was written to for a sign of life. `if_lately`: only if it may lack writes. Raises
        RedisAway."""
        shards = self._recent.one_of_each(self._node_of, if_lately)
        calls = [command("EXISTS", self.keys.shards[shard].owner) for shard in shards]
        answers = await self._store.send_each(calls)
        if away := [answer for answer in answers if isinstance(answer, RedisAway)]:
            raise away[0]

    async def keep_links(self, links: Mapping[int, Sequence[tuple[int, Entry]]]) -> set[int]:
        """Put `links` into outboxes, as `Outboxes.keep` does, and remember them among the last writes."""
        self._recent.reached(*links)
        full = await self.outboxes.keep(links)
        for shard, of_shard in links.items():
            if shard not in full:
                self._recent.kept(shard, [link for _, link in of_shard])
        return full

    async def repeat_pushes(self, shards: Collection[int], without_acks: bool = False) -> None:
        """Push the URLs that were pushed to `shards` or leased from them in the last seconds again. Links that were in
        their outboxes and whose own shards are still away are put there again. `without_acks`: replicas of Redis need
        not have them. Raises RedisAway."""
        writes = [write for write in self._recent.of(shards) if write.entries]
        stuck = {id(write) for write in writes if write.is_kept and self._has_away(write.entries)}
        kept = [write for write in writes if id(write) in stuck]
        await self._repeat_pushes([write for write in writes if id(write) not in stuck], without_acks)
        links: dict[int, list[tuple[int, Entry]]] = defaultdict(list)
        for write in kept:
            links[write.shard] += [(self.shard_of(link.domain), link) for link in write.entries]
        full = await self.keep_links(links)
        self._recent.forget([write for write in kept if write.shard not in full])
        await self._repeat_pushes([write for write in kept if write.shard in full], without_acks)

    def _has_away(self, links: Sequence[Entry]) -> bool:
        return any(self._is_away(self.shard_of(link.domain)) for link in links)

    async def _repeat_pushes(self, writes: Sequence[Write], without_acks: bool) -> None:
        replicas_ack = 0 if without_acks else self.settings.replicas_ack
        pushed: list[tuple[int, Sequence[Entry]]] = []
        entries = [entry for write in writes for entry in write.entries]
        await self._push(entries, replicas_ack, lambda shard, part: pushed.append((shard, part)))
        self._recent.forget(writes)
        for shard, part in pushed:  # not before: if a call fails, `writes` are kept, and would be there twice
            self._recent.pushed(shard, part)

    def recent_links(self, shards: Collection[int]) -> list[tuple[int, Entry]]:
        """What `repeat_pushes` would push: the shard where each URL belongs, and the URL."""
        return [(one.shard, url) for one in self._recent.of(shards) if not one.is_kept for url in one.entries]

    def recently_settled(self, shards: Collection[int]) -> set[int]:
        """Those of `shards` with a settlement that `repeat_settlements` would repeat."""
        return {write.shard for write in self._recent.of(shards) if write.settlement is not None}

    async def repeat_settlements(self, runs: Mapping[int, str]) -> list[LeasedUrl]:
        """Send the settlements of the last seconds to the shards in `runs` again, after the pushes to all shards in
        `Frontier.replaced_runs`: no page may be settled before its links are queued. `runs`: those that have the
        pushes; they are left out if they were replaced since. Returns the URLs that this replica has settled and that
        are not settled: others have leased them meanwhile. Raises RedisAway."""
        runs = {shard: run for shard, run in runs.items() if self._run_of(shard) == run}
        writes = [write for write in self._recent.of(runs) if write.settlement is not None]
        settlements = [write.settlement for write in writes if write.settlement is not None]
        # A server may have lost URLs that were queued longer ago than the last writes.
        settled = [url.entry for one in settlements for url in one.urls]
        await self._push(settled, 0, lambda *_: None)
        replies = await self.settle(settlements)
        self._recent.forget(writes)
        stale = [url for one, reply in zip(settlements, replies, strict=True) if reply.stale for url in one.leased]
        unsettled = [url for url, answer in zip(stale, await self.revoke(stale), strict=True) if answer]
        self._recent.repeated(runs)
        return unsettled


def seen_bucket(fingerprint: int, buckets: int) -> int:
    """The bucket of `fingerprint` in a seen-set with `buckets` buckets, computed as in `lua/push.lua`."""
    half = 1 << (max(1, buckets).bit_length() - 1)
    bucket = abs(fingerprint) % 1_000_000_000 % (half * 2)
    return bucket if bucket < buckets else bucket - half
