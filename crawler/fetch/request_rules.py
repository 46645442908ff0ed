"""What the operator's rules add to requests: header fields, authorisation, cookies and a proxy.

All rules that apply to a URL count together. Of those that set the same thing, such as a header field or the proxy, the
first one counts. What applies is decided once for each origin, unless a rule has a pattern for URLs.

Secrets are sent and never shown: they are kept in `Secret`, and an exchange is recorded without them (`Handling.recorded`).
Redirects are links, so each request is decided by itself, and authorisation never follows one to another origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import cast

import msgspec
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.proxy import Proxy
from crawler.http_head import Secret, parse_head, redacted
from crawler.page import Exchange
from frontier.urls import UrlPattern

_BREAKS_TARGET = re.compile(r"[\x00-\x20\x7f]")
_BREAKS_FIELD = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""RFC 9110 5.5: a value with one of these, which a server may have chosen, could end its line and begin another."""


Signer = Callable[[str, str, str, float], bytes]
"""Returns the header lines that sign a request: its method, authority (as in the Host field), target, and time in seconds
since 1970."""

REMEMBERED = 4_096
"""Origins, about a kilobyte each. Pages of a site follow each other."""


class Origin(msgspec.Struct, frozen=True):
    """Scheme, host and port. `authority` is the value of the Host header, and `host_line` the line."""

    url: URL
    key: ConnectionKey  # the key of aiohttp's pool of idle connections
    authority: str
    host_line: bytes

    @classmethod
    @lru_cache(maxsize=REMEMBERED)
    def parse(cls, text: str) -> Origin:
        """From a canonical URL without its path. Raises FetchFailed: BAD_URL."""
        scheme, _, authority = text.partition("://")
        authority = authority.rpartition("@")[2]  # userinfo never leaves this machine
        try:
            url = URL.build(scheme=scheme, authority=authority, encoded=True)
            host, port = url.raw_host, url.port
            named = url.host_port_subcomponent or ""
            host_line = header_lines([("Host", named)])
        except ValueError as error:
            raise FetchFailed(FailureKind.BAD_URL, str(error)) from error
        if not host or scheme not in ("http", "https"):
            raise FetchFailed(FailureKind.BAD_URL, "not a canonical http or https URL")
        key = ConnectionKey(
            host=host,
            port=port,
            is_ssl=scheme == "https",
            ssl=True,  # the connector's own context
            proxy=None,
            proxy_auth=None,
            proxy_headers_hash=None,
        )
        return cls(url, key, named, host_line)

    def request_head(
        self, target: str, fields: bytes, extra: Sequence[tuple[str, str]] = (), method: str = "GET"
    ) -> bytes:
        """A request for `target`, byte for byte, with the header lines `fields` and the fields `extra`, which replace those
        of the same name. Raises FetchFailed: BAD_URL.
        """
        if _BREAKS_TARGET.search(target):
            raise FetchFailed(FailureKind.BAD_URL, "a space or a control character in the path")
        try:
            if extra:
                fields = _without(fields, extra) + header_lines(extra)
            parts = (method.encode(), target.encode(), self.host_line, fields)
        except ValueError as error:
            raise FetchFailed(FailureKind.BAD_URL, str(error)) from error
        return b"%b %b HTTP/1.1\r\n%b%b\r\n" % parts


def header_lines(fields: Iterable[tuple[str, str]]) -> bytes:
    """`fields` as header lines. Raises ValueError for a field that would not stay in its line."""
    lines = []
    for name, value in fields:
        if _BREAKS_FIELD.search(name) or _BREAKS_FIELD.search(value):
            raise ValueError(f"a control character in the header field {name!r}")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode(errors="surrogateescape")  # a cookie may have any bytes


def _without(lines: bytes, replaced: Iterable[tuple[str, str]]) -> bytes:
    names = {name.lower().encode() for name, _ in replaced}
    kept = [line for line in lines.splitlines(keepends=True) if line.partition(b":")[0].lower() not in names]
    return b"".join(kept)


HIDDEN = b"[redacted]"
"""What records have instead of a secret value."""

COMBINED = 1_024
"""Combinations of rules whose result is kept. Only rules with patterns make more than a few."""

Field = tuple[str, str]


