"""The referee's own records of the frontier: what each replica was promised, taken from the calls that the server ran.

The ledger does not repeat what the scripts do. It knows what they promise: a URL is accepted once and settled once; a
replica that was told that it holds a domain until some time holds it until then; no domain is leased before its delay is
over; a shard serves the newest view that it has seen, and one replica in that view. Each call is checked when it runs.

It has books of each domain (its URLs, who holds it, until when it rests), of each shard (who leased last, the last grant,
the restarts of its server), of the outboxes and of the page budget. It also checks that queues are packed and unpacked
without a loss, and what replicas believe of crawl time, by the times in their calls.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from frontier.domains import shard_of
from frontier.entries import Entry, parse_entry
from frontier.packing import rows_of
from frontier.scripts import Call, Reply
from tests.simulation.loop import Breach, History
from tests.simulation.scenario import Scenario, World
from tests.simulation.wire import bytes_of, each_end, linked_url, shard_number, shard_tag

NOBODYS = 0
"""The token of a revoked lease. No replica has it, and the lease stays until it expires."""


@dataclass(slots=True)
class Holding:
    """A lease as its holder knows it. `until_ms`: the latest end of the lease that the holder was told. `is_open`: the
    domain may be reserved meanwhile."""

    token: int
    replica: str
    until_ms: int
    urls: set[str]
    is_open: bool = False


@dataclass(slots=True)
class Domain:
    """`rests_until_ms`: no lease may be given before. `delay_ms`: as last settled, 0 for the default."""

    name: str
    shard: str
    queued: dict[str, float] = field(default_factory=dict)  # url -> priority
    packed: set[str] = field(default_factory=set)  # those of `queued` that are in blocks
    waiting: dict[str, int] = field(default_factory=dict)  # url -> ready ms
    holding: Holding | None = None
    rests_until_ms: int = 0
    filled_ms: int = 0  # by the clock of whoever queued a URL last
    delay_ms: int = 0
    accepted: int = 0
    raw: dict[str, str] = field(default_factory=dict)  # url -> its text, where it is known to have changed

    @property
    def due_ms(self) -> int:
        """When the domain is due: from then on a lease call must return it if anything is queued."""
        return max(self.rests_until_ms, self.filled_ms)

    def wake(self, now_ms: int) -> None:
        """Queue the waiting URLs that are ready."""
        ready = [url for url, ready_ms in self.waiting.items() if ready_ms <= now_ms]
        if ready and not self.queued:  # it is due from now on, for a late call with an earlier time not yet
            self.filled_ms = max(self.filled_ms, now_ms)
        for url in ready:
            del self.waiting[url]
            self.queued[url] = 0.0


GRACE_MS = 1_000
TOKENS_LOST = 10_000


@dataclass(slots=True)
class ShardBook:
    """`call`: number of the last call that got leases; `granted`: domain -> token of these. `tails`: tokens that the server
    may have lost, above the first number of each pair and up to the second. `decided`: (token, entry) settled under
    them, or found unsettled."""

    epoch: int = 0
    replica: str = ""
    run: str = ""
    token: int = 0
    quiet_ms: int = 0
    call: int = 0
    granted: dict[str, int] = field(default_factory=dict)
    tails: list[tuple[int, int]] = field(default_factory=list)
    decided: set[tuple[int, str]] = field(default_factory=set)

    def own(self, epoch: int, replica: str) -> None:
        """A call of `replica` in `epoch` was not refused."""
        if replica != self.replica:
            self.call, self.granted = 0, {}
        self.epoch, self.replica = epoch, replica

    def notice(self, run: str, now_ms: int) -> None:
        """A call was sent to the server process `run`."""
        if not run or run == self.run:
            return
        last = max(self.token + TOKENS_LOST, now_ms)
        self.tails.append((self.token, last))
        self.run, self.token, self.quiet_ms = run, last, now_ms + GRACE_MS

    def has_lost(self, token: int) -> bool:
        """Whether a lease with this token was lost with the last writes of a server."""
        return any(first < token <= last for first, last in self.tails)


class OutboxBook:
    """`is_pushed`: whether a URL was accepted or capped. `check(holds, invariant, message, about)` raises Breach unless
    `holds`. `open`: how many links are kept; `ever`: how many ever were."""

    def __init__(
        self, history: History, is_pushed: Callable[[str], bool], check: Callable[[bool, str, str, str], None]
    ) -> None:
        self._history = history
        self._is_pushed = is_pushed
        self._check = check
        self.forget()

    def forget(self) -> None:
        self.open = self.ever = 0
        self._members: dict[str, set[str]] = defaultdict(set)  # shard -> members

    def members(self, shard: str) -> set[str]:
        return self._members.get(shard, set())

    def urls(self, shard: str) -> set[str]:
        """The links that the outbox of `shard` keeps."""
        return set(map(linked_url, self.members(shard)))

    def keep(self, replica: str, call: Call, reply: Reply) -> None:
        kept = self._members[shard_tag(call.keys[0])]
        news = set(map(str, call.arguments[3::2])) - kept
        self._history.note(replica, "keep", (call.arguments[2:], reply))
        if reply[0] == b"kept":
            self._check(int(reply[1]) == len(news), "I1", f"keep_links says {reply}, not {len(news)}", call.keys[0])
            kept |= news
            self.open += len(news)
            self.ever += len(news)

    def deliver(self, replica: str, call: Call, reply: Reply) -> None:
        """A link leaves an outbox when it was pushed, or when the crawl turned out not to know its domain."""
        kept = self._members[shard_tag(call.keys[0])]
        gone = {member.decode() if isinstance(member, bytes) else str(member) for member in call.arguments[1:]}
        self._history.note(replica, "deliver", (sorted(gone), reply))
        for member in sorted(gone & kept):
            url = linked_url(member)
            is_safe = self._is_pushed(url) or member.startswith("known\n")
            self._check(is_safe, "I1", f"{url} leaves an outbox before it is pushed", url)
        self._check(int(reply[1]) == len(gone & kept), "I1", f"deliver says {reply}", call.keys[0])
        self.open -= len(gone & kept)
        kept -= gone

    def move(self, shards: Sequence[str]) -> None:
        """The crawl uses the shards with these hash tags from now on."""
        before, self._members = self._members, defaultdict(set)
        for shard, members in before.items():
            self._members[shards[shard_number(shard) % len(shards)]] |= members
        self.open = sum(map(len, self._members.values()))


class PackingReferee:
    """`domain(name, key)` returns the referee's record of a domain. `check(holds, invariant, message, about)` raises Breach
    unless `holds`."""

    def __init__(
        self,
        history: History,
        domain: Callable[[str, str], Domain],
        check: Callable[[bool, str, str, str], None],
    ) -> None:
        self._history = history
        self._domain = domain
        self._check = check

    def pack(self, replica: str, call: Call, reply: Reply) -> None:
        domain = self._domain(str(call.arguments[1]), call.keys[0])
        urls = {parse_entry(raw.decode(), domain.name, 0.0).url for _, raw in rows_of(bytes_of(call.arguments[6]))}
        self._history.note(replica, "pack", (domain.name, sorted(urls), reply))
        if reply[0] == b"packed":
            strange = urls - domain.queued.keys()
            self._check(not strange, "I1", f"packed what was not queued: {strange}", domain.name)
            number = int(call.arguments[2])
            self._check(len(urls - domain.packed) == number, "I1", f"{number} are packed, not {urls}", domain.name)
            domain.packed |= urls

    def unpack(self, replica: str, call: Call, reply: Reply) -> None:
        domain = self._domain(str(call.arguments[1]), call.keys[0])
        raws = [bytes_of(raw).decode() for raw in call.arguments[7::2]]
        urls = {parse_entry(raw, domain.name, 0.0).url for raw in raws}
        self._history.note(replica, "unpack", (domain.name, sorted(urls), reply))
        if reply[0] == b"unpacked":
            strange = urls - domain.packed
            self._check(not strange, "I1", f"unpacked what was not packed: {strange}", domain.name)
            domain.packed -= urls


@dataclass(slots=True)
class Permits:
    """What a replica holds of the page budget, by its call with the highest `number`."""

    number: int
    permits: int
    until_ms: int


class PermitBook:
    """`limit`: of the crawl, 0 for none. `check(holds, invariant, message, about)` raises Breach unless `holds`.

    `done`: URLs that were ever settled as done. If the server has lost that, it will be repeated.

    `most`: how many pages there may be, more than the limit if as many were requested before all replicas knew it.
    """

    def __init__(self, history: History, limit: int, check: Callable[[bool, str, str, str], None]) -> None:
        self._history = history
        self.done: set[str] = set()
        self._check = check
        self.limit = limit
        self.most = limit or math.inf
        self._permits: dict[str, Permits] = {}
        self._lapsed_ms = 0  # permits that expired before may have been withdrawn

    def reserve(self, replica: str, call: Call, reply: Reply) -> None:
        """A call that arrives after a later one changes nothing, and no call takes permits away that its replica keeps."""
        self._history.note(replica, "reserve", (call.arguments, reply))
        number, keep, wanted, until_ms = (int(call.arguments[at]) for at in (1, 4, 5, 8))
        self._lapsed_ms = max(self._lapsed_ms, int(call.arguments[9]))
        last = self._permits.get(replica)
        if last is None or number > last.number:
            self._check(int(reply[1]) >= keep, "limit", f"{replica} keeps {keep} permits, not {reply}", replica)
            is_early = self.limit > 0 and self.most == math.inf and int(reply[1]) > max(0, keep)
            self._check(not is_early, "limit", f"{replica} gets permits before pages are counted: {reply}", replica)
            self._permits[replica] = Permits(number, int(reply[1]), until_ms)
        elif last.until_ms >= self._lapsed_ms:
            message = f"call {number} of {replica} changes its permits from {last} to {reply}"
            self._check(int(reply[1]) == last.permits, "limit", message, replica)
        if wanted < 0:
            del self._permits[replica]

    def set_limit(self, pages: int) -> None:
        """Record that the crawl's limit is set to `pages` during the crawl."""
        self._history.note("operator", "limit", pages)
        self.limit = pages

    def recount(self, replica: str, call: Call, reply: Reply) -> None:
        """Pages are counted once every replica needs permits. From then on, no more are requested than the limit allows."""
        self._history.note(replica, "recount", (call.arguments, reply))
        if reply[0] == b"recounted" and self.most == math.inf:
            held = {name: one.permits for name, one in self._permits.items() if one.until_ms >= self._lapsed_ms}
            free = [name for name, permits in held.items() if permits < 0]
            self._check(not free, "limit", f"pages are counted while {free} need no permits", replica)
            self.most = max(self.limit, len(self.done) + sum(held.values()))


