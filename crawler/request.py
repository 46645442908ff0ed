"""Requests that a program queues, as data: `Request`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict
from urllib.parse import quote, urlencode

import msgspec

from crawler.arguments import Json, Values, check, checked
from crawler.http_head import is_of_the_client
from frontier.entries import RequestData

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

LONGEST_KEY = 100
"""Characters of a `unique_key`, as it is written in URLs."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 5.6.2: a token."""

_NOT_SENT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_ENDS_NAME = re.compile(r"[\x00-\x20\x7f=;\ud800-\udfff]|^$")
_ENDS_VALUE = re.compile(r"[\x00-\x1f\x7f;\ud800-\udfff]")
"""What no value of a header field, and no name and value of a cookie, can have."""

Fields = Mapping[str, Values | bytes] | Iterable[tuple[str, Values | bytes]]
"""Names and values of a form. A value that is a list stands for several."""


class RequestOptions(TypedDict, total=False):
    """The options of a `Request`."""

    method: str | None
    data: Fields | None
    json: Json
    body: str | bytes | None
    headers: Mapping[str, str] | None
    cookies: Mapping[str, str] | None
    referer: str
    unique_key: str
    retry: bool
    private: bool


class Request:
    """A request to `url`. `data`: fields of a form; `json`: what becomes the body as JSON; `body`: the body as it is; with
    one of these, the method is POST unless `method` says otherwise. `headers` replace the usual ones; `cookies` are sent
    with those that are kept. `referer`: the URL of the page that it comes from.

    `unique_key`: tells this request from others to the same URL. Without it, method and body do. `retry`: send a POST or
    PATCH again if it may have been sent before; without it, this is sent once, and is dead if its answer is lost.
    `private`: keep the body out of records. Raises ValueError for what cannot be sent.
    """

    @checked
    def __init__(
        self,
        url: str,
        *,
        method: str | None = None,
        data: Fields | None = None,
        json: Json = None,
        body: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        referer: str = "",
        unique_key: str = "",
        retry: bool = False,
        private: bool = False,
    ) -> None:
        sent, media = _body(data, json, body)
        method = (method or ("GET" if sent is None else "POST")).upper()
        if method not in METHODS:
            raise ValueError(f"{method!r} cannot be a method: use one of {', '.join(METHODS)}")
        if sent is not None and method in ("GET", "HEAD"):
            raise ValueError(f"a {method} request has no body")
        fields = fields_by_name(headers or {})
        if media:
            fields.setdefault("content-type", ("Content-Type", media))
        if referer:
            fields["referer"] = ("Referer", referer.partition("#")[0])
        if cookies:
            fields["cookie"] = with_cookies(fields.get("cookie"), cookies)
        for name, value in fields.values():
            check_field(name, value)
            if is_of_the_client(name.lower()):
                raise ValueError(f"{name} is set by the crawler itself")
            if name.lower() == "user-agent":
                raise ValueError("User-Agent cannot be set here: fetch.user_agent and fetch.contact set it")
        self.url = url
        self.request = RequestData(method, tuple(fields.values()), sent or b"", retry, private)
        self.key = quote(unique_key, "") if unique_key else self.request.key
        if len(self.key) > LONGEST_KEY:
            raise ValueError(f"a unique_key may have {LONGEST_KEY} characters")

    def __repr__(self) -> str:
        return f"<Request {self.request.method} {self.url}>"  # headers and body may have secrets


def _body(data: Fields | None, json: Json, body: str | bytes | None) -> tuple[bytes | None, str]:
    """The body, None without one, and its type."""
    if sum(one is not None for one in (data, json, body)) > 1:
        raise ValueError("give one of data, json and body")
    if data is not None:
        return _urlencoded(data), FORM
    if json is not None:
        return msgspec.json.encode(json), "application/json"
    return (body.encode() if isinstance(body, str) else body), ""


def _urlencoded(data: Fields) -> bytes:
    """`data` as a form sends it, without what is None."""
    fields = []
    for name, value in data.items() if isinstance(data, Mapping) else data:
        values = value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]
        fields += [(name, each) for each in values if each is not None]
    return urlencode(fields).encode()


FORM = "application/x-www-form-urlencoded"


def fields_by_name(headers: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The header fields by their names in lower case, the last one of each. Raises TypeError for what is no dict of
    texts: functions for requests may have changed it."""
    check("headers", headers, Mapping[str, str])
    return {name.lower(): (name, value) for name, value in headers.items()}


def with_cookies(field: tuple[str, str] | None, cookies: Mapping[str, str]) -> tuple[str, str]:
    """The header field for `cookies`, after those of `field`: servers read only one. Raises TypeError and ValueError for a
    cookie that would become another one."""
    check("cookies", cookies, Mapping[str, str])
    pairs = [field[1]] if field and field[1] else []
    for name, value in cookies.items():
        if _ENDS_NAME.search(name) or _ENDS_VALUE.search(value):
            raise ValueError(f"the cookie {name!r} has a character that cookies cannot have, such as a semicolon")
        pairs.append(f"{name}={value}")
    return "Cookie", "; ".join(pairs)


def check_field(name: str, value: str) -> None:
    """Raise ValueError if `name` and `value` cannot be those of a header field."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a header field")
    if _NOT_SENT.search(value):
        raise ValueError(f"the value of {name} has a line break, another control character, or half of a character")
