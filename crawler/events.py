"""What happens in a crawl, as values. The core emits them; metrics, logs and pages only read them.

Several come with each page, and none refers back to itself: `gc=False` (`crawler.app.gc_schedule`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from crawler.page import Page
from frontier.peers import View


class ViewAdopted(msgspec.Struct, frozen=True, gc=False):
    """A new view is in force here. `owned`: how many shards it gives to this replica; `taken` and `dropped`: how many came
    and went with it."""

    view: View
    owned: int
    taken: int
    dropped: int


class DomainsLeased(msgspec.Struct, frozen=True, gc=False):
    """A round of lease calls was answered after `seconds`: so many `domains` came under lease, with so many `urls`."""

    domains: int
    urls: int
    seconds: float


class ShardFenced(msgspec.Struct, frozen=True, gc=False):
    """A lease was refused: a newer view has given the shard away."""

    message: str


class PageSettled(msgspec.Struct, frozen=True, gc=False):
    """A page went through the commit: its links are pushed, its records durable, its URL settled."""

    page: Page


class RobotsSettled(msgspec.Struct, frozen=True, gc=False):
    """A robots.txt was fetched, or could not be. `access`: "rules", "allow" or "disallow"."""

    origin: str
    access: str
    status: int | None


class TurnTaken(msgspec.Struct, frozen=True, gc=False):
    """A domain had its turn, `late_s` seconds after it was due. `waited_s`: the rest that politeness had asked for since
    its last response; infinite where there was none under this lease."""

    late_s: float
    waited_s: float


class BackedOff(msgspec.Struct, frozen=True, gc=False):
    """A domain must rest `delay_s` seconds, since it failed. `reason`: one word of a closed list."""

    reason: str
    delay_s: float


class UrlPostponed(msgspec.Struct, frozen=True, gc=False):
    """A URL was put off without a request. `reason`: one word of a closed list."""

    reason: str


class LinksPushed(msgspec.Struct, frozen=True, gc=False):
    """Links of a group of pages were offered to the frontier. `accepted`: queued; `known`: seen before; `capped`: their
    domain has as many URLs as it may; `outside`: of domains that the crawl does not know; `skipped`: pushed by this replica
    lately."""

    accepted: int
    known: int
    capped: int
    outside: int
    skipped: int


class LinkDropped(msgspec.Struct, frozen=True, gc=False):
    """A link was not offered. `reason`: one word of a closed list, of `crawler.scope.scope` or `crawler.scope.traps`."""

    reason: str
    count: int


class GroupCommitted(msgspec.Struct, frozen=True, gc=False):
    """A group of `pages` was committed. `done`: how many were settled as done; `stale`: visits whose lease was found lost.
    `push_s`, `sink_s`, `settle_s`: what pushing the links, writing the records and settling the URLs took; `lag_s`: since
    the first of the pages came in."""

    pages: int
    done: int
    push_s: float
    sink_s: float
    settle_s: float
    stale: int
    lag_s: float


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """All domains of the shards that a view took away have been given back, `seconds` after it came into force."""

    seconds: float


class RedisLost(msgspec.Struct, frozen=True, gc=False):
    """Redis cannot be reached or cannot serve; the replica pauses."""

    error: str


class RedisFound(msgspec.Struct, frozen=True, gc=False):
    """Redis serves again, after `away_s` seconds."""

    away_s: float


class HookFailed(msgspec.Struct, frozen=True, gc=False):
    """A page hook raised, or returned what no row can hold. The page is kept as if there were no such hook."""

    hook: str
    url: str
    error: str


class DefectFound(msgspec.Struct, frozen=True, gc=False):
    """Something raised while what a site sent was handled; that URL was settled without it. `stage`: see
    `crawler.defects.Stage`; `error`: its type and message, at most 200 characters."""

    stage: str
    url: str
    error: str
    traceback: str


class SinkBlocked(msgspec.Struct, frozen=True, gc=False):
    """The records of a group could not be written; the crawl pauses until they can."""

    error: str


class SettingsFollowed(msgspec.Struct, frozen=True, gc=False):
    """The crawl's settings have changed, and this replica obeys them: those named in `followed` from now on, those in
    `waiting` once it is restarted."""

    revision: int
    followed: tuple[str, ...]
    waiting: tuple[str, ...]


class SettingsRefused(msgspec.Struct, frozen=True, gc=False):
    """The crawl's settings have changed to what this replica cannot use; it goes by those that it had."""

    revision: int
    error: str


class CrawlEnded(msgspec.Struct, frozen=True, gc=False):
    """This replica found that the crawl is over. `reason`: "empty" or "max_pages"."""

    reason: str


Event = (
    ViewAdopted
    | DomainsLeased
    | ShardFenced
    | PageSettled
    | RobotsSettled
    | TurnTaken
    | BackedOff
    | UrlPostponed
    | LinksPushed
    | LinkDropped
    | GroupCommitted
    | HandedOver
    | RedisLost
    | RedisFound
    | HookFailed
    | DefectFound
    | SinkBlocked
    | SettingsFollowed
    | SettingsRefused
    | CrawlEnded
)
Listener = Callable[[Event], None]


class Events:
    """Hands each event to each listener that wants its kind, in the order of subscription."""

    def __init__(self) -> None:
        self._listeners: list[tuple[Listener, frozenset[type[Event]]]] = []
        self._of_kind: dict[type[Event], list[Listener]] = {}

    def subscribe(self, listener: Listener, *kinds: type[Event]) -> None:
        """Tell `listener` of events of these `kinds`, or of all if none is named."""
        self._listeners.append((listener, frozenset(kinds)))
        self._of_kind.clear()

    def emit(self, event: Event) -> None:
        kind = type(event)
        if kind not in self._of_kind:
            self._of_kind[kind] = [listener for listener, kinds in self._listeners if not kinds or kind in kinds]
        for listener in self._of_kind[kind]:
            listener(event)
