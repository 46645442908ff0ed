"""The state of a crawl as its observers see it: on the live page, in `crawler status`, `top` and `crawl`, and in the log.

`CrawlReader` reads what the replicas have written. `condition_of` says in a few words whether the crawl makes progress, and
if not, why. The functions at the end put into words what the items of a crawl and denied URLs need.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Generic, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from crawler.observe import summary as summaries
from crawler.observe.health import HealthRecord, read_health
from crawler.observe.summary import WRONG_TYPE_REMEDY, DomainLine, Summary
from crawler.page import ACTIONS, rejection_of
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import extract_rules
from crawler.wording import count_of, eviction_warning, with_remedy
from frontier.clock import Clock, crawl_ms
from frontier.cluster import UNSERVED
from frontier.control import Control
from frontier.crawls import Crawl, FieldTypes, evicted_keys, open_crawl
from frontier.errors import FrontierError
from frontier.keys import CrawlKeys, with_identity
from frontier.scripts import command
from frontier.shards import Nodes
from frontier.store import RedisStore

T = TypeVar("T")

MOST_DOMAINS = 3
"""Failing domains that are named."""

MOST_SETS = 10
"""Data sets and fields that are listed."""

MOST_LOST = 3
"""Lost replicas that are named."""

MOST_SHAPES = 3
"""Shapes of URLs that are named."""

Word = Literal[
    "starting",
    "running",
    "ending",
    "blocked",
    "paused",
    "stopping",
    "stopped",
    "data lost",
    "resharding",
    "finished",
    "page limit reached",
    "limit reached",
    "no replica",
    "Redis away",
    "Redis refuses writes",
]

HALTS: dict[Word, str] = {
    "paused": "the crawl is paused; `crawler resume` lets it go on",
    "stopping": "the crawl was stopped; `crawler resume` lets replicas start again",
    "stopped": "the crawl was stopped; `crawler resume` lets replicas start again",
    "page limit reached": "limits.max_pages is reached; a higher limit lets the crawl go on",
    "limit reached": "a limit in [limits] is reached; a higher one lets the crawl go on",
    "no replica": "no replica runs",
    "Redis refuses writes": "Redis refuses writes",
    "finished": "no replica runs",
}
"""Why nothing is fetched now, by the condition of the crawl. For a URL that waits, "finished" is out of date."""

NOTHING_LEFT = "nothing is left to fetch; without --until-empty, replicas wait for more URLs until `crawler stop`"

_HALTED: dict[str, Word] = {"pause": "paused", "stop": "stopped"}


class Condition(msgspec.Struct, frozen=True):
    """`level`: whether someone should look at it. `obstacles`: what keeps replicas from crawling, a sentence each."""

    word: Word
    level: Literal["good", "warn", "bad"]
    obstacles: list[str] = []


STARTING = Condition("starting", "good")
"""For a command that starts the replicas itself: none has reported yet."""

ENDING = Condition("ending", "good")
"""For the same command: those that reported have ended, or are about to."""


class DomainRule(msgspec.Struct, frozen=True):
    """A rule that an operator has set for a domain. `delay_s`: seconds between requests; None: the domain is blocked."""

    domain: str
    delay_s: float | None


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a crawl at one time. `summary` is None while no replica writes one. `max_pages`: 0 for no limit.
    `more_rules`: the number of rules that are left out of `rules`. `extracted`: the data sets of the
    rules in `[[extract]]`.

    `error`: why Redis cannot be read now, or "". The other data are then from the last reading, `age_s` seconds ago.
    """

    crawl: str
    served_by: str
    state: str = "run"
    condition: Condition = Condition("no replica", "warn")
    replicas: list[HealthRecord] = []
    rules: list[DomainRule] = []
    more_rules: int = 0
    max_pages: int = 0
    extracted: list[str] = []
    summary: Summary | None = None
    error: str = ""
    age_s: float = 0.0


