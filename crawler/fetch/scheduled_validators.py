"""Remembers the validators (RFC 9110 8.8) of pages that are fetched on a schedule, such as sitemaps, so that the next
request asks for the page only if it has changed. Those of known pages are stored with their visits
(`crawler.scope.next_visit`).

Only the replica that fetched the page remembers them, and only after the page was committed, so nothing is lost if the site
then answers "not modified". After a restart, or on another replica, the whole page is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus

from crawler.events import Event, PageSettled
from crawler.page import Exchange

Headers = tuple[tuple[str, str], ...]

_CONDITIONS = (("If-None-Match", b"etag"), ("If-Modified-Since", b"last-modified"))
"""RFC 9110 13.1.2 and 13.1.3. A server that supports the first ignores the second."""

_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]")  # no request could have such a field
_MAX_BYTES = 1_024  # of a validator; a longer one is a mistake of the server, and each request would carry it


class Validators:
    """Remembers the validators of the canonical `urls`."""

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self._known: dict[str, Headers] = dict.fromkeys(urls, ())

    def conditions(self, url: str) -> Headers:
        """The header fields that make a request for `url` conditional. Empty if it has no known validators."""
        return self._known.get(url, ())

    def observe(self, event: Event) -> None:
        """Remember the validators of a settled page."""
        if isinstance(event, PageSettled) and event.page.url in self._known and event.page.exchange is not None:
            exchange = event.page.exchange
            if exchange.status == HTTPStatus.OK and exchange.truncated is None:
                self._known[event.page.url] = tuple(_conditions(exchange))


def _conditions(exchange: Exchange) -> Iterable[tuple[str, str]]:
    for condition, validator in _CONDITIONS:
        value = exchange.header(validator)
        if value and len(value) <= _MAX_BYTES and not _CONTROLS.search(value):
            yield condition, value.decode("latin-1")
