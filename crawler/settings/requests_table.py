"""The table `[[requests]]`: rules about the requests to some sites. Like the settings of a replica, it is never read from
Redis: whoever can write there must not choose where a machine sends its secrets, or through which proxy."""

import re
from typing import Annotated, ClassVar

from msgspec import Meta

from crawler.errors import UserError
from crawler.fetch.proxy import Proxy
from crawler.settings.table import Table
from frontier.errors import BadInput
from frontier.urls import UrlPattern, canonicalize

DIRECT = "direct"
"""The value of `proxy` for no proxy."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 5.6.2: a token."""

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OF_THE_CLIENT = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect"}
    | {"proxy-connection", "proxy-authorization", "range", "accept-encoding", "content-encoding", "content-type"}
)
"""Fields that the client sets as the connection, the decoders and the archive need them, or that ask for another response
than the page. The same holds for conditions (`If-*`) and signatures."""

_OTHERWISE = {
    "user-agent": "fetch.user_agent and fetch.contact set it",
    "accept-language": "accept_language sets it",
    "authorization": "it would be in the settings file and in records: use basic_env, bearer_env or headers_env",
    "cookie": "it would be in the settings file and in records: use headers_env, or cookies = true",
}
"""Fields that other settings set."""


def fields_of(lines: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return `lines` ("NAME: VALUE") as names and values. Raises UserError, which does not repeat a value."""
    fields = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name.strip()) and value.strip()):
            raise UserError('write each one as "NAME: VALUE"')
        fields.append((name.strip(), value.strip()))
    return fields


def check_value(value: str) -> str:
    """Return `value` if it can be that of a header field. Raises UserError, which does not repeat it."""
    if not value.isascii() or not value.isprintable() or not value.strip():
        raise UserError("is empty or has a line break, a control character or a character that is not in ASCII")
    return value


def _check_name(name: str, is_secret: bool) -> None:
    lower = name.lower()
    if lower in _OF_THE_CLIENT or lower.startswith(("if-", "signature")):
        raise UserError(f"{name} is set by the crawler itself")
    if lower in _OTHERWISE and not (is_secret and lower in ("authorization", "cookie")):
        raise UserError(f"{name} cannot be set here: {_OTHERWISE[lower]}")


def _check_headers(lines: tuple[str, ...]) -> None:
    for name, value in fields_of(lines):
        _check_name(name, is_secret=False)
        try:
            check_value(value)
        except UserError as error:
            raise UserError(f"the value of {name} {error}") from None


def _check_secret_headers(lines: tuple[str, ...]) -> None:
    for name, variable in fields_of(lines):
        _check_name(name, is_secret=True)
        _check_variable(variable)


def _check_variable(name: str) -> None:
    if name and not _VARIABLE.fullmatch(name):
        raise UserError("write the name of an environment variable, not the secret itself")


def _check_language(value: str) -> None:
    if value:
        check_value(value)


def _check_pattern(pattern: str) -> None:
    try:
        UrlPattern(pattern)
    except BadInput as error:
        raise UserError(str(error)) from error


def _check_proxy(url: str) -> None:
    if url not in ("", DIRECT) and Proxy.parse(url).user:
        raise UserError("has a password: put the URL into an environment variable, and name that in proxy_env")


def origin_of(text: str) -> str:
    """Return `text`, an origin, in its canonical form. Raises UserError."""
    expected = "write scheme, host and port alone, such as https://shop.example.com"
    try:
        url = canonicalize(text)
    except BadInput as error:
        raise UserError(f"{error}: {expected}") from error
    if url.href != f"{url.origin}/" or "@" in text:
        raise UserError(expected)
    return url.origin


def _check_origin(text: str) -> None:
    if text:
        origin_of(text)


_VARIABLE_CHECK = Meta(extra={"check": _check_variable})


class RequestsTable(Table, frozen=True, kw_only=True):
    """A rule about the requests to some sites: `[[requests]]`. All rules that match a URL apply; of those that set the same
    thing, the first one counts. Secrets come from environment variables of the replica, and the rules name these."""

    restart: ClassVar[str] = "each process reads it when it starts"

    origin: Annotated[
        str,
        Meta(examples=["https://shop.example.com"], extra={"check": _check_origin}),
        "Scheme, host and port of the site to which the rule applies, exactly. Secrets need it. Empty: any.",
    ] = ""
    host: Annotated[str, "Host to which the rule applies, with its subdomains. Empty: any."] = ""
    match: Annotated[
        str,
        Meta(extra={"check": _check_pattern}),
        "Regular expression: the rule applies to URLs in which it is found. This holds for the URL of robots.txt as well. "
        "Empty: any.",
    ] = ""
    headers: Annotated[
        tuple[str, ...],
        Meta(examples=[["X-Team: search"]], extra={"check": _check_headers}),
        "Header fields, `NAME: VALUE`. They are recorded in the archive.",
    ] = ()
    headers_env: Annotated[
        tuple[str, ...],
        Meta(extra={"check": _check_secret_headers}),
        "Header fields with secrets, `NAME: VARIABLE`, such as `X-Api-Key: SHOP_KEY`: the value is that of the environment "
        "variable. Needs `origin`. Records have `[redacted]` instead.",
    ] = ()
    accept_language: Annotated[
        str,
        Meta(extra={"check": _check_language}),
        "Value of Accept-Language, such as `de, en;q=0.5`. Empty: `en,*;q=0.5`.",
    ] = ""
    basic_env: Annotated[
        str,
        _VARIABLE_CHECK,
        "Environment variable with `USER:PASSWORD`, sent as basic authorisation (RFC 7617). Needs `origin`.",
    ] = ""
    bearer_env: Annotated[
        str,
        _VARIABLE_CHECK,
        "Environment variable with a token, sent as bearer authorisation (RFC 6750). Needs `origin`.",
    ] = ""
    over_http: Annotated[
        bool, "Whether secrets may be sent to an `origin` with http, where everyone on the way can read them."
    ] = False
    cookies: Annotated[
        bool | None,
        "Whether to keep the cookies that sites set, and to send them back to their domain. They are in the memory of the "
        "replica alone, and are lost when it stops or another replica takes over the domain. Records have `[redacted]` "
        "instead of their values. Unset: as other rules say; without any, cookies are ignored.",
    ] = None
    proxy: Annotated[
        str,
        Meta(extra={"check": _check_proxy}),
        "URL of a proxy without a password: `http://HOST:PORT`, `https://HOST:PORT`, or `socks5://HOST:PORT` with "
        "`pip install 'peercrawl[socks]'`. `direct`: no proxy, whatever later rules say. Empty: as other rules say.",
    ] = ""
    proxy_env: Annotated[
        str,
        _VARIABLE_CHECK,
        "Environment variable with the URL of a proxy, which may have a password: `http://USER:PASSWORD@HOST:PORT`.",
    ] = ""
    proxy_dns: Annotated[
        bool,
        "Whether the proxy alone looks up the names of sites. The replica then does not know their addresses: it neither "
        "refuses names that lead into a private network nor limits the rate of an address. If false, the replica looks "
        "them up as well, and judges them before it asks the proxy.",
    ] = False

    @property
    def has_secrets(self) -> bool:
        """Whether it has a site get a secret."""
        return bool(self.headers_env or self.basic_env or self.bearer_env)

    def __post_init__(self) -> None:
        if self.basic_env and self.bearer_env:
            raise UserError("give either `basic_env` or `bearer_env`")
        if self.proxy and self.proxy_env:
            raise UserError("give either `proxy` or `proxy_env`")
        if self.host and not _HOST.fullmatch(self.host):
            raise UserError(f"`host` {self.host!r}: write the name of the host alone, such as shop.example.com")
        if self.origin and self.host:
            raise UserError("give either `origin` or `host`")
        named = {name.lower() for name, _ in fields_of(self.headers_env)}
        if "authorization" in named and (self.basic_env or self.bearer_env):
            raise UserError(
                "`headers_env` sets Authorization, and so does `basic_env` or `bearer_env`: give one of them"
            )
        if self.has_secrets and not self.origin:
            raise UserError("secrets need `origin`, the one site that gets them, such as https://shop.example.com")
        if self.has_secrets and self.origin.lower().startswith("http:") and not self.over_http:
            raise UserError(
                f"secrets would be readable on the way to {self.origin}: use https, or set over_http = true"
            )