class Status(Summary, frozen=True, kw_only=True):
    """A snapshot whose summary is exact. `never_found`: `data set.field` of rules that no item has a value for."""

    state: str
    condition: Condition
    replicas: list[HealthRecord]
    rules: list[DomainRule]
    settings_revision: int
    max_pages: int
    extracted: list[str] = msgspec.field(default_factory=list)
    never_found: list[str] = msgspec.field(default_factory=list)


class CrawlReader:
    """Reads snapshots of a crawl. Rules and settings are read again only after a change."""

    def __init__(self, store: RedisStore, keys: CrawlKeys, served_by: str = "") -> None:
        self._store = store
        self._keys = keys
        self._served_by = served_by
        self._control = Control(store, keys)
        self._nodes = Nodes(store, keys)
        self._is_provisional = False  # the crawl is being resharded
        self._troubles: Condition | None = None
        self._lost: dict[str, int] = {}
        self._revision = 0
        self._settings = CrawlSettings()

    async def read(self) -> Snapshot:
        """Read what the replicas have written. The cost grows only with the number of replicas. Raises RedisAway."""
        records, self._lost = await read_health(self._store, self._keys)
        await self._control.refresh()
        if self._control.has_other_shards or self._is_provisional:
            await self._reopen()
        if self._revision != self._control.settings_revision:
            (settings,) = await self._store.send([command("HGET", self._keys.meta, "settings")])
            self._settings = CrawlSettings.from_json(settings) if settings else CrawlSettings()
            self._revision = self._control.settings_revision
        self._troubles = await self._redis_troubles()
        summary = await summaries.load(self._store, self._keys)
        is_old = summary is not None and summary.shards != len(self._keys.shards)  # it was written before a reshard
        return self._snapshot(records, None if is_old else summary)

    async def _redis_troubles(self) -> Condition | None:
        """What keeps Redis from keeping what it should, None for nothing. A server that is full still answers."""
        evicted, warning = 0, ""
        with contextlib.suppress(FrontierError):
            evicted = await evicted_keys(self._store, self._keys)
            warning = eviction_warning(self._store.eviction_policy, evicted)
        if refusals := await self._nodes.refusals():
            remedies = [with_remedy(error) for error in refusals.values()]
            unknown = "replicas wait, and cannot report while that lasts; they go on by themselves"
            return Condition("Redis refuses writes", "bad", [*remedies, unknown, *([warning] if evicted else [])])
        return Condition("running", "bad" if evicted else "warn", [warning]) if warning else None

    async def _reopen(self) -> None:
        """Read the shards that the crawl has now. While they are changed, they have identities of their own."""
        crawl = await open_crawl(self._store, self._keys.crawl, for_reshard=True)
        self._is_provisional = crawl.resharding is not None
        self._keys = with_identity(crawl.keys, "") if self._is_provisional else crawl.keys
        self._nodes = Nodes(self._store, self._keys)
        if not self._is_provisional:
            self._control = Control(self._store, self._keys)
            await self._control.refresh()

    async def complete(self, exact: bool = False) -> Snapshot:
        """Read a snapshot; if `exact`, or without a current summary, the shards are surveyed. Raises RedisAway."""
        snapshot = await self.read()
        if snapshot.summary is not None and snapshot.replicas and not exact:
            return snapshot
        live = {record.replica for record in snapshot.replicas}
        now_ms = int(await crawl_ms(self._store, self._keys.peers)())
        return self._snapshot(snapshot.replicas, await summaries.take(self._store, self._keys, now_ms, "", live))

    def _snapshot(self, records: list[HealthRecord], summary: Summary | None) -> Snapshot:
        control, max_pages = self._control, self._settings.limits.max_pages
        condition = condition_of(control.state, records, summary, max_pages, control.limit)
        if resharding := control.resharding:
            condition = Condition("resharding", "warn", [f"the crawl is {resharding}", resharding.advice])
        if (trouble := self._troubles) is not None:
            if trouble.word == "Redis refuses writes" and condition.word not in ("data lost", "resharding"):
                condition = replace(trouble, obstacles=trouble.obstacles + condition.obstacles)
            else:
                condition = replace(condition, obstacles=trouble.obstacles + condition.obstacles)
                if condition.level != "bad":
                    condition = replace(condition, level=trouble.level)
        if condition.word in _WITH_LOST and (silent := lost_replicas_in_words(self._lost)):
            level = "warn" if condition.level == "good" else condition.level
            condition = replace(condition, level=level, obstacles=[*condition.obstacles, silent])
        rules: list[tuple[str, float | None]] = [(domain, None) for domain in sorted(control.rules.blocked)]
        rules += sorted(control.rules.delays.items())
        return Snapshot(
            crawl=self._keys.crawl,
            served_by=self._served_by,
            state=control.state,
            condition=condition,
            replicas=records,
            rules=[DomainRule(domain, delay_s) for domain, delay_s in rules],
            max_pages=max_pages,
            extracted=list(dict.fromkeys(rule.name for rule in self._settings.extract)),
            summary=summary,
        )