class RequestRule(msgspec.Struct, frozen=True):
    """What one rule adds to the requests to `origin` (scheme, host and port), to `host` with its subdomains, or for URLs
    that `match` is found in; empty or None: to all. `secrets`: fields whose values are not recorded, only with an `origin`.
    None as `cookies`, `weak_tls` or `proxy`: another rule decides. `is_direct`: without the proxy of another rule.
    `weak_tls`: accept old versions of TLS and small keys. `encoding`: of the pages, whatever they declare."""

    origin: str = ""
    host: str = ""
    match: UrlPattern | None = None
    fields: tuple[Field, ...] = ()
    secrets: tuple[tuple[str, Secret], ...] = ()
    cookies: bool | None = None
    proxy: Proxy | None = None
    is_direct: bool = False
    weak_tls: bool | None = None
    encoding: str = ""

    def may_apply_to(self, origin: Origin) -> bool:
        """Whether the rule applies to URLs of `origin`, or to some of them."""
        named, host = f"{origin.url.scheme}://{origin.authority}", origin.key.host.rstrip(".")
        return self.origin in ("", named) and (not self.host or f".{host}".endswith(f".{self.host}"))

    def includes(self, origin: Origin, url: str) -> bool:
        """Whether the rule applies to the canonical `url` of `origin`."""
        return self.may_apply_to(origin) and (self.match is None or self.match.is_in(url))


class Handling(msgspec.Struct, frozen=True):
    """How a request is made. `fields`: its header lines without secrets; `secret_fields`: those with secrets, and
    `proxy_field`: that for the proxy. `start_cookies`: with which the cookies that are kept begin. `hidden`: the names, in
    lower case, of the fields whose values are not recorded. `proxy_key`: what keeps the connections through the proxy apart
    from others."""

    fields: bytes
    secret_fields: Secret
    hidden: frozenset[bytes]
    cookies: bool
    proxy: Proxy | None
    proxy_field: Secret
    proxy_key: tuple[str, int] | None
    start_cookies: Secret = Secret("")
    weak_tls: bool = False
    encoding: str = ""

    def head(self, origin: Origin, target: str, extra: Sequence[Field], method: str = "GET") -> bytes:
        """Return the head of a request for `target`, with the fields `extra`. Raises FetchFailed: BAD_URL."""
        fields = self.fields + self.secret_fields.text.encode()
        if self.is_forwarded(origin):
            fields += self.proxy_field.text.encode()
            target = f"{origin.url.scheme}://{origin.authority}{target}"
        return origin.request_head(target, fields, extra, method)

    def through(self, proxy: Proxy) -> Handling:
        """Return the same through `proxy`."""
        hidden = self.hidden | {b"proxy-authorization"} if proxy.authorization else self.hidden
        return msgspec.structs.replace(
            self, proxy=proxy, proxy_field=proxy.authorization, proxy_key=proxy.key, hidden=hidden
        )

    def without_proxy(self) -> Handling:
        """Return the same for a direct connection."""
        return msgspec.structs.replace(self, proxy=None, proxy_field=Secret(""), proxy_key=None)

    def is_forwarded(self, origin: Origin) -> bool:
        """Whether the proxy reads the request and sends one of its own, instead of passing bytes on."""
        return self.proxy is not None and self.proxy.forwards and not origin.key.is_ssl

    def key(self, origin: Origin) -> ConnectionKey:
        """Return the key of the connections that the request may use."""
        if self.proxy_key is None:
            return origin.key
        proxy, credentials = self.proxy_key
        return origin.key._replace(proxy=cast(URL, proxy), proxy_headers_hash=credentials)  # aiohttp compares keys only

    def recorded(self, exchange: Exchange) -> Exchange:
        """Return `exchange` without the secrets. Through a proxy, the address of the site is not known, and TLS to the
        proxy is not TLS to the site."""
        changes: dict[str, object] = {}
        if self.proxy is not None:
            changes["address"] = ""
            if exchange.url.startswith("http:"):
                changes["tls"] = None
        if self.encoding:
            changes["encoding"] = self.encoding
        if self.hidden:
            changes["request_head"] = redacted(exchange.request_head, self.hidden, HIDDEN)
            changes["response_head"] = response_head = redacted(exchange.response_head, self.hidden, HIDDEN)
            shown = parse_head(response_head)
            changes["headers"], changes["reason"] = shown.fields, shown.reason
            if b"set-cookie" in self.hidden:
                values = (value for name, value in exchange.headers if name.lower() == b"set-cookie")
                changes["set_cookies"] = tuple(Secret(value.decode("latin-1")) for value in values)
        return msgspec.structs.replace(exchange, **changes) if changes else exchange


