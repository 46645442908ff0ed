"""Every setting, declared once: meaning, unit, default, and what happens when it is raised or lowered.

A setting comes from, in rising order of precedence, its default, the TOML file, the environment
(``CRAWLER_POLITENESS__DELAY=2``) and the command line. Unknown or malformed keys stop the start.

The tables are of two sorts. `CrawlSettings` belong to the crawl: they are stored in Redis when the crawl is created, so
that all replicas obey the same ones. `ReplicaSettings` belong to one process. Lower layers never see either: the
composition root hands them their few values.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field, PositiveFloat, PrivateAttr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from crawler.errors import UserError
from crawler.settings.tables import (
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

T = TypeVar("T")


class CrawlSettings(Table):
    """What belongs to the crawl and is the same on all replicas."""

    politeness: PolitenessTable = PolitenessTable()
    scope: ScopeTable = ScopeTable()
    limits: LimitsTable = LimitsTable()
    frontier: FrontierTable = FrontierTable()
    fetch: FetchTable = FetchTable()
    archive: ArchiveTable = ArchiveTable()
    schedule: tuple[DutyTable, ...] = ()

    def flat(self) -> dict[str, Any]:
        """{"table.key": value}; a repeated table is one value."""
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
        """What is allowed, and can hardly be meant."""
        polite = self.politeness
        if polite.parallel == 1 or not polite.delay:
            return []
        return [
            f"politeness.parallel = {polite.parallel} has no effect on a domain with a delay: set politeness.delay = 0, or "
            "say `crawler delay DOMAIN 0` of your own sites"
        ]


class ReplicaSettings(Table):
    """What belongs to one process."""

    restart: ClassVar[str] = "it belongs to one process, which reads it at its start"

    redis: str = Field("", description="URL of Redis or Valkey; empty: the embedded server in `data_dir`.")
    data_dir: Path = Field(Path(".crawler"), description="Where the embedded server keeps its data.")
    out: Path = Field(Path("crawl-out"), description="Folder for WARC files and JSON lines.")
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = Field(
        64, description="Requests in flight at most. Higher: more sites at once; memory grows by a body each."
    )
    interval: PositiveFloat = Field(
        5.0, description="Seconds between two claims in the peer loop; a dead replica is out after one to two of them."
    )
    capacity: PositiveFloat = Field(1.0, description="Weight in the share-out of shards.")
    listen: str = Field("127.0.0.1:0", description="Address of the live page and /metrics; port 0: a free one.")
    advertise: str = Field(
        "", description="ADDRESS or ADDRESS:PORT under which others reach `listen`; empty: found out from it."
    )
    grace: NotNegative = Field(20.0, description="Seconds that requests in flight are waited for when stopping.")
    log_level: Literal["info", "warning", "error"] = Field("info", description="What is logged: this and worse.")
    log: Literal["console", "json"] = Field("console", description="Format of the log on standard error.")


class Settings(BaseSettings):
    """The whole: the TOML file's tables are the fields of `CrawlSettings` and `[replica]`."""

    model_config = SettingsConfigDict(
        env_prefix="CRAWLER_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    politeness: PolitenessTable = PolitenessTable()
    scope: ScopeTable = ScopeTable()
    limits: LimitsTable = LimitsTable()
    frontier: FrontierTable = FrontierTable()
    fetch: FetchTable = FetchTable()
    archive: ArchiveTable = ArchiveTable()
    schedule: tuple[DutyTable, ...] = ()
    replica: ReplicaSettings = ReplicaSettings()

    _file_has_crawl_tables: bool = PrivateAttr(False)

    @classmethod
    def read(cls, file: dict[str, Any], *layers: dict[str, Any]) -> Settings:
        """The settings of a file's tables and of the layers above them, the topmost last. Raises ValidationError."""
        merged: dict[str, Any] = {}
        for layer in (file, *layers):
            _merge(merged, layer)
        made = cls(**merged)
        made._file_has_crawl_tables = bool(file.keys() & CrawlSettings.model_fields.keys())
        return made

    @property
    def file_has_crawl_tables(self) -> bool:
        """Whether there is a settings file with more than `[replica]`."""
        return self._file_has_crawl_tables

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Command line above environment above file: `load` hands both others over as init values.
        return (init_settings,)

    @property
    def crawl(self) -> CrawlSettings:
        return CrawlSettings(
            politeness=self.politeness,
            scope=self.scope,
            limits=self.limits,
            frontier=self.frontier,
            fetch=self.fetch,
            archive=self.archive,
            schedule=self.schedule,
        )


def load(path: Path | None = None, flags: dict[str, dict[str, Any]] | None = None) -> Settings:
    """The settings from defaults, the file at `path`, the environment, and `flags` ({table: {key: value}}).

    Raises UserError, naming the key, for anything unknown or malformed.
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
    return EnvSettingsSource(Settings)()


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
        told = "there is no such setting" if first["type"] == "extra_forbidden" else first["msg"]
        raise UserError(f"{where}: {key}: {told}; see `crawler config explain`") from error