class LastRead(Generic[T]):
    """The last value that was read. `error`: why there is no newer one, or ""."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_at = clock.monotonic()
        self.value: T | None = None
        self.error = ""

    @property
    def age_s(self) -> float:
        """Seconds since `value` was read, or since the first attempt."""
        return self._clock.monotonic() - self._read_at

    async def update(self, reading: Awaitable[T]) -> None:
        """Await `reading`. If that fails because of Redis, keep the last value and note why."""
        try:
            self.value, self.error = await reading, ""
            self._read_at = self._clock.monotonic()
        except FrontierError as error:
            self.error = with_remedy(str(error))


def with_age(last: LastRead[Snapshot], crawl: str, served_by: str = "") -> Snapshot:
    """Return the last snapshot, marked as old if there is no newer one because Redis cannot be read."""
    if last.value is not None and not last.error:
        return last.value
    away, age_s = Condition("Redis away", "bad"), round(last.age_s, 1)
    return replace(last.value or Snapshot(crawl, served_by), condition=away, error=last.error, age_s=age_s)


async def status(store: RedisStore, crawl: Crawl, exact: bool = True) -> Status:
    """Read the status of `crawl`. If not `exact`, its numbers may be some seconds old. Raises RedisAway."""
    snapshot = await CrawlReader(store, crawl.keys).complete(exact)
    assert snapshot.summary is not None
    condition = snapshot.condition
    if crawl.left:
        condition = replace(condition, obstacles=[*condition.obstacles, crawl.left])
    return Status(
        **msgspec.structs.asdict(snapshot.summary),
        state=snapshot.state,
        condition=condition,
        replicas=snapshot.replicas,
        rules=snapshot.rules,
        settings_revision=crawl.revision,
        max_pages=snapshot.max_pages,
        extracted=snapshot.extracted,
        never_found=await _never_found(store, crawl, snapshot.summary.items),
    )


async def _never_found(store: RedisStore, crawl: Crawl, items: Mapping[str, int]) -> list[str]:
    """Return what `Status.never_found` is. `items`: their number by data set. Raises RedisAway."""
    rules = [rule for rule in extract_rules(CrawlSettings.from_json(crawl.settings)) if items.get(rule.name)]
    wanted = {(rule.name, field.name): None for rule in rules for field in rule.fields if field.is_found}
    known = await FieldTypes(store, crawl.keys).read() if wanted else {}
    return [f"{name}.{field}" for name, field in wanted if (name, field) not in known]


# the condition


def condition_of(
    state: str, records: Sequence[HealthRecord], summary: Summary | None, max_pages: int, limit: str = ""
) -> Condition:
    """Return the condition. `state`: "run", "pause" or "stop"; `max_pages`: 0 for no limit; `limit`: another one
    reached."""
    reasons = obstacles(records)
    unread, is_done = [], False
    if summary is not None:
        of_all = f"of {count_of(summary.shards, 'shard')}"
        is_done = bool(summary.accepted) and not (summary.open or summary.outbox or summary.shards_away)
        if summary.shards_away:
            unread.append(f"{summary.shards_away:,} {of_all} cannot be read, so the numbers are incomplete")
        if summary.shards_lost:
            lost = f"data lost in Redis: {summary.shards_lost:,} {of_all}; restore it, or run `crawler repair`"
            return Condition("data lost", "bad", [lost, *reasons, *unread])
        if summary.is_stranded:
            lost = f"{count_of(summary.open, 'open URL')} in no queue, because keys were evicted or deleted in Redis"
            return Condition("data lost", "bad", [f"{lost}; run `crawler repair --evicted`", *reasons])
    unread += wrong_types(summary)
    reasons += unread
    if not records:
        # A crawl that has nothing to do is not called paused or stopped: `crawler resume` would change nothing.
        halted = _HALTED.get(state)
        also = [f"the crawl is also {halted}: `crawler resume` undoes that"] if halted else []
        if is_done:
            return Condition("finished", "good", also)
        if summary is not None and 0 < max_pages <= summary.done:
            return Condition("page limit reached", "good", also)
        if limit:
            return Condition("limit reached", "good", [f"limits.{limit} is reached", *also])
        return Condition(halted or "no replica", "warn", unread)
    if state in _HALTED:
        return Condition("stopping" if state == "stop" else "paused", "warn", reasons)
    working = [record for record in records if not (record.blocked or record.redis_away)]
    may_work = any(record.domains for record in working) or (summary is not None and summary.domains_unleased > 0)
    if not working or (len(working) < len(records) and not may_work):
        return Condition("blocked", "bad", reasons)
    if summary is not None:
        if summary.outbox:
            reasons.append(f"{count_of(summary.outbox, 'link')} kept until Redis nodes are back")
        if summary.shards_unowned:
            reasons.append(f"{count_of(summary.shards_unowned, 'shard')} with work but without a replica so far")
        reasons += failing(summary)
    reasons += waiting(records)
    return Condition("running", "warn" if reasons else "good", [*reasons, NOTHING_LEFT] if is_done else reasons)


def wrong_types(summary: Summary | None) -> list[str]:
    """Return which keys in Redis have a wrong type, and what to do."""
    if summary is None or not summary.wrong_types:
        return []
    more = " and others" if len(summary.wrong_types) > MOST_DOMAINS else ""
    return [
        f"{', '.join(summary.wrong_types[:MOST_DOMAINS])}{more} in Redis were evicted, or somebody else has written over "
        f"them, so what they belong to is not crawled: {WRONG_TYPE_REMEDY}"
    ]


def failing(summary: Summary) -> list[str]:
    """Return why the domains of a crawl without other work have failed, and when they are tried again."""
    lines = summary.hindered
    reasons = _next_tries(summary, lines)
    for line in lines[:1]:
        other = "; if its pages are not wanted: scope.exclude" if line.robots else ""
        reasons.append(f"if it works again: `crawler retry {line.domain}`{other}")
    return reasons


def failing_in_words(summary: Summary) -> list[str]:
    """Return why some domains have failed while others work, and when they are tried again. No line if none has."""
    lines = [] if summary.hindered else [line for line in summary.resting if line.robots or line.failures]
    if not lines:
        return []
    return ["; ".join([*_next_tries(summary, lines), f"if it works again: `crawler retry {lines[0].domain}`"])]


def _next_tries(summary: Summary, lines: Sequence[DomainLine]) -> list[str]:
    reasons = [
        f"{_failure(line)}, next try in {ceil((line.at_ms - summary.at_ms) / 1000):,} s"
        for line in lines[:MOST_DOMAINS]
    ]
    if len(lines) > MOST_DOMAINS:
        reasons.append(f"and {count_of(len(lines) - MOST_DOMAINS, 'more domain')}")
    return reasons


def _failure(line: DomainLine) -> str:
    reason = line.robots or line.reason
    if reason == "no_such_host":
        return f"{line.domain}: no such host"
    if line.robots:
        return f"robots.txt of {line.origin or line.domain} is unreachable ({reason})"
    return f"{line.domain} has failed ({reason}, {line.failures:,} in a row)"


def waiting(records: Sequence[HealthRecord]) -> list[str]:
    """Return which domains have not sent a complete response for a while, if no page comes meanwhile."""
    names = list(dict.fromkeys(name for record in records for name in record.waits_for))
    if not names or any(record.pages_per_s for record in records):
        return []
    more = " and others" if len(names) > MOST_DOMAINS else ""  # records have the first ones only
    return [f"no complete response yet from {', '.join(names[:MOST_DOMAINS])}{more}"]


def obstacles(records: Sequence[HealthRecord]) -> list[str]:
    """Return what keeps replicas from crawling. Replicas with the same obstacle share a sentence."""
    replicas_of: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        away = [_away(node) for node in record.nodes_away]
        for obstacle in ["Redis away"] if record.redis_away else filter(None, [record.blocked, *away, _off(record)]):
            replicas_of[obstacle].append(str(record.index or record.replica))
    return [
        f"{'replica' if len(names) == 1 else 'replicas'} {', '.join(names)}: {obstacle}"
        for obstacle, names in replicas_of.items()
    ]


def _away(node: str) -> str:
    if node == UNSERVED:
        return f"{node} away; `crawler doctor` names its nodes"
    return f"Redis node {node} away; start it again: its shards wait, and the others go on"


def _off(record: HealthRecord) -> str:
    """Return that the clock of the replica's machine is wrong, or ""."""
    if not record.clock_off_s:
        return ""
    side = "ahead of" if record.clock_off_s > 0 else "behind"
    return f"its clock is {abs(record.clock_off_s):,.0f} s {side} the crawl's: synchronize it with NTP"