class ProxyAnswers:
    """Judges the status 407 of plain http, with which a proxy refuses the credentials. A site can send it, too, and must
    not hold up a crawl with that: once a proxy has passed on another answer, it is taken for a failure of the site."""

    def __init__(self) -> None:
        self._working: set[tuple[str, int] | None] = set()

    def check(self, handling: Handling, exchange: Exchange) -> None:
        """Raise FetchFailed if `exchange` may be an answer of the proxy that forwarded the request."""
        if handling.proxy is None or not handling.proxy.forwards or not exchange.url.startswith("http:"):
            return
        if exchange.status != HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            self._working.add(handling.proxy_key)
            return
        kind = FailureKind.UNREACHABLE if handling.proxy_key in self._working else FailureKind.PROXY
        raise FetchFailed(kind, f"{handling.proxy} does not accept the credentials (status 407)")


class RequestRules:
    """The rules of a replica. `usual`: the header fields of a request to which no rule applies."""

    def __init__(self, rules: Sequence[RequestRule], usual: Iterable[Field]) -> None:
        self._rules = tuple(rules)
        self._usual = tuple(usual)
        self._of_origin = lru_cache(maxsize=REMEMBERED)(self._candidates)
        self._combined = lru_cache(maxsize=COMBINED)(self._combine)

    def __repr__(self) -> str:
        return f"<RequestRules {len(self._rules)}>"

    def of(self, origin: Origin, url: str) -> Handling:
        """Return how the canonical `url` of `origin` is requested."""
        candidates, has_patterns = self._of_origin(origin)
        if has_patterns:
            rules = self._rules
            candidates = tuple(one for one in candidates if (p := rules[one].match) is None or p.is_in(url))
        return self._combined(candidates)

    def _candidates(self, origin: Origin) -> tuple[tuple[int, ...], bool]:
        """The numbers of the rules that may apply to URLs of `origin`, and whether one of them has a pattern."""
        found = tuple(number for number, rule in enumerate(self._rules) if rule.may_apply_to(origin))
        return found, any(self._rules[number].match is not None for number in found)

    def _combine(self, numbers: tuple[int, ...]) -> Handling:
        rules = [self._rules[number] for number in numbers]
        secrets: dict[str, tuple[str, Secret]] = {}
        named: dict[str, Field] = {}
        for rule in rules:
            for name, secret in rule.secrets:
                secrets.setdefault(name.lower(), (name, secret))
            for name, value in rule.fields:
                named.setdefault(name.lower(), (name, value))
        fields = {name.lower(): (name, value) for name, value in self._usual} | named
        shown = header_lines(field for name, field in fields.items() if name not in secrets)
        cookies = next((one.cookies for one in rules if one.cookies is not None), False)
        proxy = next((one.proxy for one in rules if one.proxy is not None or one.is_direct), None)
        # A cookie that answers a secret may be as good as the secret.
        hidden = {*secrets, *(("cookie", "set-cookie") if cookies or secrets else ())}
        if proxy is not None and proxy.authorization:
            hidden.add("proxy-authorization")
        # With kept cookies, the operator's become some of them: RFC 6265 5.4 forbids a second field.
        _, start_cookies = secrets.pop("cookie", ("", Secret(""))) if cookies else ("", Secret(""))
        return Handling(
            fields=shown,
            secret_fields=Secret(header_lines((name, one.text) for name, one in secrets.values()).decode()),
            hidden=frozenset(name.encode() for name in hidden),
            cookies=cookies,
            proxy=proxy,
            proxy_field=Secret("") if proxy is None else proxy.authorization,
            proxy_key=None if proxy is None else proxy.key,
            start_cookies=start_cookies,
            weak_tls=next((one.weak_tls for one in rules if one.weak_tls is not None), False),
            encoding=next((one.encoding for one in rules if one.encoding), ""),
        )
