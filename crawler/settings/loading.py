"""Puts the tables of `crawl_settings` together, declares the settings of one replica (`[replica]`), and loads them all.

The sources of a setting, in rising order of precedence, are its default, the TOML file, the environment
(``CRAWLER_POLITENESS__DELAY=2``) and the command line. An unknown or malformed key prevents startup.

There are two kinds of tables. `CrawlSettings` belong to the crawl: they are stored in Redis when the crawl is created,
so that all replicas use the same values. `ReplicaSettings` belong to one process. Lower layers see neither: the
composition root passes them only the values that they need.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import Field, PositiveFloat, PrivateAttr, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from crawler.errors import UserError
from crawler.settings.crawl_settings import (
    ArchiveTable,
    DutyTable,
    FetchTable,
    FrontierTable,
    LimitsTable,
    NotNegative,
    PolitenessTable,
    ScopeTable,
    Table,
)
from frontier.errors import BadInput
from frontier.store import check_url

T = TypeVar("T")


class CrawlSettings(Table):
    """The settings of a crawl, which are the same on all replicas."""

    politeness: PolitenessTable = PolitenessTable()
    scope: ScopeTable = ScopeTable()
    limits: LimitsTable = LimitsTable()
    frontier: FrontierTable = FrontierTable()
    fetch: FetchTable = FetchTable()
    archive: ArchiveTable = ArchiveTable()
    schedule: tuple[DutyTable, ...] = ()

    def flat(self) -> dict[str, Any]:
        """The settings as {"table.key": value}. A repeated table is one value."""
        flat: dict[str, Any] = {}
        for table, keys in self.model_dump(mode="json").items():
            flat |= (
                {f"{table}.{key}": value for key, value in keys.items()} if isinstance(keys, dict) else {table: keys}
            )
        return flat

    @classmethod
    def from_json(cls, text: bytes) -> CrawlSettings:
        return _checked(lambda: cls.model_validate_json(text), "the crawl's stored settings")

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
        "intervals. Lower: dead replicas are replaced sooner; higher: fewer calls to Redis.",
    )
    capacity: PositiveFloat = Field(
        1.0,
        description="Weight of this replica when shards are assigned. A replica with 2 gets twice the shards of one "
        "with 1.",
    )
    listen: str = Field(
        "127.0.0.1:0",
        description="ADDRESS:PORT at which the live page and /metrics are served; a PORT alone is on loopback. Port 0: use "
        "any free port.",
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
    log_level: Literal["info", "warning", "error"] = Field(
        "info", description="Minimum severity of messages that are logged."
    )
    log: Literal["console", "json"] = Field(
        "console", description="Format of the log, which is written to standard error."
    )

    @field_validator("redis")
    @classmethod
    def _is_redis(cls, url: str) -> str:
        try:
            return url and check_url(url)
        except BadInput as error:
            raise ValueError(error) from error

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

    _file_has_crawl_tables: bool = PrivateAttr(False)

    @classmethod
    def read(cls, file: dict[str, Any], *layers: dict[str, Any]) -> Settings:
        """Merge the tables of a file with the layers that override them, in rising precedence. Raises ValidationError."""
        merged: dict[str, Any] = {}
        for layer in (file, *layers):
            _merge(merged, layer)
        made = cls(**merged)
        made._file_has_crawl_tables = bool(file.keys() & CrawlSettings.model_fields.keys())
        return made

    @property
    def file_has_crawl_tables(self) -> bool:
        """Whether the settings file has any table other than `[replica]`."""
        return self._file_has_crawl_tables

    @property
    def crawl(self) -> CrawlSettings:
        return CrawlSettings(**{name: getattr(self, name) for name in CrawlSettings.model_fields})


def load(path: Path | None = None, flags: dict[str, dict[str, Any]] | None = None) -> Settings:
    """Load the settings from the defaults, the file at `path`, the environment, and `flags` ({table: {key: value}}).

    Raises UserError, which names the key, for an unknown or malformed setting.
    """
    layers = (_read_file(path) if path else {}, _environment(), flags or {})
    return _checked(lambda: Settings.read(*layers), str(path) if path else "settings")


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"settings file {path} is not TOML: {error}") from error


def _environment() -> dict[str, Any]:
    model = cast(type[BaseSettings], Settings)  # it uses only the fields of the model
    try:
        return EnvSettingsSource(model, env_prefix="CRAWLER_", env_nested_delimiter="__")()
    except SettingsError as error:
        raise UserError(f"environment: {error}; write lists as JSON, such as CRAWLER_FETCH__PORTS='[80]'") from error


def _merge(into: dict[str, Any], layer: dict[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, dict) else value


def _checked(build: Callable[[], T], where: str) -> T:
    try:
        return build()
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        problem = "there is no such setting" if first["type"] == "extra_forbidden" else first["msg"]
        raise UserError(f"{where}: {key}: {problem}; see `crawler config explain`") from error
