"""The settings of one replica, `[replica]`. They are never read from Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, field_validator

from crawler.settings.table import NotNegative, Table
from frontier.errors import BadInput
from frontier.store import check_url

GUARDED = frozenset(
    {
        *("archive.on_page", "archive.sinks", "frontier.scorer"),  # code
        *("fetch.allow", "fetch.allow_private", "fetch.host_map", "fetch.ports", "fetch.verify_tls"),  # the network
        *("archive.upload", "schedule.seeds"),  # files of the machine: where copies go, and what is read
    }
)
"""Settings of a crawl that a replica takes from Redis only if its own machine allows them (`crawler.settings.guarded`)."""


HIGHEST_PORT = 65_535


class ReplicaTable(Table):
    """The settings of one process."""

    restart: ClassVar[str] = "each process reads it when it starts"

    accept: tuple[str, ...] = Field(
        (),
        description="Guarded settings of the crawl that this replica takes from Redis: `archive.on_page` accepts any "
        "value, `archive.on_page=package.module:function` this one. Values in the replica's own file, environment and "
        "command line need no entry.",
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
    log_format: Literal["console", "json"] = Field(
        "console", description="Format of the log, which is written to standard error."
    )
    progress: NotNegative = Field(
        30.0,
        description="Seconds between two lines of progress in the log. 0: none. Unless it is set, `crawler run` logs one "
        "every 5 seconds in a terminal.",
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
            if entry.partition("=")[0] not in GUARDED:
                raise ValueError(f"{entry!r} names none of {', '.join(sorted(GUARDED))}")
        return accept
