"""What the files of a site say about the use of its pages: robots.txt and tdmrep.json. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from politeness import tdmrep
from politeness.content_usage import Statements
from politeness.tdmrep import Reservation
from politeness.usage_preferences import NO_USAGE, Statement, Usage, combined


class SiteUsage(msgspec.Struct, frozen=True, gc=False):
    """What the files say about one page: the statements of robots.txt, and the reservation of tdmrep.json."""

    statements: Statements = ()
    reservation: Reservation | None = None

    def combined(self, statements: Sequence[Statement] = (), reservations: Sequence[Reservation] = ()) -> Usage:
        """What applies to the page if its response contains `statements` and `reservations`, those in its header first."""
        files = (self.reservation,) if self.reservation is not None else ()
        reserved, policy = tdmrep.statement([*files, *reservations])
        every = [*self.statements, *statements, *((reserved,) if reserved is not None else ())]
        return combined(every, policy) if every else NO_USAGE


NOT_STATED: Final = SiteUsage()
