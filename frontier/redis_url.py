"""Reads the URL of a Redis server, a Redis Cluster or a server that Sentinels name, and shows it without its secrets.

    redis://USER:PASSWORD@HOST:PORT/DATABASE                    one server; rediss:// with TLS
    unix:///SOCKET                                              one server
    redis+cluster://USER:PASSWORD@HOST:PORT,HOST:PORT           a cluster, by some of its nodes; rediss+cluster:// with TLS
    redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/DB  the master NAME, by its Sentinels; rediss+sentinel://

Options of the connection follow after "?", named as in redis-py, which reads them. `valkey` and `valkeys` in place of
`redis` and `rediss` mean the same. For passwords that change, such as tokens of a cloud, there are two options of our
own, which are used for each new connection: `password_file`, the name of a file, and `password_command`, a command that
prints the password, run without a shell.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from ssl import SSLContext
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_plus, urlencode, urlsplit

import msgspec

from frontier.errors import BadInput

_UNKNOWN = re.compile(r"unexpected keyword argument '([\w-]+)'")


_SCHEME = re.compile(r"(?:rediss?|valkeys?)(\+cluster|\+sentinel)?")
_MASTER_NAME = re.compile(r"/([A-Za-z0-9][A-Za-z0-9_.-]*)(?:/(\d*))?")  # as Sentinel allows them
_PATH = re.compile(r"[/?#]")
_PORT, _SENTINEL_PORT = 6379, 26379

OPEN_OPTIONS = frozenset(
    (
        *(
            "address_map",
            "client_name",
            "db",
            "health_check_interval",
            "max_connections",
            "password_file",
            "protocol",
            "retry_on_timeout",
        ),
        *("socket_connect_timeout", "socket_keepalive", "socket_read_size", "socket_timeout", "timeout"),
        *("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_ciphers"),
        *("ssl_keyfile", "ssl_min_version", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled"),
    )
)
"""The options that are shown. All others may be a secret, or hold one."""

_FILLED_IN = {"username": "USER", "password": "PASSWORD", "ssl_password": "PASSWORD", "password_command": "COMMAND"}
_FILLED_IN |= {f"sentinel_{name}": _FILLED_IN[name] for name in ("username", "password")}
"""The other options that a connection may need -> what stands for the value in a command to be copied."""


class Address(NamedTuple):
    """Where a server listens: a host and a port, or the path of a Unix socket and 0."""

    host: str
    port: int

    @property
    def name(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else self.host


COMMAND_S, KEPT_S = 30.0, 20.0
"""How long a command that prints a password may take, and for how long its answer serves further connections."""


class ChangingPassword:
    """The password in the file `file`, or that which `command` prints."""

    def __init__(self, file: str, command: str) -> None:
        self._file = file
        self._words = shlex.split(command)
        self._running: asyncio.Task[str] | None = None
        self._fresh_until = 0.0  # monotonic seconds

    async def read(self) -> str:
        """Return the password without white space around it. Raises OSError; the message has nothing that was printed."""
        if self._file:
            return (await asyncio.to_thread(Path(self._file).read_text, encoding="utf-8")).strip()
        task = self._running
        if task is None or (task.done() and (task.exception() or time.monotonic() > self._fresh_until)):
            task = self._running = asyncio.create_task(self._run())
        return await asyncio.shield(task)  # a connection may have less time than the command needs

    async def _run(self) -> str:
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *self._words, stdin=quiet, stdout=asyncio.subprocess.PIPE, stderr=quiet
        )
        try:
            async with asyncio.timeout(COMMAND_S):
                printed, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode or not printed.strip():
            raise OSError(f"password_command in the Redis URL printed nothing, or failed (code {process.returncode})")
        self._fresh_until = time.monotonic() + KEPT_S
        return printed.decode(errors="replace").strip()


class Access(msgspec.Struct, frozen=True):
    """What a connection needs besides an address. `changing`: has the password if it may change."""

    username: str = ""
    password: str = ""
    database: int = 0
    client_name: str = ""
    tls: SSLContext | None = None
    changing: ChangingPassword | None = None

    async def current_password(self) -> str:
        """The password for a new connection, "" for none. Raises OSError if it cannot be read."""
        return self.password if self.changing is None else await self.changing.read()


class RedisUrl(msgspec.Struct, frozen=True):
    """A URL's parts. `kind`: "", "cluster" or "sentinel". `reachable`: for nodes that cannot be reached by the address that
    they announce, the name of that address -> another. `timeout_s`: bounds each reply, `connect_timeout_s` each connection;
    None if the URL does not say."""

    kind: str
    hosts: tuple[Address, ...]
    access: Access
    reachable: Mapping[str, Address]
    timeout_s: float | None
    connect_timeout_s: float | None
    master: str = ""
    sentinel_access: Access = Access()

    def reach(self, announced: Address) -> Address:
        """Where a node can be reached that announces itself as `announced`."""
        return self.reachable.get(announced.name, announced)


def read_url(url: str) -> RedisUrl:
    """Parse `url`. Raises BadInput; the message does not repeat what may be a secret."""
    check_url(url)
    parts = _split(url)
    if parts.scheme == "unix" and not parts.netloc and not parts.query:
        return RedisUrl("", _hosts(parts), Access(), {}, None, None)

    query = dict(parse_qsl(parts.query))
    kind = parts.scheme.partition("+")[2]
    named = _MASTER_NAME.fullmatch(parts.path) if kind == "sentinel" else None
    try:
        reachable = _address_map(query.pop("address_map", ""))
        changing = (query.pop("password_file", ""), query.pop("password_command", ""))
        sentinel = Access(query.pop("sentinel_username", ""), query.pop("sentinel_password", ""))
        hosts = _hosts(parts)
        one = parts._replace(
            scheme=parts.scheme.partition("+")[0].replace("valkey", "redis"),
            netloc=parts.netloc.rpartition("@")[0] + "@" + hosts[0].name if parts.netloc else "",
            path=f"/{named[2] or 0}" if named else parts.path,
            query=urlencode(query),
        )
        access, timeout_s, connect_s = _options(one.geturl())
        if changing[0]:
            _check_readable(changing[0])
        if any(changing):
            access = msgspec.structs.replace(access, changing=ChangingPassword(*changing))
        if access.database and kind == "cluster":
            raise ValueError(f"a cluster has no database {access.database}, only 0: leave it out")
    except ValueError as error:
        raise BadInput(f"Redis URL {display_url(url)}: {error}") from error
    sentinel = msgspec.structs.replace(sentinel, tls=access.tls)
    return RedisUrl(kind, hosts, access, reachable, timeout_s, connect_s, named[1] if named else "", sentinel)


def _check_readable(name: str) -> None:
    """Raises ValueError if the password file `name` cannot be read: one that is missing at the start is a mistake."""
    try:
        Path(name).open("rb").close()
    except OSError as error:
        raise ValueError(f"password_file {name} cannot be read: {error.strerror}") from error


def _options(url: str) -> tuple[Access, float | None, float | None]:
    """The options in the `url` of one server, as redis-py reads them, and its limits. Raises ValueError."""
    # Imported here, since it takes a tenth of the CPU time in which a replica starts, and a local crawl does not need it.
    from redis.asyncio.connection import Connection, SSLConnection  # noqa: PLC0415
    from redis.asyncio.connection import parse_url as parse_options  # noqa: PLC0415
    from redis.exceptions import RedisError  # noqa: PLC0415

    options: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": None, **parse_options(url)}
    options.pop("max_connections", None)
    kind = options.pop("connection_class", Connection)
    try:
        holder = kind(**options)  # never opened: it checks and holds the options
        tls = holder.ssl_context.get() if isinstance(holder, SSLConnection) else None
    except TypeError as error:
        if unknown := _UNKNOWN.search(str(error)):
            meant = unknown[1].replace("-", "_")
            hint = f" (did you mean {meant}?)" if meant != unknown[1] else ""
            raise ValueError(f"there is no option {unknown[1]!r}{hint}; they are named as in redis-py") from error
        raise ValueError(str(error)) from error
    except (OSError, RedisError) as error:
        raise ValueError(str(error)) from error
    access = Access(holder.username or "", holder.password or "", int(holder.db or 0), holder.client_name or "", tls)
    return access, holder.socket_timeout, holder.socket_connect_timeout


def _split(url: str) -> SplitResult:
    """`url` as urlsplit divides it, which in newer versions of Python refuses several hosts if one is an IPv6 address."""
    before, slashes, rest = url.partition("://")
    path = _PATH.search(rest)
    end = path.start() if path else len(rest)
    parts = urlsplit(before + slashes + rest[end:])
    return parts._replace(netloc=rest[:end]) if slashes else parts


def _hosts(parts: SplitResult) -> tuple[Address, ...]:
    if parts.scheme == "unix":
        return (Address(unquote(parts.path), 0),)
    port = _SENTINEL_PORT if parts.scheme.endswith("+sentinel") else _PORT
    return tuple(_address(host, port) for host in parts.netloc.rpartition("@")[2].split(","))


def _address(text: str, port: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.port == 0 or parts.username is not None or parts.path:
        raise ValueError("a host is missing, or its port is not a number from 1 to 65535")
    return Address(parts.hostname, parts.port or port)


def _address_map(text: str) -> dict[str, Address]:
    pairs = [pair.partition("=")[::2] for pair in text.split(",") if pair]
    if not all(announced and reachable for announced, reachable in pairs):
        raise ValueError("address_map is a list of ANNOUNCED=REACHABLE, separated by commas")
    return {_address(announced, _PORT).name: _address(reachable, _PORT) for announced, reachable in pairs}


def check_url(url: str) -> str:
    """Returns `url`, or raises BadInput without repeating it: any part of it may be the password."""
    try:
        parts = _split(url)
        query = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
        if not parts.fragment and _is_known(parts.scheme, parts.netloc, parts.path, dict(query).get("db")):
            return url
    except ValueError:
        pass
    raise BadInput(
        "the Redis URL cannot be used; write it as redis://USER:PASSWORD@HOST:PORT/DATABASE, rediss:// (TLS), "
        "redis+cluster://HOST:PORT,HOST:PORT, redis+sentinel://HOST:PORT,HOST:PORT/NAME/DATABASE or unix:///SOCKET, with "
        "special characters of user and password %-encoded"
    )


def _is_known(scheme: str, netloc: str, path: str, database: str | None) -> bool:
    if scheme == "unix":
        return bool(path)
    hosts = netloc.rpartition("@")[2].split(",")
    if not _SCHEME.fullmatch(scheme) or ("+" not in scheme and len(hosts) > 1):
        return False
    for host in hosts:
        _address(host, _PORT)
    if scheme.endswith("+sentinel"):
        return bool(_MASTER_NAME.fullmatch(path))
    chosen = database if database is not None else path.removeprefix("/")
    return chosen.isdecimal() or not chosen


def display_url(url: str) -> str:
    """`url` for messages: scheme, hosts, ports and path. All other parts may be secret."""
    try:
        parts = _split(url)
        hosts = [urlsplit(f"//{host}") for host in parts.netloc.rpartition("@")[2].split(",")]
        shown = [(host.hostname or "", host.port) for host in hosts]
    except ValueError:
        return "(malformed URL)"
    if not parts.scheme:
        return url
    names = [f"[{host}]" if ":" in host else host for host, _ in shown]
    ports = ["" if port is None else f":{port}" for _, port in shown]
    return f"{parts.scheme}://{','.join(map(''.join, zip(names, ports, strict=True)))}{parts.path}"


def url_to_copy(url: str) -> str:
    """`url` for commands to be copied: with its options, and USER and PASSWORD in place of what has to be filled in."""
    shown = display_url(url)
    if shown == "(malformed URL)":
        return shown
    parts = _split(url)
    if "@" in parts.netloc:
        shown = shown.replace("://", "://USER:PASSWORD@", 1)
    options: list[str] = []
    for option in filter(None, parts.query.split("&")):
        name = unquote_plus(option.partition("=")[0])
        if name in OPEN_OPTIONS:
            options.append(option)
        elif name in _FILLED_IN:
            options.append(f"{name}={_FILLED_IN[name]}")
    return f"{shown}?{'&'.join(options)}" if options else shown
