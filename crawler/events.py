"""The events of a crawl. The core emits them. Metrics, logs and status pages only read them. A few parts of the core
listen, too: permits, validators, recent URLs and held leases.

Each page causes several events. None of them can be part of a reference cycle, so they are created with `gc=False`
(see `crawler.app.replica`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from crawler.errors import FailureKind
from crawler.page import Page, Rendered
from frontier.peers import View


class ViewAdopted(msgspec.Struct, frozen=True, gc=False):
    """This replica adopted a new view. `owned`: the number of shards that the view assigns to this replica; `taken` and
    `dropped`: the numbers of shards gained and lost."""

    view: View
    owned: int
    taken: int
    dropped: int


class DomainsLeased(msgspec.Struct, frozen=True, gc=False):
    """A round of lease calls was answered after `seconds`. It leased `domains` domains with `urls` URLs in total."""

    domains: int
    urls: int
    seconds: float


class ShardFenced(msgspec.Struct, frozen=True, gc=False):
    """A lease call was refused because a newer view assigns the shard to another replica."""

    message: str


class PageSettled(msgspec.Struct, frozen=True, gc=False):
    """The result for a URL was committed: the links of the page are pushed, its records are durable, and the URL is settled
    or, with the outcome "retry", queued again."""

    page: Page


class RequisiteSettled(msgspec.Struct, frozen=True, gc=False):
    """The same for what pages embed, and is no page itself."""

    page: Page


class RobotsFetchEnded(msgspec.Struct, frozen=True, gc=False):
    """A robots.txt was fetched, or fetching it failed. `access`: "rules", "allow" or "disallow"; `status`: the HTTP status,
    None without a response; `reason`: in words."""

    origin: str
    access: str
    status: int | None
    reason: str = ""


class TurnTaken(msgspec.Struct, frozen=True, gc=False):
    """A worker's turn for a domain began `late_s` seconds after it was due. `waited_s`: the seconds from the domain's last
    response until the turn was due; infinite if there was no response under this lease."""

    late_s: float
    waited_s: float


class BackedOff(msgspec.Struct, frozen=True, gc=False):
    """A domain backs off for `delay_s` seconds after a failure. `reason`: one word from a closed list."""

    reason: str
    delay_s: float


class UrlPostponed(msgspec.Struct, frozen=True, gc=False):
    """A URL was postponed without a request. `reason`: one word from a closed list."""

    reason: str


class LinksPushed(msgspec.Struct, frozen=True, gc=False):
    """The links of a group of pages were offered to the frontier. `accepted`: links that were queued; `seen`: seen before;
    `capped`: dropped because their domain is at its URL limit; `outside`: of domains that the crawl does not know;
    `skipped`: not offered because this replica pushed them recently; `unknown`: the domains of `outside`."""

    accepted: int
    seen: int
    capped: int
    outside: int
    skipped: int
    unknown: frozenset[str] = frozenset()


class LinkDropped(msgspec.Struct, frozen=True, gc=False):
    """`count` links were not offered to the frontier. `reason`: one word, which docs/reference/output.md explains."""

    reason: str
    count: int


class GroupCommitted(msgspec.Struct, frozen=True, gc=False):
    """A group of `pages` results was committed. `done`: how many were settled as done; `stale`: for how many domains the
    lease had ended. `push_s`, `sink_s`, `settle_s`: seconds spent pushing the links, writing the records and settling the
    URLs; `lag_s`: seconds since the first result of the group arrived."""

    pages: int
    done: int
    push_s: float
    sink_s: float
    settle_s: float
    stale: int
    lag_s: float


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """All leases in the shards that this replica lost were returned, `seconds` after it adopted the view."""

    seconds: float


class RedisOutageBegan(msgspec.Struct, frozen=True, gc=False):
    """Redis is unreachable or refuses calls. The replica pauses. `node`: of a cluster; then only its shards pause. "" for
    a single server. `has_lost`: the node answers, but has lost shards and with them all leases."""

    error: str
    node: str = ""
    has_lost: bool = False


class RedisOutageEnded(msgspec.Struct, frozen=True, gc=False):
    """Redis, or the `node` of a cluster, is available again after `away_s` seconds. `is_replaced`: other nodes serve what
    it has served, and it may still be away."""

    away_s: float
    node: str = ""
    is_replaced: bool = False


class ReplicasMissed(msgspec.Struct, frozen=True, gc=False):
    """Links wait, because too few replicas of `node` of a cluster have acknowledged a write. Everything else goes on."""

    error: str
    node: str


class WritesRepeated(msgspec.Struct, frozen=True, gc=False):
    """The servers of `shards` shards were restarted or replaced, and have got this replica's last writes again.
    `unsettled`: how many URLs that this replica had settled were leased to others meanwhile. Their pages here are removed.
    """

    shards: int
    unsettled: int


class HookFailed(msgspec.Struct, frozen=True, gc=False):
    """A page hook raised, or returned a value that cannot be stored. The page is stored as if the hook did not exist."""

    hook: str
    url: str
    error: str


class HandlerFailed(msgspec.Struct, frozen=True, gc=False):
    """The handler of a page or a function for requests raised, or took too long, for this `reason`. The page is settled as
    dead without items, or fetched again (`handlers.tries`)."""

    handler: str
    url: str
    error: str
    reason: str


class ExtraRequested(msgspec.Struct, frozen=True, gc=False):
    """The handling of a page has made a request of this `kind` (`crawler.page.Extra`), or wanted to. `result`: the class of
    its status, such as "2xx", or why there is no response."""

    kind: str
    result: str


class PageRendered(msgspec.Struct, frozen=True, gc=False):
    """The page at `url` was rendered, or its browser has failed."""

    url: str
    rendered: Rendered


class BrowserNeeded(msgspec.Struct, frozen=True, gc=False):
    """Pages of `shape` turn out to need a browser. `again`: how many are visited again, because they were settled
    without."""

    shape: str
    again: int


class HandlerLinkDropped(msgspec.Struct, frozen=True, gc=False):
    """`url`, which `handler` wants followed, is not, for `reason`. It is the first one on this replica."""

    handler: str
    reason: str
    url: str


class LoginAsked(msgspec.Struct, frozen=True, gc=False):
    """So many pages of `domain` to which a session was sent redirect to a page for logging in, the latest to `target`."""

    domain: str
    target: str
    pages: int


class HandlerStopsCrawl(msgspec.Struct, frozen=True, gc=False):
    """`handler` wants the crawl to end after the page `url`, for `reason`, which may be empty."""

    handler: str
    url: str
    reason: str


class ItemsRejected(msgspec.Struct, frozen=True, gc=False):
    """Items were not written, because of what they lack or the type of a value: the `count` of the page `url`, and the
    `first` of them in words."""

    url: str
    count: int
    first: str


class DefectFound(msgspec.Struct, frozen=True, gc=False):
    """An unexpected exception while handling data from a site. The URL is settled without the failed step. `stage`: see
    `crawler.defects.Stage`; `error`: type and message, at most 200 characters."""

    stage: str
    url: str
    error: str
    traceback: str


class SinkBlocked(msgspec.Struct, frozen=True, gc=False):
    """The records of a group cannot be written. The replica pauses until the write succeeds."""

    error: str


class OwnFailure(msgspec.Struct, frozen=True, gc=False):
    """A request failed because of our DNS, this machine or the operator's proxy. The domain waits, and its URL loses no
    try. `kind`: which of them."""

    kind: FailureKind
    error: str


class SettingsFollowed(msgspec.Struct, frozen=True, gc=False):
    """The crawl's settings changed. This replica applies those named in `followed` now, and those in `waiting` after a
    restart."""

    revision: int
    followed: tuple[str, ...]
    waiting: tuple[str, ...]


class SettingsRefused(msgspec.Struct, frozen=True, gc=False):
    """The crawl's settings changed, but this replica cannot use the new ones. It keeps its current settings."""

    revision: int
    error: str


