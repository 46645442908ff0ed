"""Puts the tables of settings together, and loads them all.

The sources of a setting, in rising order of precedence, are its default, the TOML file, the environment
(``CRAWLER_POLITENESS__DELAY=2``) and the command line. An unknown or malformed key prevents startup.

`CrawlSettings` belong to the crawl: they are stored in Redis when the crawl is created,
so that all replicas use the same values. `ReplicaTable`, `IdentityTable` and `RequestsTable` are the settings of one
process. Lower layers see none of them: the composition root passes them only the values that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from crawler.errors import SettingsInvalid
from crawler.settings.archive_table import ArchiveTable
from crawler.settings.conversion import Conversion, build
from crawler.settings.crawl_tables import (
    FetchTable,
    FrontierTable,
    LimitsTable,
    PolitenessTable,
    RecrawlTable,
    ScheduleTable,
    ScopeTable,
)
from crawler.settings.extract_table import ExtractTable
from crawler.settings.handlers_table import HandlersTable
from crawler.settings.identity_table import IdentityTable
from crawler.settings.problems import raise_for
from crawler.settings.replica_table import ReplicaTable
from crawler.settings.requests_table import RequestsTable
from crawler.settings.sources import Source, from_environment, from_file, from_options, option_of, place_of
from crawler.settings.table import Table, keys_of


class CrawlSettings(Table, frozen=True, kw_only=True):
    """The settings of a crawl, which are the same on all replicas."""

    politeness: PolitenessTable = PolitenessTable()
    scope: ScopeTable = ScopeTable()
    limits: LimitsTable = LimitsTable()
    frontier: FrontierTable = FrontierTable()
    fetch: FetchTable = FetchTable()
    archive: ArchiveTable = ArchiveTable()
    handlers: HandlersTable = HandlersTable()
    app: dict[str, Any] = msgspec.field(default_factory=dict)
    recrawl: RecrawlTable = RecrawlTable()
    schedule: tuple[ScheduleTable, ...] = ()
    extract: tuple[ExtractTable, ...] = ()

    def flat(self) -> dict[str, Any]:
        """The settings as {"table.key": value}. A repeated table is one value, and so is one with free keys."""
        flat: dict[str, Any] = {}
        for name, declared in keys_of(type(self)).items():
            table = msgspec.to_builtins(getattr(self, name), enc_hook=str)
            is_one = not isinstance(table, dict) or declared.is_map
            keys = {name: table} if is_one else {f"{name}.{key}": value for key, value in table.items()}
            flat |= {key: list(value) if isinstance(value, tuple) else value for key, value in keys.items()}
        return flat

    def with_shards(self, shards: int) -> CrawlSettings:
        """These settings with another number of shards."""
        return replace(self, frontier=replace(self.frontier, shards=shards))

    @classmethod
    def of(cls, tables: Mapping[str, Any], place: str = "") -> CrawlSettings:
        """Return the settings with the values in `tables`, which are from `place`. Raises SettingsInvalid."""
        conversion = Conversion(_names()[0], lambda _: place)
        values = conversion.table(CrawlSettings, tables)
        raise_for(conversion.problems)
        return build(CrawlSettings, values)

    @classmethod
    def from_json(cls, text: bytes) -> CrawlSettings:
        place = "the crawl's stored settings"
        try:
            return cls.of(msgspec.json.decode(text, type=dict[str, Any]), place)
        except msgspec.DecodeError as error:
            raise SettingsInvalid((f"{place}: {error}",)) from error

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def doubts(self) -> list[str]:
        """Warnings about valid settings that have no effect and are probably a mistake."""
        polite = self.politeness
        if polite.parallel == 1 or not polite.delay:
            return []
        return [
            f"politeness.parallel = {polite.parallel} has no effect on a domain with a delay: set politeness.delay = 0, or "
            "run `crawler delay DOMAIN 0` for your own sites"
        ]


_LOCALHOST = {"localhost": ("127.0.0.1", "::1")}

EMBEDDED_SHARDS = 64
"""Shards of a crawl on one machine: enough for a handful of replicas, and cheap to poll."""


class Settings(CrawlSettings, frozen=True, kw_only=True):
    """All settings. The tables of the TOML file are the fields of `CrawlSettings`, `[replica]`, `[identity]` and
    `[[requests]]`."""

    replica: ReplicaTable = ReplicaTable()
    identity: IdentityTable = IdentityTable()
    requests: tuple[RequestsTable, ...] = ()

    _sources: tuple[Source, ...] = ()
    _added: dict[str, tuple[Any, ...]] = msgspec.field(default_factory=dict)

    @property
    def file_has_crawl_tables(self) -> bool:
        """Whether the settings file sets anything in a table of the crawl."""
        return bool(self._sources) and _has_crawl_tables(self._sources[0])

    @property
    def name_none_of_a_crawl(self) -> bool:
        """Whether neither file, environment nor options set any setting of a crawl."""
        return not (self._added or any(map(_has_crawl_tables, self._sources)))

    def names(self, name: str) -> bool:
        """Whether the file, the environment or an option sets the setting `name`, other than by adding to a list."""
        table, dot, key = name.partition(".")
        tables = [source.values[table] for source in self._sources if table in source.values]
        return any(key in keys for keys in tables) if dot else bool(tables)

    def place_of(self, name: str) -> str:
        """Where the setting `name` was set: a line of the file, an environment variable or an option; "" for a default."""
        return place_of(name, self._sources)

    @property
    def created(self) -> CrawlSettings:
        """The settings with which a crawl is created. The default number of shards depends on the store alone."""
        is_default = not self.names("frontier.shards")
        return self.crawl.with_shards(EMBEDDED_SHARDS) if is_default and not self.replica.redis else self.crawl

    def adding(self, allow: Sequence[str], ports: Sequence[int]) -> Settings:
        """Return these settings with more networks in `fetch.allow` and more ports in `fetch.ports`. `localhost`
        stands for both its addresses."""
        networks = tuple(address for name in allow for address in _LOCALHOST.get(name.lower(), (name,)))
        more = {key: items for key, items in (("allow", networks), ("ports", tuple(ports))) if items}
        added = {key: items for key, items in more.items() if not self.names(f"fetch.{key}")}
        return replace(self, fetch=extended(self.fetch, more), _added=added)

    @property
    def added(self) -> dict[str, tuple[Any, ...]]:
        """The items that `adding` has added to keys of `[fetch]` that are not set otherwise. An existing crawl gets them in
        addition to its own."""
        return self._added

    def onto(self, stored: CrawlSettings) -> CrawlSettings:
        """Return `stored`, updated with the values that are set explicitly here."""
        values: dict[str, Any] = {}
        for name in filter(self.names, keys_of(CrawlSettings)):
            table = getattr(self, name)
            if isinstance(table, Table):
                named = {key: getattr(table, key) for key in keys_of(type(table)) if self.names(f"{name}.{key}")}
                table = replace(getattr(stored, name), **named)
            values[name] = table
        return replace(stored, **values)

    @property
    def crawl(self) -> CrawlSettings:
        return CrawlSettings(**{name: getattr(self, name) for name in keys_of(CrawlSettings)})


def _has_crawl_tables(source: Source) -> bool:
    return any(values for table, values in source.values.items() if table in keys_of(CrawlSettings))


def extended(fetch: FetchTable, more: dict[str, tuple[Any, ...]]) -> FetchTable:
    """Return `fetch` with more items in some of its lists, by key."""
    lists = {key: tuple(dict.fromkeys([*getattr(fetch, key), *items])) for key, items in more.items()}
    return replace(fetch, **{k: tuple(sorted(v)) if k == "ports" else v for k, v in lists.items()})


def load(
    path: Path | None = None,
    flags: dict[str, dict[str, Any]] | None = None,
    named: Callable[[str], str] = option_of,
) -> Settings:
    """Load the settings from the defaults, the file at `path`, the environment, and `flags` ({table: {key: value}}).
    `named`: says what the flag of a setting is called.

    Raises SettingsInvalid, which names each unknown or malformed setting and where it was set, and UserError for a file
    that cannot be read.
    """
    names, lists = _names()
    file = from_file(path) if path else Source()
    sources = (file, from_environment(names, lists), from_options(flags or {}, named))
    problems = [problem for source in sources for problem in source.problems]
    merged: dict[str, Any] = {}
    for source in sources:
        conversion = Conversion(names, partial(place_of, sources=[source]), source.is_text)
        for table, values in conversion.table(Settings, source.values).items():
            merged[table] = (merged.get(table) or {}) | values if isinstance(values, dict) else values
        # Also a value that another source overrides: without it, this one would count.
        problems += conversion.problems
    raise_for(problems)
    return replace(build(Settings, merged), _sources=sources)


def _names() -> tuple[dict[str, list[str]], set[str]]:
    """The keys of each table, and the settings and tables that are lists."""
    tables = {name: {} if one.is_map else keys_of(one.type) for name, one in keys_of(Settings).items()}
    lists = {name for name, one in keys_of(Settings).items() if one.is_list}
    lists |= {f"{table}.{key}" for table, keys in tables.items() for key, one in keys.items() if one.is_list}
    return {table: list(keys) for table, keys in tables.items()}, lists
