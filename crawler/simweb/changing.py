"""Pages that change at known rates, and what they answer to a conditional request. Pure functions of seed, URL and time.

The version of a page is the time of its last change, so nothing is stored, and the referee (`freshness_judge`) can say when
a copy went out of date.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from enum import StrEnum

from crawler.simweb.chance import draw, fraction


class Change(StrEnum):
    """When a page changes."""

    NEVER = "never"
    POISSON = "poisson"  # at random, independently of the last change
    PERIODIC = "periodic"  # always after the same time
    ALWAYS = "always"  # at each request


class Validity(StrEnum):
    """What the validators of a page are worth (RFC 9110 section 8.8)."""

    ETAG = "etag"
    DATE = "date"  # Last-Modified, in whole seconds
    NONE = "none"
    RESTLESS = "restless"  # another ETag each time
    STUCK = "stuck"  # always the same ETag, so a change is answered with a 304
    WORDY = "wordy"  # an ETag, and 304s that have a body


FIELD = {Validity.DATE: "if-modified-since"}
"""The header field of a conditional request, if it is not If-None-Match."""


@dataclass(frozen=True, slots=True)
class Changing:
    """How the page `url` of a world with `seed` changes: once in `mean_s` seconds on average, if it is at random or
    periodic."""

    seed: int
    url: str
    change: Change
    mean_s: float = math.inf
    validity: Validity = Validity.NONE
    is_lying: bool = False  # its `lastmod` is always now

    def changed_at(self, now: float) -> float:
        """The last change until `now`, in seconds since 1970; 0 if there was none."""
        if self.change is Change.ALWAYS:
            return now
        if self.change is Change.NEVER:
            return 0.0
        if self.change is Change.PERIODIC:
            return now - (now - self._phase_s) % self.mean_s
        window = int(now // self.mean_s)
        while window >= 0:
            times = [at for at in self._times(window) if at <= now]
            if times:
                return times[-1]
            window -= 1
        return 0.0

    def next_change(self, after: float) -> float:
        """The first change after `after`."""
        if self.change is Change.ALWAYS:
            return after
        if self.change is Change.NEVER:
            return math.inf
        if self.change is Change.PERIODIC:
            return self.changed_at(after) + self.mean_s
        window = int(after // self.mean_s)
        while True:
            times = [at for at in self._times(window) if at > after]
            if times:
                return times[0]
            window += 1

    @property
    def _phase_s(self) -> float:
        return self.mean_s * fraction(draw(self.seed, "phase", self.url))

    def _times(self, window: int) -> list[float]:
        """The changes in a stretch of `mean_s` seconds, of which there is one on average."""
        luck, number = fraction(draw(self.seed, "changes", self.url, window)), 0
        share = least = math.exp(-1)  # of stretches without a change
        while luck > share and number < 20:
            number += 1
            least /= number
            share += least
        places = (fraction(draw(self.seed, "change", self.url, window, n)) for n in range(number))
        return sorted((window + place) * self.mean_s for place in places)

    def text(self, now: float) -> str:
        """Text that differs between versions of the page."""
        return f"version {self.changed_at(now):.6f}"

    def lastmod(self, now: float) -> str:
        """What a sitemap says about its last change."""
        return datetime.fromtimestamp(now if self.is_lying else self.changed_at(now), UTC).isoformat()

    def fields(self, now: float) -> dict[str, str]:
        """The validators in a response at `now`."""
        changed_at = self.changed_at(now)
        if self.validity is Validity.NONE:
            return {}
        if self.validity is Validity.DATE:
            return {"Last-Modified": formatdate(int(changed_at), usegmt=True)}
        told = {Validity.RESTLESS: now, Validity.STUCK: 0.0}.get(self.validity, changed_at)
        return {"ETag": f'"{round(told * 1e6):x}"'}

    def is_not_modified(self, now: float, request: Mapping[str, str]) -> bool:
        """Whether the answer at `now` to a request with these fields (in lower case) is a 304."""
        asked = request.get(FIELD.get(self.validity, "if-none-match"))
        if not asked or self.validity is Validity.NONE:
            return False
        if self.validity is not Validity.DATE:
            return asked == self.fields(now)["ETag"]
        try:
            return int(self.changed_at(now)) <= parsedate_to_datetime(asked).timestamp()
        except ValueError:
            return False
