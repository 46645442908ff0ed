"""What the machine of a replica adds to its requests: signatures with the keys of `[identity]`, and the rules in
`[[requests]]` with their secrets. `crawler.identity.web_bot_auth` makes the signatures."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from crawler.errors import UserError
from crawler.fetch.address_policy import HostMap
from crawler.http_head import Secret
from crawler.identity.published import KEY_SET_FIELD
from crawler.parse.encoding import encoding_named
from crawler.settings.load import CrawlSettings, Settings
from crawler.settings.policies import addresses
from crawler.settings.tables import DIRECT, IdentityTable, RequestsTable, check_value, fields_of, origin_of
from frontier.urls import Url, UrlPattern

if TYPE_CHECKING:
    from crawler.fetch.client import FetchSettings
    from crawler.fetch.request_rules import (
        RequestRule,
        Signer,  # imports aiohttp, which commands that sign nothing do not need
    )

MISSING = {
    "identity": (
        "the replicas of this crawl have signed their requests, but no [identity] is given here, so these will not be "
        "signed: to sign them, stop, and start again with settings that have [identity]"
    ),
    "requests": (
        "the replicas of this crawl had rules for requests, such as a login or a proxy, but no [[requests]] is given here: "
        "to use them, stop, and start again with settings that have [[requests]]"
    ),
}
"""What to warn of if a table is missing that replicas of the crawl had before."""

Result = TypeVar("Result")

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750 2.1."""


class Identity(msgspec.Struct, frozen=True):
    """`key_id`: thumbprint of the key that signs. `about`: fields for the warcinfo records of the archive."""

    key_id: str
    signer: Signer
    about: tuple[tuple[str, str], ...]


def identity_of(table: IdentityTable) -> Identity | None:
    """Return the identity in `table`, None if requests are not signed. Raises UserError for a key."""
    if not table.keys:
        if table.directory:
            raise UserError(
                "identity.directory is set, but identity.keys names no key to sign with: `crawler identity init` makes one"
            )
        return None
    if not table.directory:
        raise UserError("identity.keys needs identity.directory, the https URL at which the keys are published")
    # These need optional packages.
    from crawler.identity.keys import read_keys  # noqa: PLC0415
    from crawler.identity.web_bot_auth import RequestSigner, key_set  # noqa: PLC0415

    for path in table.keys:
        if not (path.is_absolute() or path.exists()):
            raise UserError(
                f"there is no key at {path} in {Path.cwd()}, where relative paths are looked up: "
                f"`crawler identity init {path}` makes one"
            )
    keys = read_keys(table.keys)
    signer = RequestSigner(keys[0], table.directory, table.lifetime)
    return Identity(keys[0].thumbprint, signer, ((KEY_SET_FIELD, key_set(keys).decode()),))


class RequestSetup(msgspec.Struct, frozen=True):
    """`identity`: with which requests are signed, None if they are not; `rules`: those in `[[requests]]`."""

    identity: Identity | None = None
    rules: tuple[RequestRule, ...] = ()


def request_setup(settings: Settings, environment: Mapping[str, str] = os.environ) -> RequestSetup:
    """Return what `settings` add to requests. Raises UserError for a key or an environment variable."""
    return RequestSetup(identity_of(settings.identity), request_rules(settings.requests, environment))


def fetch_settings(settings: CrawlSettings, max_idle: int) -> FetchSettings:
    """Return the settings for requests. `max_idle`: the most idle connections of the process."""
    from crawler.fetch.client import FetchSettings  # noqa: PLC0415

    fetch = settings.fetch
    return FetchSettings(
        user_agent=fetch.user_agent_header,
        max_body_bytes=settings.limits.max_body,
        connect_timeout_s=fetch.connect_timeout,
        read_timeout_s=fetch.read_timeout,
        total_timeout_s=fetch.timeout,
        max_idle=max_idle,
        verify_tls=fetch.verify_tls,
        parallel=settings.politeness.parallel,
        addresses=addresses(settings),
        host_map=HostMap.parse(settings.fetch.host_map),
    )


def local_tables(settings: Settings) -> frozenset[str]:
    """Return which tables of `settings` add something to requests. A crawl does not store them."""
    given = {"identity": settings.identity.keys, "requests": settings.requests}
    return frozenset(name for name, value in given.items() if value)


