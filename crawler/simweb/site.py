"""One domain of the synthetic web: its hosts, their robots.txt, and its numbered pages.

The pages of a domain form a tree by number. The children of page k are k * fanout + 1 and the following ones, so all pages
are reachable from page 0, the root. Pages with children are *hubs*. They are on the first host, outside /private/, and
always end with a body. Only leaves have unusual behaviour.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from crawler.simweb.chance import Shares, draw, fraction
from crawler.simweb.features import HUB_KINDS, Features, Kind
from crawler.simweb.links import absolute
from crawler.simweb.robots import RobotsKind

FOLDERS = ("docs", "news/2024", "shop", "people/list", "a/b/c", "wiki")
WORDS = ("otter", "fern", "basalt", "caf%C3%A9", "tide", "lichen", "quartz", "heron")
FORMS = (
    "/{folder}/{word}-{number}.html",
    "/{folder}/{word}-{number}",
    "/{folder}/~{word}-{number}/",
    "/{folder}/show?id={number}&page=1",
)
_NUMBER = re.compile(r"(?:-|id=)(\d{1,12})(?:\.html|\.pdf|\.png|/|&page=1)?$")


class Slot(NamedTuple):
    """The properties of a numbered page that links to it need."""

    kind: Kind
    host: str
    target: str  # path and query
    nofollow_only: bool
    unlinked: bool
    url: str


class Tables(NamedTuple):
    """The shares of a world, prepared for random choices."""

    answers: Shares[Kind]
    robots: Shares[RobotsKind]

    @classmethod
    def of(cls, features: Features) -> Tables:
        return cls(Shares(features.answers, Kind.PAGE), Shares(features.robots, RobotsKind.ABSENT))


class Site:
    """Domain number `number` in a world with `seed`. `size`: number of its pages."""

    def __init__(self, seed: int, features: Features, tables: Tables, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.domain = domain_name(number)
        self._seed = seed
        self._features = features
        self._answers = tables.answers
        bits = draw(seed, "site", number)
        several = fraction(bits) < features.several_hosts
        prefixes = ("", "www.", "blog.") if several else ("",)
        self.hosts = tuple(prefix + self.domain for prefix in prefixes)
        self.robots = {host: self._robots_kind(tables.robots, host) for host in self.hosts}
        listable = self.robots[self.domain] in _CAN_NAME_SITEMAP
        self.has_sitemap = listable and fraction(bits >> 32) < features.sitemaps

    def _robots_kind(self, table: Shares[RobotsKind], host: str) -> RobotsKind:
        """The hosts of a domain share one Crawl-delay or have none, so that it is known after the first robots.txt."""
        first = table.pick(draw(self._seed, "robots", self.domain))
        if host == self.domain or first is RobotsKind.DELAY:
            return first
        own = table.pick(draw(self._seed, "robots", host))
        return RobotsKind.FOLDER if own is RobotsKind.DELAY else own

    @property
    def crawl_delay(self) -> float:
        """The Crawl-delay of the domain's robots.txt in seconds, 0 if there is none."""
        return self._features.crawl_delay_s if self.robots[self.domain] is RobotsKind.DELAY else 0.0

    def is_hub(self, number: int) -> bool:
        """Whether the page has children."""
        return number * self._features.fanout + 1 < self.size

    def children(self, number: int) -> range:
        """The numbers of the page's children in the tree."""
        first = number * self._features.fanout + 1
        return range(first, min(first + self._features.fanout, self.size))

    def slot(self, number: int) -> Slot:
        """The page with this number, 0 to size - 1."""
        if number == 0:
            return Slot(Kind.PAGE, self.domain, "/", False, False, absolute(self.domain, "/"))
        bits = draw(self._seed, self.number, number)
        kind = self._answers.pick(bits)
        bits >>= 32
        if self.is_hub(number):
            kind = kind if kind in HUB_KINDS else Kind.PAGE
            target = _target(kind, "", number, bits)
            return Slot(kind, self.domain, target, False, False, absolute(self.domain, target))
        return self._leaf(kind, number, bits)

    def _leaf(self, kind: Kind, number: int, bits: int) -> Slot:
        features = self._features
        host = self.hosts[bits % len(self.hosts)]
        folder = ""
        luck = (bits >> 16 & 0xFFFF) / 0x10000
        if luck < features.private:
            folder = "private" if bits & 4 else "private/open"
        luck = 1 - luck
        nofollow_only = luck < features.nofollow_only
        unlinked = self.has_sitemap and host == self.domain and 0 <= luck - features.nofollow_only < features.unlinked
        target = _target(kind, folder, number, bits)
        return Slot(kind, host, target, nofollow_only, unlinked, absolute(host, target))

    def number_of(self, host: str, target: str) -> int | None:
        """The number of the page at `target` on `host`, or None if there is none."""
        if target == "/":
            return 0 if host == self.domain else None
        match = _NUMBER.search(target)
        if match is None or not 0 < int(match[1]) < self.size:
            return None
        slot = self.slot(int(match[1]))
        return int(match[1]) if (slot.host, slot.target) == (host, target) else None


_CAN_NAME_SITEMAP = frozenset({RobotsKind.ALLOW, RobotsKind.FOLDER, RobotsKind.DELAY, RobotsKind.BOM})


def domain_name(number: int) -> str:
    """The name of the domain with this number: d00017.test for 17."""
    return f"d{number:05}.test"


def domain_number(domain: str) -> int | None:
    """The number in the name, or None if the name has another form."""
    digits = domain[1:-5]
    if not digits.isdecimal() or not domain.isascii() or domain_name(int(digits)) != domain:
        return None
    return int(digits)


def domain_of(host: str) -> str:
    """The registrable domain, which is the last two labels, because .test is a plain suffix."""
    return ".".join(host.split(".")[-2:])


def _target(kind: Kind, folder: str, number: int, bits: int) -> str:
    folder = folder or FOLDERS[(bits >> 2) % len(FOLDERS)]
    word = WORDS[(bits >> 6) % len(WORDS)]
    if kind is Kind.BINARY:
        return f"/{folder}/{word}-{number}.{'pdf' if bits & 2 else 'png'}"
    return FORMS[(bits >> 10) % len(FORMS)].format(folder=folder, word=word, number=number)