class CrawlEnded(msgspec.Struct, frozen=True, gc=False):
    """This replica found that the crawl has ended. `reason`: "empty", "stopped", or the limit that it
    has reached, such as "max_pages"."""

    reason: str


Event = (
    ViewAdopted
    | DomainsLeased
    | ShardFenced
    | PageSettled
    | RequisiteSettled
    | RobotsFetchEnded
    | TurnTaken
    | BackedOff
    | UrlPostponed
    | LinksPushed
    | LinkDropped
    | GroupCommitted
    | HandedOver
    | RedisOutageBegan
    | RedisOutageEnded
    | ReplicasMissed
    | WritesRepeated
    | HookFailed
    | HandlerFailed
    | ExtraRequested
    | PageRendered
    | BrowserNeeded
    | HandlerLinkDropped
    | LoginAsked
    | HandlerStopsCrawl
    | ItemsRejected
    | DefectFound
    | SinkBlocked
    | OwnFailure
    | SettingsFollowed
    | SettingsRefused
    | CrawlEnded
)
Listener = Callable[[Event], None]


class Events:
    """Passes each event to the listeners that subscribed to its kind, in the order of subscription."""

    def __init__(self) -> None:
        self._listeners: list[tuple[Listener, frozenset[type[Event]]]] = []
        self._of_kind: dict[type[Event], list[Listener]] = {}

    def subscribe(self, listener: Listener, *kinds: type[Event]) -> None:
        self._listeners.append((listener, frozenset(kinds)))
        self._of_kind.clear()

    def emit(self, event: Event) -> None:
        """Pass `event` to its listeners. Raises whatever a listener raises."""
        kind = type(event)
        if kind not in self._of_kind:
            self._of_kind[kind] = [listener for listener, kinds in self._listeners if not kinds or kind in kinds]
        for listener in self._of_kind[kind]:
            listener(event)
