"""The settings of one replica, `[replica]`. They are never read from Redis."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from crawler.errors import UserError
from crawler.settings.table import NotNegative, PositiveFloat, Table
from frontier.redis_url import check_url

GUARDED = frozenset(
    {
        *("archive.on_page", "archive.sinks", "frontier.scorer", "handlers.app"),  # code
        *("fetch.allow", "fetch.allow_private", "fetch.host_map", "fetch.ports", "fetch.verify_tls"),  # the network
        *("archive.upload", "schedule.seeds"),  # files of the machine: where copies go, and what is read
    }
)
"""Settings of a crawl that a replica takes from Redis only if its own machine allows them (`crawler.settings.guarded`)."""


HIGHEST_PORT = 65_535


def _check_address(listen: str) -> None:
    port = listen.rpartition(":")[2]
    if not port.isdecimal():
        raise UserError(f"{listen!r} is not an address: write it as ADDRESS:PORT, such as 127.0.0.1:9410")
    if int(port) > HIGHEST_PORT:
        raise UserError(f"{listen!r}: {port} is not a port: use 1 to {HIGHEST_PORT}, or 0 for any free port")


def _check_guarded(accept: tuple[str, ...]) -> None:
    for entry in accept:
        if entry.partition("=")[0] not in GUARDED:
            raise UserError(f"{entry!r} names none of {', '.join(sorted(GUARDED))}")


class ReplicaTable(Table, frozen=True, kw_only=True):
    """The settings of one process."""

    restart: ClassVar[str] = "each process reads it when it starts"

    accept: Annotated[
        tuple[str, ...],
        Meta(extra={"check": _check_guarded}),
        "Guarded settings of the crawl that this replica takes from Redis: `archive.on_page` accepts any "
        "value, `archive.on_page=package.module:function` this one. Values in the replica's own file, environment and "
        "command line need no entry.",
    ] = ()
    redis: Annotated[
        str,
        Meta(extra={"check": lambda url: url and check_url(url)}),
        "URL of Redis or Valkey. Empty: use the embedded server in `data_dir`.",
    ] = ""
    data_dir: Annotated[Path, "Folder in which the embedded server keeps its data."] = Path(".crawler")
    out: Annotated[Path, "Folder for WARC files and JSON lines."] = Path("crawl-out")
    concurrency: Annotated[
        int,
        Meta(ge=1, le=10_000),
        "Maximum number of requests in flight. Higher: more sites are fetched at once, and memory use "
        "grows by one response body per request.",
    ] = 64
    interval: Annotated[
        PositiveFloat,
        "Seconds between two claims in the peer loop. A dead replica is removed after one to two and an eighth "
        "intervals. Lower: dead replicas are replaced sooner; higher: fewer calls to Redis. With the embedded "
        "server, the default is 0.5.",
    ] = 5.0
    capacity: Annotated[
        PositiveFloat,
        "Weight of this replica when shards are assigned. A replica with 2 gets twice the shards of one with 1.",
    ] = 1.0
    listen: Annotated[
        str,
        Meta(extra={"check": _check_address}),
        "ADDRESS:PORT at which the live page and /metrics are served; a PORT alone is on loopback. Port 0: use "
        "any free port. With `--replicas N`, ports count up from this one.",
    ] = "127.0.0.1:0"
    advertise: Annotated[
        str, "ADDRESS or ADDRESS:PORT at which other replicas reach `listen`. Empty: derived from `listen`."
    ] = ""
    hosts: Annotated[
        tuple[str, ...],
        "Host names under which the live page and /metrics may be addressed, such as that of a proxy. IP "
        "addresses, `localhost` and the name in `advertise` always work. Other names are refused, so that no web page can "
        "read the crawl's state through a browser in your network (DNS rebinding).",
    ] = ()
    grace: Annotated[
        NotNegative, "Seconds to wait for requests in flight when the replica stops. The rest are then cancelled."
    ] = 20.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        "Minimum severity of messages that are logged. `debug` logs each page. `crawler crawl` shows only "
        "warnings unless this is set.",
    ] = "info"
    log_format: Annotated[Literal["console", "json"], "Format of the log, which is written to standard error."] = (
        "console"
    )
    progress: Annotated[
        NotNegative,
        "Seconds between two lines of progress in the log. 0: none. Unless it is set, `crawler run` logs one "
        "every 5 seconds in a terminal.",
    ] = 30.0
