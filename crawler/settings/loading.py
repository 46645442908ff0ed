"""Puts the tables of settings together, and loads them all.

The sources of a setting, in rising order of precedence, are its default, the TOML file, the environment
(``CRAWLER_POLITENESS__DELAY=2``) and the command line. An unknown or malformed key prevents startup.

`CrawlSettings` belong to the crawl: they are stored in Redis when the crawl is created,
so that all replicas use the same values. `ReplicaTable` and `IdentityTable` are the settings of one process. Lower
layers see none of them: the composition root passes them only the values that they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from pydantic import PrivateAttr, ValidationError

from crawler.errors import SettingsInvalid
from crawler.settings.archive_table import ArchiveTable
from crawler.settings.crawl_tables import (
    FetchTable,
    FrontierTable,
    LimitsTable,
    PolitenessTable,
    ScheduleTable,
    ScopeTable,
)
from crawler.settings.identity_table import IdentityTable
from crawler.settings.problems import describe, raise_for
from crawler.settings.replica_table import ReplicaTable
from crawler.settings.sources import Source, from_environment, from_file, from_options, place_of
from crawler.settings.table import Table


class CrawlSettings(Table):
    """The settings of a crawl, which are the same on all replicas."""

    politeness: PolitenessTable = PolitenessTable()
    scope: ScopeTable = ScopeTable()
    limits: LimitsTable = LimitsTable()
    frontier: FrontierTable = FrontierTable()
    fetch: FetchTable = FetchTable()
    archive: ArchiveTable = ArchiveTable()
    schedule: tuple[ScheduleTable, ...] = ()

    def flat(self) -> dict[str, Any]:
        """The settings as {"table.key": value}. A repeated table is one value."""
        flat: dict[str, Any] = {}
        for table, keys in self.model_dump(mode="json").items():
            flat |= (
                {f"{table}.{key}": value for key, value in keys.items()} if isinstance(keys, dict) else {table: keys}
            )
        return flat

    def with_shards(self, shards: int) -> CrawlSettings:
        """These settings with another number of shards."""
        return self.model_copy(update={"frontier": self.frontier.model_copy(update={"shards": shards})})

    @classmethod
    def from_json(cls, text: bytes) -> CrawlSettings:
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise SettingsInvalid(
                tuple(describe(error.errors(), _names()[0], lambda _: "the crawl's stored settings"))
            ) from error

    def to_json(self) -> bytes:
        return self.model_dump_json().encode()

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


class Settings(CrawlSettings):
    """All settings. The tables of the TOML file are the fields of `CrawlSettings`, `[replica]` and `[identity]`."""

    replica: ReplicaTable = ReplicaTable()
    identity: IdentityTable = IdentityTable()

    _sources: tuple[Source, ...] = PrivateAttr(())
    _added: dict[str, tuple[Any, ...]] = PrivateAttr(default_factory=dict)

    @classmethod
    def read(cls, *sources: Source) -> Settings:
        """Merge the sources, in rising precedence: first the file. Raises ValidationError."""
        merged: dict[str, Any] = {}
        for source in sources:
            _merge(merged, source.values)
        made = cls(**merged)
        made._sources = sources
        return made

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
        is_default = "shards" not in self.frontier.model_fields_set
        return self.crawl.with_shards(EMBEDDED_SHARDS) if is_default and not self.replica.redis else self.crawl

    def adding(self, allow: Sequence[str], ports: Sequence[int]) -> Settings:
        """Return these settings with more networks in `fetch.allow` and more ports in `fetch.ports`. `localhost`
        stands for both its addresses."""
        networks = tuple(address for name in allow for address in _LOCALHOST.get(name.lower(), (name,)))
        named, more = self.fetch.model_fields_set, {"allow": networks, "ports": tuple(ports)}
        made = self.model_copy(update={"fetch": extended(self.fetch, {key: more[key] for key in more if more[key]})})
        made._added = {key: values for key, values in more.items() if values and key not in named}
        return made

    @property
    def added(self) -> dict[str, tuple[Any, ...]]:
        """The items that `adding` has added to keys of `[fetch]` that are not set otherwise. An existing crawl gets them in
        addition to its own."""
        return self._added

    def onto(self, stored: CrawlSettings) -> CrawlSettings:
        """Return `stored`, updated with the values that are set explicitly here."""
        values: dict[str, Any] = {}
        for name in self.model_fields_set & CrawlSettings.model_fields.keys():
            table = getattr(self, name)
            if isinstance(table, Table):
                named = {key: getattr(table, key) for key in table.model_fields_set}
                table = getattr(stored, name).model_copy(update=named)
            values[name] = table
        return stored.model_copy(update=values)

    @property
    def crawl(self) -> CrawlSettings:
        return CrawlSettings(**{name: getattr(self, name) for name in CrawlSettings.model_fields})


def _has_crawl_tables(source: Source) -> bool:
    return any(values for table, values in source.values.items() if table in CrawlSettings.model_fields)


def extended(fetch: FetchTable, more: dict[str, tuple[Any, ...]]) -> FetchTable:
    """Return `fetch` with more items in some of its lists, by key."""
    lists = {key: tuple(dict.fromkeys([*getattr(fetch, key), *items])) for key, items in more.items()}
    return fetch.model_copy(update={k: tuple(sorted(v)) if k == "ports" else v for k, v in lists.items()})


def load(path: Path | None = None, flags: dict[str, dict[str, Any]] | None = None) -> Settings:
    """Load the settings from the defaults, the file at `path`, the environment, and `flags` ({table: {key: value}}).

    Raises SettingsInvalid, which names each unknown or malformed setting and where it was set, and UserError for a file
    that cannot be read.
    """
    names, lists = _names()
    file = from_file(path) if path else Source()
    sources = (file, from_environment(names, lists), from_options(flags or {}))
    problems = [problem for source in sources for problem in source.problems]
    problems += [line for source in sources for line in _problems_of(source, names)]
    try:
        settings = Settings.read(*sources)
    except ValidationError as error:
        problems += describe(error.errors(), names, lambda name: place_of(name, sources))
    raise_for(problems)
    return settings


def _problems_of(source: Source, names: dict[str, list[str]]) -> list[str]:
    """What is wrong with single values of `source`, also with those that another source overrides: without it, they
    would count."""
    try:
        Settings.read(source)
    except ValidationError as error:
        single = [one for one in error.errors() if len(one["loc"]) > 1 or one["type"] == "model_type"]
        return describe(single, names, lambda name: place_of(name, [source]))
    return []


def _names() -> tuple[dict[str, list[str]], set[str]]:
    """The keys of each table, and the settings and tables that are lists."""
    names: dict[str, list[str]] = {}
    lists = set()
    for table, field in Settings.model_fields.items():
        is_repeated = get_origin(field.annotation) is tuple
        model = cast(type[Table], get_args(field.annotation)[0] if is_repeated else field.annotation)
        names[table] = list(model.model_fields)
        lists |= {table} if is_repeated else set()
        lists |= {f"{table}.{key}" for key, one in model.model_fields.items() if get_origin(one.annotation) is tuple}
    return names, lists


def _merge(into: dict[str, Any], layer: dict[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, dict) else value