TIME_AT = {"push": 1, "lease": 5, "settle": 2}
"""Script -> which of its arguments is crawl time, as its caller knows it."""

BEHIND_S = 40.0
"""By how much a replica's crawl time may be behind at most: each correction after a step of the server's clock may put it
back by the errors of two readings, of up to two timeouts each. Steps are longer."""


class TimeReferee:
    """`server_ms`: crawl time without any error. `slack_ms`: by how much replicas may be ahead of it. `check(holds,
    invariant, message, about)` raises Breach unless `holds`."""

    def __init__(
        self, server_ms: Callable[[], float], slack_ms: float, check: Callable[[bool, str, str, str], None]
    ) -> None:
        self._server_ms = server_ms
        self._slack_ms = slack_ms
        self._check = check
        self._follows_step = False

    def follow_step(self) -> None:
        """Record that all who knew crawl time have ended before they noticed a step of the server's clock. Those who are
        left trust the server's clock in the end, as `frontier.clock` says."""
        self._follows_step = True

    def observe(self, replica: str, call: Call) -> None:
        """Check the time in a call that the server ran."""
        told_ms = self._told_ms(call)
        if told_ms is not None:
            ahead_ms = told_ms - self._server_ms()
            message = f"{replica} believes that crawl time is {ahead_ms:.0f} ms ahead of where it is"
            self._check(ahead_ms <= self._slack_ms, "I2", message, replica)

    def observe_sending(self, replica: str, call: Call) -> None:
        """Check the time in a call when it is sent."""
        told_ms = self._told_ms(call)
        if told_ms is not None:
            behind_ms = self._server_ms() - told_ms
            message = f"{replica} believes that crawl time is {behind_ms:.0f} ms behind where it is"
            self._check(behind_ms <= BEHIND_S * 1000, "I8", message, replica)

    def _told_ms(self, call: Call) -> int | None:
        name = call.script.name if call.script else ""
        return None if self._follows_step or name not in TIME_AT else int(call.arguments[TIME_AT[name]])