def missing_tables(settings: Settings, had: Collection[str]) -> list[str]:
    """Return what to warn of if a crawl goes on with `settings` whose replicas `had` these local tables."""
    return [MISSING[name] for name in sorted(set(had) - local_tables(settings)) if name in MISSING]


def request_rules(tables: Sequence[RequestsTable], environment: Mapping[str, str]) -> tuple[RequestRule, ...]:
    """Return the rules that `tables` describe, with the secrets from `environment`. Raises UserError."""
    return tuple(_rule(f"requests.{number}", table, environment) for number, table in enumerate(tables))


def leaves_names_to_proxy(tables: Sequence[RequestsTable], url: Url) -> bool:
    """Return whether requests to `url` go through a proxy that alone looks up names, as the rules `tables` say."""
    if not tables:
        return False
    from crawler.fetch.request_rules import Origin  # noqa: PLC0415

    origin = Origin.parse(url.origin)
    found = (one for one in tables if (one.proxy or one.proxy_env) and _scope_of(one).includes(origin, url.href))
    first = next(found, None)
    return first is not None and first.proxy != DIRECT and first.proxy_dns


def _scope_of(table: RequestsTable) -> RequestRule:
    """Return the rule of `table` as far as it says to which requests it applies."""
    from crawler.fetch.request_rules import RequestRule  # noqa: PLC0415

    return RequestRule(
        origin=origin_of(table.origin) if table.origin else "",
        host=table.host.lower().strip("."),
        match=UrlPattern(table.match) if table.match else None,
    )


def _rule(name: str, table: RequestsTable, environment: Mapping[str, str]) -> RequestRule:
    from crawler.fetch.proxy import Proxy  # noqa: PLC0415

    def read(key: str, variable: str, use: Callable[[str], Result]) -> Result:
        """Return what `use` makes of an environment variable. Raises UserError, which never has the value."""
        if not (value := environment.get(variable)):
            raise UserError(f"{name}.{key}: the environment variable {variable} is not set on this machine")
        try:
            return use(value)
        except UserError as error:
            raise UserError(f"{name}.{key}: the value of the environment variable {variable} {error}") from None

    if table.encoding and encoding_named(table.encoding) is None:
        raise UserError(f"{name}.encoding: {table.encoding} is no encoding of the Encoding standard")
    secrets = [(field, read("headers_env", variable, check_value)) for field, variable in fields_of(table.headers_env)]
    if table.basic_env:
        secrets.append(("Authorization", read("basic_env", table.basic_env, _basic)))
    if table.bearer_env:
        secrets.append(("Authorization", read("bearer_env", table.bearer_env, _bearer)))
    proxy = None
    if table.proxy_env:
        proxy = read("proxy_env", table.proxy_env, lambda url: Proxy.parse(url, table.proxy_dns))
    elif table.proxy not in ("", DIRECT):
        proxy = Proxy.parse(table.proxy, table.proxy_dns)
    if proxy is not None and proxy.scheme == "socks5" and find_spec("python_socks") is None:
        raise UserError(f"{name}: a SOCKS proxy needs a package: pip install 'peercrawl[socks]'")
    language = [("Accept-Language", table.accept_language)] if table.accept_language else []
    return msgspec.structs.replace(
        _scope_of(table),
        fields=(*fields_of(table.headers), *language),
        secrets=tuple((field, Secret(value)) for field, value in secrets),
        cookies=table.cookies,
        weak_tls=table.weak_tls,
        encoding=table.encoding,
        proxy=proxy,
        is_direct=table.proxy == DIRECT,
    )


def _basic(value: str) -> str:
    user, colon, _ = value.partition(":")
    if not (user and colon) or not value.isprintable():
        raise UserError("is not of the form USER:PASSWORD, or has a line break or another control character")
    return f"Basic {b64encode(value.encode()).decode()}"


def _bearer(value: str) -> str:
    if not _TOKEN.fullmatch(value):
        raise UserError("has characters that a bearer token cannot have (RFC 6750), such as a space or a line break")
    return f"Bearer {value}"
