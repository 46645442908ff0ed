"""Validators (RFC 9110 8.8) of the pages that the clock has fetched again, which are the scheduled sitemaps: the next
request asks for the page only if it has changed.

They are remembered by the replica that fetched the page, and only once that page went through the commit: a site that
then answers "not modified" keeps nothing from us. After a restart, or on another replica, the page is fetched whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from crawler.events import Event, PageSettled
from crawler.page import Exchange

Headers = tuple[tuple[str, str], ...]

_CONDITIONS = (("If-None-Match", b"etag"), ("If-Modified-Since", b"last-modified"))
"""RFC 9110 13.1.2 and 13.1.3; who knows the first ignores the second."""

_MAX_BYTES = 1_024  # of a validator: what is longer is a server's mistake, and would be sent with each request


class Validators:
    """Remembers the validators of the canonical `urls`."""

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self._known: dict[str, Headers] = dict.fromkeys(urls, ())

    def conditions(self, url: str) -> Headers:
        """The header fields that make a request for `url` conditional; none if nothing is known of it."""
        return self._known.get(url, ())

    def observe(self, event: Event) -> None:
        """Take note of a page that was settled."""
        if isinstance(event, PageSettled) and event.page.url in self._known and event.page.exchange is not None:
            exchange = event.page.exchange
            if exchange.status == HTTPStatus.OK and exchange.truncated is None:
                self._known[event.page.url] = tuple(_conditions(exchange))


def _conditions(exchange: Exchange) -> Iterable[tuple[str, str]]:
    for condition, validator in _CONDITIONS:
        value = exchange.header(validator)
        if value and len(value) <= _MAX_BYTES:
            yield condition, value.decode("latin-1")
