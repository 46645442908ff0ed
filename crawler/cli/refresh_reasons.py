"""Says why `crawler refresh` has made no page due."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from crawler.wording import count_of
from frontier.clock import ServerClock
from frontier.crawls import Crawl
from frontier.known_pages import count_known
from frontier.lookup import DomainStatus, UrlLookup, UrlStatus
from frontier.queue import Frontier, FrontierSettings
from frontier.store import RedisStore
from frontier.urls import Url

NOTHING_KNOWN = (
    "the crawl knows no page that it visits again: pages are known once they were fetched and a rule applies"
)

_OPEN = {
    "queued": "it is queued",
    "leased": "it is being fetched",
    "waiting": "it waits for its next try",
    "outbox": "it is queued once the node of its domain is back",
    "queued_or_settled": "it is queued, or no rule of recrawl.rules applies to it",
}


class Asked(msgspec.Struct, frozen=True):
    """What was to be made due: one `page`, or the pages of a `domain` or of all (None), those that are wanted. `wish`: the
    pattern for URLs, None if all pages are wanted."""

    page: Url | None = None
    domain: str | None = None
    wish: str | None = None
    is_wanted: Callable[[str], bool] = lambda url: True


class RefreshReasons:
    """Finds the reasons in the state of the crawl `opened`. Its methods raise RedisAway."""

    def __init__(self, store: RedisStore, opened: Crawl, clock: ServerClock) -> None:
        self._store = store
        self._keys = opened.keys
        frontier = Frontier(store, opened.keys, clock, FrontierSettings(), opened.fingerprint_key)
        self._lookup = UrlLookup(store, frontier)

    async def find(self, asked: Asked, domains: Collection[str]) -> str:
        """Return why nothing of what was `asked` became due. `domains`: those with known pages, if none was named."""
        if asked.page is not None:
            return _of_page(asked.page, await self._lookup.url(asked.page.href, asked.page.domain))
        named = [asked.domain] if asked.domain is not None else domains
        counts = [await count_known(self._store, self._keys, one, asked.is_wanted) for one in named]
        known, wanted = (sum(numbers) for numbers in zip(*counts, strict=True)) if counts else (0, 0)
        place = f" of {asked.domain}" if asked.domain else ""
        if not known:
            return _of_domain(await self._lookup.domain(asked.domain)) if asked.domain else NOTHING_KNOWN
        if not wanted:
            return f"--match {asked.wish!r} is found in the URL of none of {count_of(known, 'known page')}{place}"
        which = f"{count_of(wanted, 'known page')}{place}{' with such a URL' if asked.wish else ''}"
        return f"{which} {'is' if wanted == 1 else 'are'} due already"


def _of_page(page: Url, status: UrlStatus) -> str:
    if status.where in _OPEN:
        return _OPEN[status.where]
    if status.where == "unseen":
        return "the crawl has not seen it: queue it with `crawler seed`"
    if status.where == "dead":
        return f"it is dead ({status.reason}): queue it again with `crawler dead requeue`"
    if status.next_ms is not None:
        return "it is due already"
    return "it is not visited again: no rule of recrawl.rules applies to it, or it is gone (`crawler why URL`)"


def _of_domain(status: DomainStatus) -> str:
    if not (status.accepted or status.queued or status.in_flight):
        return f"the crawl has no URL of {status.domain}"
    now = [f"{number:,} {what}" for number, what in ((status.queued, "queued"), (status.in_flight, "leased")) if number]
    return f"no page of {status.domain} waits for its next visit" + (f" ({' and '.join(now)})" if now else "")
