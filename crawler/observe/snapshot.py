"""The state of a crawl as its observers see it: on the live page, and in `crawler status`, `top` and `crawl`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Generic, TypeVar

import msgspec

from crawler.observe import summary
from crawler.observe.condition import AWAY, Condition, condition_of
from crawler.observe.health_record import HealthRecord, health_records
from crawler.observe.summary import Summary
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import extract_rules
from frontier.clock import Clock, crawl_ms
from frontier.control import Control, DomainRules
from frontier.crawls import Crawl, FieldTypes, open_crawl
from frontier.errors import FrontierError
from frontier.keys import CrawlKeys, with_identity
from frontier.scripts import command
from frontier.store import RedisStore

T = TypeVar("T")


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
    """A summary together with the replicas, the operator's rules and the settings of the crawl. `max_pages`: 0 for no
    limit; `extracted`: the data sets of the rules in `[[extract]]`; `never_found`: the fields of these rules, as
    `data set.field`, of which no item of a data set with items has a value."""

    state: str
    condition: Condition
    replicas: list[HealthRecord]
    rules: list[DomainRule]
    settings_revision: int
    max_pages: int
    extracted: list[str] = msgspec.field(default_factory=list)
    never_found: list[str] = msgspec.field(default_factory=list)


class CrawlReader:
    """Reads snapshots of the crawl with `keys`. The operator's rules and the settings are read again only after a
    change."""

    def __init__(self, store: RedisStore, keys: CrawlKeys, served_by: str = "") -> None:
        self._store = store
        self._keys = keys
        self._served_by = served_by
        self._control = Control(store, keys)
        self._is_provisional = False  # the crawl is being resharded
        self._revision = 0
        self._max_pages = 0
        self._extracted: list[str] = []

    async def read(self) -> Snapshot:
        """Read what the replicas have written. The cost grows only with the number of replicas. Raises RedisAway."""
        records = await health_records(self._store, self._keys)
        await self._control.refresh()
        if self._control.has_other_shards or self._is_provisional:
            await self._reopen()
        if self._revision != self._control.settings_revision:
            (settings,) = await self._store.send([command("HGET", self._keys.meta, "settings")])
            read = CrawlSettings.from_json(settings) if settings else CrawlSettings()
            self._max_pages = read.limits.max_pages
            self._extracted = list(dict.fromkeys(rule.name for rule in read.extract))
            self._revision = self._control.settings_revision
        found = await summary.load(self._store, self._keys)
        is_old = found is not None and found.shards != len(self._keys.shards)  # it was written before a reshard
        return self._made(records, None if is_old else found)

    async def _reopen(self) -> None:
        """Read the shards that the crawl has now. While they are changed, they have identities of their own."""
        crawl = await open_crawl(self._store, self._keys.crawl, for_reshard=True)
        self._is_provisional = crawl.resharding is not None
        self._keys = with_identity(crawl.keys, "") if self._is_provisional else crawl.keys
        if not self._is_provisional:
            self._control = Control(self._store, self._keys)
            await self._control.refresh()

    async def complete(self, exact: bool = False) -> Snapshot:
        """Read a snapshot with a summary. If it must be `exact`, if no replica has written one, or if none is
        left to write the next one, the shards are surveyed. Raises RedisAway."""
        found = await self.read()
        if found.summary is not None and found.replicas and not exact:
            return found
        live = {record.replica for record in found.replicas}
        now_ms = int(await crawl_ms(self._store, self._keys.peers)())
        return self._made(found.replicas, await summary.take(self._store, self._keys, now_ms, "", live))

    def _made(self, records: list[HealthRecord], found: Summary | None) -> Snapshot:
        state, resharding = self._control.state, self._control.resharding
        return Snapshot(
            crawl=self._keys.crawl,
            served_by=self._served_by,
            state=state,
            condition=condition_of(state, records, found, self._max_pages)
            if resharding is None
            else Condition("resharding", "warn", [f"the crawl is {resharding}", resharding.advice]),
            replicas=records,
            rules=_listed(self._control.rules),
            max_pages=self._max_pages,
            extracted=self._extracted,
            summary=found,
        )


def _listed(rules: DomainRules) -> list[DomainRule]:
    blocked = [DomainRule(domain, None) for domain in sorted(rules.blocked)]
    return blocked + [DomainRule(domain, delay_s) for domain, delay_s in sorted(rules.delays.items())]


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
            self.error = str(error)


def aged(last: LastRead[Snapshot], crawl: str, served_by: str = "") -> Snapshot:
    """Return the last snapshot, marked as old if there is no newer one."""
    if last.value is not None and not last.error:
        return last.value
    return msgspec.structs.replace(
        last.value or Snapshot(crawl, served_by), condition=AWAY, error=last.error, age_s=round(last.age_s, 1)
    )


async def never_found(store: RedisStore, crawl: Crawl, counted: Mapping[str, int]) -> list[str]:
    """Return what `Status.never_found` is. `counted`: the number of items by data set. Raises RedisAway."""
    rules = [rule for rule in extract_rules(CrawlSettings.from_json(crawl.settings)) if counted.get(rule.name)]
    wanted = {(rule.name, field.name): None for rule in rules for field in rule.fields if field.is_found}
    known = await FieldTypes(store, crawl.keys).read() if wanted else {}
    return [f"{name}.{field}" for name, field in wanted if (name, field) not in known]


async def status(store: RedisStore, crawl: Crawl, exact: bool = True) -> Status:
    """Read the status of `crawl`. If not `exact`, its numbers may be some seconds old. Raises RedisAway."""
    found = await CrawlReader(store, crawl.keys).complete(exact)
    assert found.summary is not None
    condition = found.condition
    if crawl.left:
        condition = msgspec.structs.replace(condition, obstacles=[*condition.obstacles, crawl.left])
    return Status(
        **msgspec.structs.asdict(found.summary),
        state=found.state,
        condition=condition,
        replicas=found.replicas,
        rules=found.rules,
        settings_revision=crawl.revision,
        max_pages=found.max_pages,
        extracted=found.extracted,
        never_found=await never_found(store, crawl, found.summary.items),
    )
