"""The interface of sinks, which store settled pages: the archive, and additional sinks from user code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from crawler.page import Exchange, Page, Written
from frontier.settle import LeasedUrl

Revoke = Callable[[Sequence[LeasedUrl], str], Awaitable[Sequence[bool | None]]]
"""Takes URLs and the name of their crawl. Returns for each URL whether it was not settled under its lease, None if that is
unknown. Raises RedisAway."""

MayRepeat = Callable[[LeasedUrl], bool]
"""Whether it may still turn out that a URL that was settled is not."""

SettleLater = Callable[[Collection[int]], Awaitable[None]]
"""`DurableSink.settled` for a group that was set aside."""


class Sink(Protocol):
    """An additional sink, which user code brings."""

    async def start(self) -> None:
        """Prepare for `write`."""

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> object:
        """Return when the records of `pages` and of further `exchanges`, such as of a robots.txt, are durable. The
        result is ignored.

        Raises SinkFull during an outage, such as a full disk; the call is then repeated until it succeeds. After any other
        exception, the pages are passed one by one, and those that raise again are settled as defects.
        """

    async def stop(self) -> None:
        """Finish the files. Nothing is written afterwards."""


class DurableSink(Protocol):
    """The sink that a replica commits to. It can remove pages that turn out not to be settled."""

    @property
    def written_bytes(self) -> int:
        """Bytes made durable since the start."""

    async def start(self, revoke: Revoke | None = None, may_repeat: MayRepeat | None = None) -> None:
        """Prepare for `write`. `revoke` says which of the pages that dead replicas wrote last were not settled. A page for
        which `may_repeat` is true can be taken back however long ago it was written."""

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        """Return when the records of `pages` and of further `exchanges`, such as of a robots.txt, are durable.

        `leased`: the lease under which each of `pages` was fetched. If it is given, `settled` must be called before the
        next group is written. Raises SinkFull if there is no room. Then nothing is kept, and the call may be repeated.
        """

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """Report that the last group is settled, except for the pages with the indexes `unsettled`. Their leases were lost
        before they were settled, so they are removed.

        Raises SinkFull if there is no room to do so. Then the call may be repeated.
        """

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None:
        """Remove the pages of `urls`, if they were written in the last seconds. Redis has lost that they were settled, and
        others fetch them. Must not be called between `write` and `settled`."""

    async def set_aside(self) -> SettleLater:
        """Set the last group aside, which is not settled yet, so that other groups can be written meanwhile. The call that
        is returned takes the place of `settled`."""

    async def stop(self, is_in_doubt: bool = False) -> int:
        """Finish the files, and return how many could not be uploaded. Nothing is written afterwards. `is_in_doubt`: what
        was settled in the last seconds may be lost. Then the last files stay open, and the next start asks which of their
        pages are settled."""


class SinkContext(msgspec.Struct, frozen=True):
    """The argument of the factory of an additional sink: `factory(context) -> Sink`."""

    folder: Path
    crawl: str
    replica: str