_WITH_LOST: tuple[Word, ...] = ("running", "blocked", "paused", "no replica")


def lost_replicas_in_words(lost: Mapping[str, int]) -> str:
    """Return which replicas were lost, the latest first. `lost`: when each last reported, in server milliseconds."""
    names = sorted(lost, key=lambda name: -lost[name])
    if not names:
        return ""
    latest = datetime.fromtimestamp(lost[names[0]] / 1000, UTC).strftime("%H:%M:%S UTC")
    more = f" and {len(names) - MOST_LOST:,} more" if len(names) > MOST_LOST else ""
    were = "replica was" if len(names) == 1 else "replicas were"
    return (
        f"{len(names):,} {were} lost (killed or cut off, last report at {latest}): {', '.join(names[:MOST_LOST])}{more}; "
        "others take over the work, or do so once `crawler run` starts them"
    )


# items and denied URLs in words


def items_in_words(items: Mapping[str, int], extracted: Iterable[str], rejected: Mapping[str, int]) -> str:
    """Return the number of items by data set, also for `extracted` ones without items, and those all rejected."""
    rejections = {name: reasons.total() for name, reasons in _rejections(rejected).items()}
    numbers = Counter(dict.fromkeys([*extracted, *rejections], 0) | dict(items))
    texts = []
    for name, number in _ranked(numbers):
        none = f"none kept, {rejections[name]:,} rejected" if name in rejections else "none"
        texts.append(f"{name} {f'{number:,}' if number else none}")
    return _first_sets(texts)


