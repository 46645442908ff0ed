"""Puts the tables of `crawl_settings` together, declares the settings of one replica (`[replica]`), and loads them all.

The sources of a setting, in rising order of precedence, are its default, the TOML file, the environment
(``CRAWLER_POLITENESS__DELAY=2``) and the command line. An unknown or malformed key prevents startup.

There are two kinds of tables. `CrawlSettings` belong to the crawl: they are stored in Redis when the crawl is created,
so that all replicas use the same values. `ReplicaSettings` belong to one process. Lower layers see neither: the
composition root passes them only the values that they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast, get_args, get_origin

from pydantic import Field, PositiveFloat, PrivateAttr, ValidationError, field_validator

from crawler.errors import SettingsInvalid
from crawler.settings.archive_settings import ArchiveTable
from crawler.settings.crawl_settings import (
    FetchTable,
    FrontierTable,
    LimitsTable,
    PolitenessTable,
    ScheduleTable,
    ScopeTable,
)
from crawler.settings.problems import describe, raise_for
from crawler.settings.sources import Source, from_environment, from_file, from_options, place_of
from crawler.settings.table import NotNegative, Table
from frontier.errors import BadInput
from frontier.store import check_url


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
                tuple(describe(error, _names()[0], lambda _: "the crawl's stored settings"))
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


LOCAL = frozenset(
    {
        *("archive.on_page", "archive.sinks", "frontier.scorer"),  # code
        *("fetch.allow", "fetch.allow_private", "fetch.host_map", "fetch.ports", "fetch.verify_tls"),  # the network
        *("archive.upload", "schedule.seeds"),  # files of the machine: where copies go, and what is read
    }
)
"""Settings of a crawl that a replica takes from Redis only if its own machine allows them (`crawler.settings.local`)."""


HIGHEST_PORT = 65_535

_LOCALHOST = {"localhost": ("127.0.0.1", "::1")}

EMBEDDED_SHARDS = 64
"""Shards of a crawl on one machine: enough for a handful of replicas, and cheap to poll."""


class ReplicaSettings(Table):
    """The settings of one process."""

    restart: ClassVar[str] = "each process reads it when it starts"

    accept: tuple[str, ...] = Field(
        (),
        description="Local settings of the crawl that this replica takes from Redis: `archive.on_page` accepts any value, "
        "`archive.on_page=package.module:function` this one. Values in the replica's own file, environment and command "
        "line need no entry.",
    )
    redis: str = Field("", description="URL of Redis or Valkey. Empty: use the embedded server in `data_dir`.")
    data_dir: Path = Field(Path(".crawler"), description="Folder in which the embedded server keeps its data.")
    out: Path = Field(Path("crawl-out"), description="Folder for WARC files and JSON lines.")
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = Field(
        64,
        description="Maximum number of requests in flight. Higher: more sites are fetched at once, and memory use "
        "grows by one response body per request.",
    )
    interval: PositiveFloat = Field(
        5.0,
        description="Seconds between two claims in the peer loop. A dead replica is removed after one to two "
        "intervals. Lower: dead replicas are replaced sooner; higher: fewer calls to Redis. With the embedded "
        "server, the default is 0.5.",
    )
    capacity: PositiveFloat = Field(
        1.0,
        description="Weight of this replica when shards are assigned. A replica with 2 gets twice the shards of one "
        "with 1.",
    )
    listen: str = Field(
        "127.0.0.1:0",
        description="ADDRESS:PORT at which the live page and /metrics are served; a PORT alone is on loopback. Port 0: use "
        "any free port. With `--replicas N`, ports count up from this one.",
    )
    advertise: str = Field(
        "", description="ADDRESS or ADDRESS:PORT at which other replicas reach `listen`. Empty: derived from `listen`."
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Host names under which the live page and /metrics may be addressed, such as that of a proxy. IP "
        "addresses, `localhost` and the name in `advertise` always work. Other names are refused, so that no web page can "
        "read the crawl's state through a browser in your network (DNS rebinding).",
    )
    grace: NotNegative = Field(
        20.0, description="Seconds to wait for requests in flight when the replica stops. The rest are then cancelled."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="Minimum severity of messages that are logged. `debug` logs each page. `crawler crawl` shows only "
        "warnings unless this is set.",
    )
    log: Literal["console", "json"] = Field(
        "console", description="Format of the log, which is written to standard error."
    )
    progress: NotNegative = Field(
        30.0,
        description="Seconds between two lines of progress in the log, if standard error is not a terminal. 0: none.",
    )

    @field_validator("redis")
    @classmethod
    def _is_redis(cls, url: str) -> str:
        try:
            return url and check_url(url)
        except BadInput as error:
            raise ValueError(error) from error

    @field_validator("listen")
    @classmethod
    def _is_address(cls, listen: str) -> str:
        port = listen.rpartition(":")[2]
        if not port.isdecimal():
            raise ValueError(f"{listen!r} is no address: write it as ADDRESS:PORT, such as 127.0.0.1:9410")
        if int(port) > HIGHEST_PORT:
            raise ValueError(f"{listen!r}: {port} is no port: use 1 to {HIGHEST_PORT}, or 0 for any free port")
        return listen

    @field_validator("accept")
    @classmethod
    def _are_local(cls, accept: tuple[str, ...]) -> tuple[str, ...]:
        for entry in accept:
            if entry.partition("=")[0] not in LOCAL:
                raise ValueError(f"{entry!r} names none of {', '.join(sorted(LOCAL))}")
        return accept


class Settings(CrawlSettings):
    """All settings. The tables of the TOML file are the fields of `CrawlSettings`, and `[replica]`."""

    replica: ReplicaSettings = ReplicaSettings()

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
        """Whether the settings file sets anything in a table other than `[replica]`."""
        tables = self._sources[0].values if self._sources else {}
        return any(values for table, values in tables.items() if table in CrawlSettings.model_fields)

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
    try:
        settings = Settings.read(*sources)
    except ValidationError as error:
        problems += describe(error, names, lambda name: place_of(name, sources))
    raise_for(problems)
    return settings


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
