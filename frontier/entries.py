"""A queued URL as Redis keeps it: one short text, and the values around it.

An entry is six characters of head and the URL, and where the crawl asks for it a space, which no canonical URL has, and
the URL of the page where it was found. The head says how the URL was shortened (the domain is known from the
key, so most URLs lose their scheme and host), its depth, its tries, its redirect hops, and how often it was lost with
its holder. `lua/lease.lua` counts that last one up, so its place is part of the key schema.

    s 02 0 0 0 /docs/index.html
    | |  | | |
    | |  | | +-- times taken back from a lost holder, one hexadecimal digit
    | |  | +---- redirect hops from the last link, one hexadecimal digit
    | |  +------ tries so far, one hexadecimal digit
    | +--------- links from the seed, two hexadecimal digits
    +----------- how the URL begins, see _PREFIXES
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

MAX_DEPTH = 255
MAX_TRIES = 15
MAX_HOPS = 15

PushMode = Literal["new", "known", "again"]
"""`new`: if it has not been seen. `known`: that, and if the frontier has had URLs of its domain. `again`: at any rate."""

_PREFIXES = {"s": "https://{}", "w": "https://www.{}", "h": "http://{}", "i": "http://www.{}"}
_WHOLE = "u"


@lru_cache(maxsize=1024)
def _starts(domain: str) -> list[tuple[str, str]]:
    """How a URL of `domain` may begin, up to the slash of its path, and the character for it."""
    return [(prefix.format(domain) + "/", code) for code, prefix in _PREFIXES.items()]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A URL in the frontier. `priority`: higher is fetched earlier. Depth, tries and hops saturate at their maximum. `via`:
    the page where it was found, or empty."""

    url: str
    domain: str
    priority: float = 0.0
    depth: int = 0
    tries: int = 0
    hops: int = 0
    lost: int = 0
    mode: PushMode = "new"  # how it is pushed; not kept
    via: str = ""

    @property
    def raw(self) -> str:
        """The text that stands in Redis."""
        code, rest = _WHOLE, self.url
        for start, candidate in _starts(self.domain):
            if self.url.startswith(start):
                code, rest = candidate, self.url[len(start) - 1 :]
                break
        depth, tries = min(self.depth, MAX_DEPTH), min(self.tries, MAX_TRIES)
        raw = f"{code}{depth:02x}{tries:x}{min(self.hops, MAX_HOPS):x}{self.lost:x}{rest}"
        return f"{raw} {self.via}" if self.via else raw

    def again(self, priority: float) -> Entry:
        """The entry for one more try."""
        return msgspec.structs.replace(self, tries=self.tries + 1, priority=priority)


def parse_entry(raw: str, domain: str, priority: float) -> Entry:
    """The inverse of `Entry.raw`. Raises ValueError for a text that is no entry."""
    rest, _, via = raw[6:].partition(" ")
    url = rest if raw[0] == _WHOLE else _PREFIXES[raw[0]].format(domain) + rest
    depth, tries, hops, lost = int(raw[1:3], 16), int(raw[3], 16), int(raw[4], 16), int(raw[5], 16)
    return Entry(url, domain, priority, depth, tries, hops, lost, via=via)