def rejected_in_words(rejected: Mapping[str, int]) -> str:
    """Return for each data set how many items were rejected, and the most frequent reason. `rejected`: as in `Counts`."""
    by_name, texts = _rejections(rejected), []
    for name, total in _ranked({name: reasons.total() for name, reasons in by_name.items()}):
        ((reason, _),) = by_name[name].most_common(1)
        texts.append(f"{name} {total:,} ({'mostly ' if len(by_name[name]) > 1 else ''}{reason})")
    return _first_sets(texts)


def never_found_in_words(fields: Sequence[str]) -> str:
    """Return the fields that no item has, and how to find out why."""
    more = len(fields) - MOST_SETS
    names = ", ".join(fields[:MOST_SETS]) + (f" and {more:,} more" if more > 0 else "")
    return f"{names}: no page had a value; `crawler try URL` shows what each rule finds"


def _rejections(rejected: Mapping[str, int]) -> dict[str, Counter[str]]:
    by_name: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, number in rejected.items():
        name, reason = rejection_of(word)
        by_name[name][reason] += number
    return by_name


def _ranked(numbers: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(numbers.items(), key=lambda item: (-item[1], item[0]))


def _first_sets(texts: list[str]) -> str:
    more = len(texts) - MOST_SETS
    return ", ".join(texts[:MOST_SETS]) + (f" and {more:,} more data sets" if more > 0 else "")


def put_off_in_words(shapes: Mapping[str, int]) -> str:
    """Return which shapes of URLs bring nothing new, those with most URLs put off first."""
    counts = {name: Counter[str]() for _, _, name in (key.partition(":") for key in shapes)}
    for key, number in shapes.items():
        word, _, name = key.partition(":")
        counts[name][word] = number
    words = []
    for name in sorted(counts, key=lambda name: (-counts[name]["denied"], -counts[name]["pages"], name))[:MOST_SHAPES]:
        count = counts[name]
        words.append(f"{name}: {count['denied']:,} not fetched")
        if count["pages"]:
            share = count["useless"] / count["pages"]
            words[-1] += f", after {count_of(count['pages'], 'page')}, {share:.0%} with nothing new"
    more = len(counts) - MOST_SHAPES
    return "; ".join(words) + (f"; and {count_of(more, 'more shape')}" if more > 0 else "")


def rendered_in_words(rendered: Mapping[str, int]) -> str:
    """Return why pages were in a browser, and which shapes of URLs need one. `rendered`: `Counts.rendered`."""
    reasons, shapes = Counter[str](), Counter[str]()
    for word, number in rendered.items():
        why, _, shape = word.partition(":")
        reasons[why] += number
        if shape:
            shapes[shape] += number
    words = ", ".join(f"{why} {number:,}" for why, number in reasons.most_common())
    named = ", ".join(f"{shape} {number:,}" for shape, number in shapes.most_common(MOST_SHAPES))
    more = len(shapes) - MOST_SHAPES
    also = f", and {count_of(more, 'more shape')}" if more > 0 else ""
    return f"{words}; these need a browser: {named}{also}" if shapes else words


def how_to_allow(reason: str, origin: str = "") -> str:
    """Return what to do about URLs denied for `reason`, for that of `origin` if it is given; "" for other reasons."""
    if reason in ACTIONS:
        return f'to follow such links, set scope.actions = "follow", then `crawler dead requeue --reason {reason}`'
    if reason in ("dropped", "response_dropped"):
        return (
            f"a function of the router has dropped it; once that is changed: `crawler dead requeue --reason {reason}`"
        )
    if reason in ("excluded", "not_included", "depth", "outside"):
        return f"it is out of scope now; once [scope] is corrected: `crawler dead requeue --reason {reason}`"
    port = urlsplit(origin).port or "N"
    option = {"forbidden_port": f"--port {port}", "forbidden_address": "--allow NET"}.get(reason)
    if option is None:
        return ""
    return (
        f"to allow it, repeat the command with {option} --apply-settings, then `crawler dead requeue --reason {reason}`"
    )