class Ledger:
    """Observes every script call of the frontier."""

    def __init__(
        self,
        world: World,
        history: History,
        scenario: Scenario,
        recorded: dict[str, int],
        server_ms: Callable[[], float],
    ) -> None:
        self._world = world
        self._history = history
        self._delay_ms = scenario.delay_ms
        self.permits = PermitBook(history, 0 if scenario.limited_at_s else scenario.max_pages, self._check)
        self.outboxes = OutboxBook(history, self._is_pushed, self._check)
        self.time = TimeReferee(server_ms, scenario.slack_s * 1000, self._check)
        self._recorded = recorded
        self._is_rebuilding = False
        self.unsure_until_ms = 0.0  # until then, the server may have lost that a lease was renewed
        self._forget()
        self.owners: Callable[[int, int], str | None] = lambda epoch, shard: None
        self._observers = {"push": self._push, "lease": self._lease, "settle": self._settle, "release": self._release}
        self._observers |= {"reserve_budget": self.permits.reserve, "recount": self.permits.recount}
        packing = PackingReferee(history, self._domain, self._check)
        self._observers |= {"reserve": self._reserve, "end_reservation": self._end_reservation}
        self._observers["open_lease"] = self._open_lease
        self._observers |= {"pack": packing.pack, "unpack": packing.unpack, "revoke": self._revoke}
        self._observers |= {"add_to_outbox": self.outboxes.keep, "remove_from_outbox": self.outboxes.deliver}

    def _forget(self) -> None:
        self.pages = 0
        self.domains: dict[str, Domain] = {}
        self._domains_of: dict[str, list[Domain]] = defaultdict(list)  # by shard
        self.accepted: set[str] = set()
        self.capped: set[str] = set()
        self.settled: dict[str, str] = {}
        self.lost_with_holder: set[str] = set()
        self._lost: dict[str, int] = {}
        self.outboxes.forget()
        self.shards: dict[str, ShardBook] = defaultdict(ShardBook)

    def rebuild(self, kept: Sequence[tuple[str, Call, Reply]], observe: Callable[[str, Call, Reply], None]) -> None:
        """Forget all but the calls (replica, call, reply) in `kept`, which were checked, and `observe` them again."""
        self._forget()
        self._is_rebuilding = True
        for one in kept:
            observe(*one)
        self._is_rebuilding = False

    @property
    def scripts(self) -> Set[str]:
        """The scripts of which it keeps account, and the one that gives a shard its identity."""
        return self._observers.keys() | {"identify_shard"}

    @property
    def open(self) -> int:
        """URLs accepted and not yet settled, and links in outboxes."""
        return len(self.accepted) - len(self.settled) + self.outboxes.open

    @property
    def opened(self) -> int:
        """What was ever open."""
        return len(self.accepted) + self.outboxes.ever

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        """Check and record one call that the server ran."""
        self.time.observe(replica, call)
        if call.script and call.script.name in self._observers:
            self._observers[call.script.name](replica, call, reply)

    def end_leases(self, shard: str) -> None:
        """All leases of the shard with this hash tag have ended."""
        self._take_back(self._domains_of[shard], math.inf)

    def move(self, shards: Sequence[str], last_token: int) -> None:
        """The crawl uses the shards with these hash tags from now on. `last_token`: of the shards that it used before."""
        self._domains_of.clear()
        for domain in self.domains.values():
            domain.shard = shards[shard_of(domain.name, len(shards))]
            self._domains_of[domain.shard].append(domain)
        for shard in shards:
            self.shards[shard].token = last_token
        self.outboxes.move(shards)

    def domains_of(self, shard: str) -> Sequence[Domain]:
        """The domains of the shard with this hash tag."""
        return self._domains_of[shard]

    def delay_of(self, domain: str) -> int:
        known = self.domains.get(domain)
        return known.delay_ms if known and known.delay_ms else self._delay_ms

    def _check(self, holds: bool, invariant: str, message: str, about: str) -> None:
        if not (holds or self._is_rebuilding):
            raise Breach(invariant, message, about)

    # push

    def _push(self, replica: str, call: Call, reply: Reply) -> None:
        words = [str(word) for word in call.arguments]
        counts = {"accepted": 0, "seen": 0, "capped": 0, "outside": 0}
        at = 4
        while at < len(words):
            domain, count = self._domain(words[at], call.keys[0]), int(words[at + 2])
            is_outside = words[at + 1] == "known" and not domain.accepted
            cap = int(words[2])
            if words[at + 1] in ("known", "foreign"):  # links of other domains fill half of it
                cap = math.ceil(cap / 2)
            for place in range(at + 3, at + 3 + 3 * count, 3):
                entry = parse_entry(words[place + 2], domain.name, float(words[place + 1]))
                counts["outside" if is_outside else self._offer(domain, entry, cap)] += 1
            domain.filled_ms = max(domain.filled_ms, int(words[1]))
            at += 3 + 3 * count
        self._history.note(replica, "push", (counts, words[4:]))
        told = tuple(map(int, reply[1:5]))
        self._check(told == tuple(counts.values()), "I1", f"push says {told}, not {counts}", "")

    def _offer(self, domain: Domain, entry: Entry, cap: int) -> str:
        """Return what must become of `entry`."""
        if entry.url in self.accepted:
            return "seen"
        if cap and domain.accepted >= cap:
            self.capped.add(entry.url)
            return "capped"
        domain.accepted += 1
        self.accepted.add(entry.url)
        domain.queued[entry.url] = entry.priority
        domain.raw[entry.url] = entry.raw
        return "accepted"

    def _is_pushed(self, url: str) -> bool:
        return url in self.accepted or url in self.capped

    def _domain(self, name: str, key: str) -> Domain:
        if name not in self.domains:
            self.domains[name] = domain = Domain(name, shard_tag(key))
            self._domains_of[domain.shard].append(domain)
        return self.domains[name]

    # lease

    def _lease(self, replica: str, call: Call, reply: Reply) -> None:
        shard = shard_tag(call.keys[0])
        epoch, run, number, now_ms = int(call.arguments[1]), *call.arguments[3:5], int(call.arguments[5])
        if self._is_fenced(shard, epoch, replica, reply):
            return
        book = self.shards[shard]
        book.notice(str(run), now_ms)
        if now_ms < book.quiet_ms <= now_ms + GRACE_MS:
            self._check(len(reply) == 2, "I1", f"{shard} grants {reply} so soon after a restart", shard)
            return
        here = self._domains_of[shard]
        if self._is_leased_again(here, book, replica, call, reply):
            return
        self._take_back(here, now_ms)
        for domain in here:
            domain.wake(now_ms)
        leases, low = (
            [one for one in reply[2:] if len(one) == 5],
            {one[0].decode() for one in reply[2:] if len(one) == 4},
        )
        for lease in leases:
            self._grant(shard, replica, call, lease)
        if leases:
            book.call, book.granted = int(number), {lease[0].decode(): int(lease[1]) for lease in leases}
        if len(leases) + len(low) < int(call.arguments[7]):
            due = [domain for domain in here if domain.queued and not domain.holding and domain.due_ms <= now_ms]
            idle = [domain.name for domain in due if not (domain.packed and domain.name in low)]
            self._check(not idle, "I1", f"{idle} wait in {shard}, and nobody gets them", idle[0] if idle else "")

    def _is_leased_again(self, here: Sequence[Domain], book: ShardBook, replica: str, call: Call, reply: Reply) -> bool:
        """Whether the call is answered with the leases of an earlier one, or too late for an answer."""
        number, until_ms = int(call.arguments[4]), int(call.arguments[5]) + int(call.arguments[6])
        if number > book.call:
            return False
        told = {lease[0].decode(): int(lease[1]) for lease in reply[2:]}
        held = {domain.name: domain.holding for domain in here if domain.holding}
        again = {name: token for name, token in book.granted.items() if name in held and held[name].token == token}
        if number < book.call or not again:
            self._check(number == book.call or not told, "I2", f"{replica} gets {told} by call {number}", replica)
            return number < book.call
        self._history.note(replica, "lease again", told)
        self._check(told == again, "I1", f"{replica} gets {told} again, not {again}", replica)
        for lease in reply[2:]:
            name = lease[0].decode()
            urls = {parse_entry(raw.decode(), name, 0.0).url for raw in lease[4][::2]}
            self._check(urls == held[name].urls, "I1", f"{name} is leased again with {urls}", name)
            held[name].until_ms = max(held[name].until_ms, until_ms)
        return True

    def _is_fenced(self, shard: str, epoch: int, replica: str, reply: Reply) -> bool:
        book = self.shards[shard]
        newest = (book.epoch, book.replica)
        must_be = newest[0] > epoch or (newest[0] == epoch and newest[1] != replica)
        is_so = bool(reply[0] == b"fenced")
        self._check(
            is_so == must_be, "I4", f"{replica} asks {shard} in epoch {epoch}: {reply[0]!r}; newest was {newest}", shard
        )
        if not is_so:
            book.own(epoch, replica)
        return is_so

    def _take_back(self, here: Sequence[Domain], now_ms: float) -> None:
        for domain in here:
            held = domain.holding
            if held is None or held.until_ms > now_ms:
                continue
            domain.holding = None
            domain.rests_until_ms = max(domain.rests_until_ms, held.until_ms + (domain.delay_ms or self._delay_ms))
            self._history.note("server", "take back", (domain.name, held.token, held.replica))
            for url in held.urls:
                self._lost[url] = self._lost.get(url, 0) + 1
                if self._lost[url] < 15:
                    domain.queued[url] = 0.0
                    raw = domain.raw[url]
                    domain.raw[url] = f"{raw[:5]}{int(raw[5], 16) + 1:x}{raw[6:]}"  # as expire_leases.lua counts
                else:
                    self.lost_with_holder.add(url)
                    self._close(url, "dead")

    def _grant(self, shard: str, replica: str, call: Call, lease: Reply) -> None:
        now_ms, lease_ms = int(call.arguments[5]), int(call.arguments[6])
        name, token = lease[0].decode(), int(lease[1])
        domain = self.domains[name]
        self._history.note(replica, "lease", (name, token, now_ms, [item.decode() for item in lease[4][::2]]))
        held = domain.holding
        self._check(held is None, "I2", f"{name} is leased to {replica} while {held} holds", name)
        early_ms = domain.rests_until_ms - now_ms
        self._check(early_ms <= 0, "I2", f"{name} is leased to {replica} {early_ms} ms before its rest is over", name)
        self._check(token > self.shards[shard].token, "I2", f"token {token} of {name} is not new", name)
        self.shards[shard].token = token
        raws = {parse_entry(raw.decode(), name, 0.0).url: raw.decode() for raw in lease[4][::2]}
        urls = set(raws)
        domain.raw |= raws
        strange = urls - domain.queued.keys()
        self._check(not strange, "I1", f"leased what was not queued: {strange}", name)
        self._check(bool(urls), "I1", f"{name} leased without a URL", name)
        self._check(not urls & domain.packed, "I1", f"leased while it is packed: {urls & domain.packed}", name)
        for url in urls:
            del domain.queued[url]
        domain.holding = Holding(token, replica, now_ms + lease_ms, urls)

    # reservations

    def _reserve(self, replica: str, call: Call, reply: Reply) -> None:
        domain = self._domain(str(call.arguments[1]), call.keys[0])
        self._history.note(replica, "reserve domain", (domain.name, reply))
        if reply[0] == b"reserved":
            held, early_ms = domain.holding, domain.rests_until_ms - int(reply[1])
            is_free = held is None or held.is_open
            self._check(is_free, "I2", f"{domain.name} is reserved for {replica} while {held} holds", domain.name)
            message = f"{domain.name} is reserved for {replica} {early_ms} ms before its rest is over"
            self._check(early_ms <= 0, "I2", message, domain.name)
            domain.rests_until_ms = int(reply[2])

    def _end_reservation(self, replica: str, call: Call, reply: Reply) -> None:
        name, until_ms, next_ms = str(call.arguments[0]), int(call.arguments[1]), int(call.arguments[2])
        self._history.note(replica, "end reservation", (name, until_ms, next_ms, reply))
        domain = self._domain(name, call.keys[0])
        is_right = (reply[0] == b"ended") == (domain.rests_until_ms == until_ms)
        self._check(is_right, "I2", f"{replica} ends its reservation of {name}: {reply}; {domain}", name)
        if reply[0] == b"ended":
            domain.rests_until_ms = next_ms

    def _open_lease(self, replica: str, call: Call, reply: Reply) -> None:
        domain, (token, next_ms) = self._domain(call.keys[0].partition("d:")[2], call.keys[0]), map(int, call.arguments)
        self._history.note(replica, "open lease", (domain.name, token, next_ms, reply))
        if (held := self._held(domain, token, reply)) is not None:
            held.is_open = True
            domain.rests_until_ms = max(domain.rests_until_ms, next_ms)

    # settle and release

    def _settle(self, replica: str, call: Call, reply: Reply) -> None:
        words = [str(word) for word in call.arguments]
        now_ms, lease_ms, at = int(words[2]), int(words[3]), 4
        book = self.shards[shard_tag(call.keys[0])]
        for said in zip(reply[1::2], reply[2::2], strict=True):
            end = at + 9 + int(words[at + 8])
            about, ends = words[at : at + 4], words[at + 9 : end]
            if said[0] == b"stale":
                book.notice(words[1], now_ms)
            if said[0] == b"stale" and book.has_lost(int(about[1])):
                self._settle_lost(replica, call.keys[0], about, ends, now_ms)
            else:
                self._settle_lease(replica, about, ends, (now_ms, now_ms + lease_ms), said)
            at = end
        self._check(at == len(words), "I1", f"settle answers {reply!r} to {words}", "")

    def _settle_lease(
        self, replica: str, about: list[str], ends: list[str], span: tuple[int, int], said: Reply
    ) -> None:
        """`about`: domain, token, next ms, delay ms; `ends`: how its URLs ended; `span`: from when until when it
        renews the lease; `said`: what the script says of it."""
        sent_ms, until_ms = span
        domain, token, next_ms = self.domains[about[0]], int(about[1]), int(about[2])
        self._history.note(replica, "settle", (*about, until_ms, ends, said))
        held = self._held(domain, token, said)
        if held is None:
            return
        urls = {parse_entry(raw, domain.name, 0.0).url: (outcome, again) for outcome, again, raw in each_end(ends)}
        late_ms = sent_ms - held.until_ms
        is_repeated = self.unsure_until_ms > 0 and bool(urls) and held.urls.isdisjoint(urls)  # after a restart
        is_late = late_ms > 0 and sent_ms > self.unsure_until_ms and not is_repeated
        self._check(not is_late, "I2", f"{replica} settles {domain.name} {late_ms} ms after its lease", domain.name)
        for url, (outcome, again) in urls.items():
            if url in held.urls:
                held.urls.remove(url)
                self._end(domain, url, outcome, again)
        domain.delay_ms = int(about[3]) if about[3] else domain.delay_ms
        domain.rests_until_ms = max(domain.rests_until_ms, next_ms)
        if held.urls:
            held.until_ms = max(held.until_ms, until_ms)
        else:
            domain.holding = None
        is_right = (said[0] == b"held") == bool(held.urls)
        self._check(is_right, "I1", f"{domain.name}: {said!r} with {held.urls} left", domain.name)

    def _settle_lost(self, replica: str, key: str, about: list[str], ends: list[str], now_ms: int) -> None:
        """The server has lost the lease with its last writes. What is queued is settled anyway."""
        book = self.shards[shard_tag(key)]
        domain, token = self._domain(about[0], key), int(about[1])
        self._history.note(replica, "settle lost", (*about, ends))
        here = self._domains_of[domain.shard]
        for outcome, again, raw in each_end(ends):
            for other in here:
                other.wake(now_ms)
            url = parse_entry(raw, domain.name, 0.0).url
            if (
                url in domain.queued
                and url not in domain.packed
                and (token, raw) not in book.decided
                and domain.raw.get(url, raw) == raw
            ):
                del domain.queued[url]
                book.decided.add((token, raw))
                self._end(domain, url, outcome, again)
        if domain.holding is None and about[3]:
            domain.delay_ms = int(about[3])
        domain.rests_until_ms = max(domain.rests_until_ms, int(about[2]))

    def _held(self, domain: Domain, token: int, reply: Reply) -> Holding | None:
        held = domain.holding if domain.holding and domain.holding.token == token else None
        is_stale = reply[0] == b"stale"
        self._check(
            is_stale == (held is None),
            "I2",
            f"token {token} on {domain.name}: {reply!r}; {domain.holding}",
            domain.name,
        )
        return held

    def _end(self, domain: Domain, url: str, outcome: str, again: str) -> None:
        """`again`: what a URL that is tried again is queued with."""
        if outcome == "retry":
            domain.waiting[url] = int(again.partition("\n")[0])
            domain.raw[url] = again.split("\n")[2]
        else:
            self._check_order(url, outcome, domain.shard)
            self._close(url, outcome)

    def _check_order(self, url: str, outcome: str, shard: str) -> None:
        self._check(bool(self._recorded.get(url)), "I1", f"{url} is settled, and its record is not durable", url)
        links = self._world.resources[url].links if outcome == "done" else ()
        missing = [link for link in links if not self._is_pushed(link)]
        kept = self.outboxes.urls(shard) if missing else set()
        unknown = [link for link in missing if link not in kept]
        self._check(not unknown, "I1", f"{url} is settled before its links {unknown}", url)

    def _close(self, url: str, outcome: str) -> None:
        self._check(url not in self.settled, "I1", f"{url} is settled twice", url)
        self.settled[url] = outcome
        if outcome == "done":
            self.pages += 1
            self.permits.done.add(url)
        self._check(self.pages <= self.permits.most, "limit", f"page {self.pages} of {self.permits.most}", url)

    def _revoke(self, replica: str, call: Call, reply: Reply) -> None:
        name, token = call.keys[1].partition("inflight:")[2], int(call.arguments[2])
        book = self.shards[shard_tag(call.keys[0])]
        book.notice(str(call.arguments[1]), int(call.arguments[3]))
        self._history.note(replica, "revoke", (name, token, call.arguments[4:], reply))
        if book.has_lost(token):
            found = zip(call.arguments[4:], reply[1:], strict=True)
            book.decided.update((token, str(raw)) for raw, answer in found if answer == 1)
        held = self._domain(name, call.keys[0]).holding
        if held is not None and held.token == token:
            held.token = NOBODYS

    def _release(self, replica: str, call: Call, reply: Reply) -> None:
        name, token, next_ms = str(call.arguments[1]), int(call.arguments[2]), int(call.arguments[3])
        domain = self._domain(name, call.keys[1])  # the server may have lost all that was known of it
        self._history.note(replica, "release", (name, token, next_ms, reply))
        held = self._held(domain, token, reply)
        if held is None:
            return
        domain.queued.update(dict.fromkeys(held.urls, 0.0))
        domain.holding = None
        domain.rests_until_ms = max(domain.rests_until_ms, next_ms)
