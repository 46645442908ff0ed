"""Reads the options in the URL of one Redis server, with redis-py."""

from __future__ import annotations

import re
from ssl import SSLContext
from typing import Any, NamedTuple

from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.connection import parse_url as parse_options
from redis.exceptions import RedisError

_UNKNOWN = re.compile(r"unexpected keyword argument ('\w+')")


class RedisOptions(NamedTuple):
    """What a URL says besides the address. `timeout_s` bounds each reply, `connect_timeout_s` each connection; None if the
    URL does not say."""

    username: str
    password: str
    database: int
    client_name: str
    tls: SSLContext | None
    timeout_s: float | None
    connect_timeout_s: float | None


def options_of(url: str) -> RedisOptions:
    """The options of `url`. Raises ValueError if redis-py refuses one of them."""
    options: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": None, **parse_options(url)}
    options.pop("max_connections", None)
    kind = options.pop("connection_class", Connection)
    try:
        made = kind(**options)  # never opened: it checks and holds the options
        tls = made.ssl_context.get() if isinstance(made, SSLConnection) else None
    except TypeError as error:
        if unknown := _UNKNOWN.search(str(error)):
            raise ValueError(f"there is no option {unknown[1]}; they are named as in redis-py") from error
        raise ValueError(str(error)) from error
    except (OSError, RedisError) as error:
        raise ValueError(str(error)) from error
    return RedisOptions(
        made.username or "",
        made.password or "",
        int(made.db or 0),
        made.client_name or "",
        tls,
        made.socket_timeout,
        made.socket_connect_timeout,
    )
