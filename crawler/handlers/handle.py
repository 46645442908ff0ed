"""What a handler receives besides the page: it takes items, and changes which links are followed.

Nothing is sent or written at once. What the handler asked for takes effect when it returns, all of it or, if it raises,
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Mapping
from typing import Any

import msgspec

from crawler.hooks import Handled, Wanted
from crawler.page import DATA_SET, MAX_ITEM_BYTES, Item, Link
from frontier.entries import MOST_PRIORITY, tag_of
from frontier.urls import UrlPattern

MAX_ADDED = 50_000
"""Links that a handler may add to a page."""


class _Nothing(Awaitable[None]):
    """Something to await that has already happened."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE = _Nothing()


class Handle:
    """Takes the items and links of one page. Its methods return at once: `await` is allowed, and not needed.
    `settings`: the table `[app]`, as the router's schema or as a dict; `state`: what functions for the start of the
    replica have put there."""

    def __init__(self, settings: Any = None, state: dict[str, Any] | None = None) -> None:
        self.settings: Any = {} if settings is None else settings
        self.state: dict[str, Any] = {} if state is None else state
        self._items: list[Item] = []
        self._item_bytes = 0
        self._added: list[Wanted] = []
        self._dropped: list[UrlPattern] = []

    def push(self, name: str, item: object) -> Awaitable[None]:
        """Add `item` to the data set `name`. It is a dict, or anything else that becomes a JSON object: a dataclass, or a
        msgspec.Struct. Raises ValueError for a name or an item that cannot be used, and TypeError for a value that JSON
        does not have."""
        if not DATA_SET.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a data set: use letters, digits, _, - and .")
        encoded = msgspec.json.encode(item)
        if not encoded.startswith(b"{"):
            raise ValueError(f"an item has to be a dict, not {type(item).__name__}")
        if b"\n" in encoded:  # only within a msgspec.Raw, and an item must be in one line
            encoded = msgspec.json.encode(msgspec.json.decode(encoded))
        self._item_bytes += len(encoded)
        if self._item_bytes > MAX_ITEM_BYTES:
            raise ValueError(f"the items of a page may have {MAX_ITEM_BYTES:,} bytes")
        self._items.append(Item(name, encoded))
        return _DONE

    def enqueue(
        self,
        urls: str | Link | Iterable[str | Link],
        priority: float | None = None,
        *,
        label: str = "",
        payload: Mapping[str, Any] | None = None,
    ) -> Awaitable[None]:
        """Follow the links `urls`, relative to the page, as far as the scope of the crawl allows. `priority`, from -1e11 to
        1e11: a higher one is fetched earlier; None: that of other links. `label` and `payload`, a dict of at most 1 KiB as
        JSON, are those of the page when it is handled. A link that the page has gets all these. A URL that was queued
        before keeps its own."""
        tag = tag_of(label, payload)
        if priority is not None and not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
            raise ValueError(f"a priority is a number from {-MOST_PRIORITY:g} to {MOST_PRIORITY:g}")
        for url in [urls] if isinstance(urls, (str, Link)) else urls:
            if len(self._added) == MAX_ADDED:
                raise ValueError(f"a handler may add {MAX_ADDED:,} links to a page")
            self._added.append(Wanted(url.url if isinstance(url, Link) else url, priority, tag))
        return _DONE

    def drop(self, pattern: str = "") -> Awaitable[None]:
        """Do not follow those links of the page in whose URLs the regular expression `pattern` is found: without one, none.
        Links that `enqueue` names are followed nevertheless."""
        self._dropped.append(UrlPattern(pattern))
        return _DONE

    def result(self) -> Handled:
        """Return what the handler asked for."""
        return Handled(tuple(self._items), tuple(self._added), tuple(self._dropped))
