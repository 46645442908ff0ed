"""The synthetic web: any number of domains and pages, computed from a seed on demand.

Only the size of each domain is stored. The response of a URL is a pure function of the seed and the URL, so any number of
processes can have the same world. The number of pages includes only the numbered pages, not the side URLs, robots.txt,
sitemaps and hostile domains.

The pages of a domain form a tree by number. The children of page k are k * fanout + 1 and the following ones, so all pages
are reachable from page 0, the root. Pages with children are *hubs*: on the first host, outside /private/, always with a
body. Only leaves have unusual behaviour. Some pages have side URLs:

| side URL | belongs to |
|---|---|
| /hop/k/n | the redirect chain that begins at page k |
| /loop/k | page k, which redirects here and is redirected to from here |
| /spin/k/n | page k; redirects to /spin/k/n+1 |
| /mirror/k | page k, whose body it repeats |
| /ghost/k | page k, which has a nofollow directive and is the only one to link here |

The root of a hostile domain (`h0001-gzip-bomb.test`) links to /hazard, where the attack is, and to /after, a page that a
correct crawler still fetches. Its robots.txt denies /private/. Traps and the circle of redirects have an unlimited number
of URLs after /hazard. The attacks by robots.txt and sitemap serve a normal page at /hazard.
"""

from __future__ import annotations

import gzip
import re
from array import array
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import NamedTuple

from tests.simweb.features import (
    FLAKY_FAILURES,
    HOPS,
    HUB_KINDS,
    REDIRECTS,
    TRAPS,
    Charset,
    Coding,
    Features,
    Hazard,
    Kind,
    RobotsKind,
    Shares,
    draw,
    fraction,
    robots_deny,
    robots_text,
)
from tests.simweb.resource import (
    Base,
    Markup,
    PlacedLink,
    Resource,
    Trouble,
    absolute,
    article,
    spell,
    spell_fixed,
    spell_location,
    split,
)

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


# A site takes about 1 KiB, so the cache stays below 4 MiB.
_SITES_KEPT = 4096


class Sites:
    """`pages` pages over `domains` domains. Raises ValueError if there are fewer pages than domains."""

    def __init__(self, seed: int, domains: int, pages: int, features: Features) -> None:
        if not 0 < domains <= pages:
            raise ValueError(f"{domains} domains need at least {domains} pages, not {pages}")
        self._sizes = zipf_sizes(domains, pages, features.zipf)
        tables = Tables.of(features)
        make = lru_cache(maxsize=_SITES_KEPT)(lambda n: Site(seed, features, tables, n, self._sizes[n]))
        self._make = make

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, number: int) -> Site:
        """Domain number `number`. Raises IndexError if there is none."""
        return self._make(number)

    def find(self, host: str) -> Site | None:
        """The domain that has this host, or None."""
        number = domain_number(domain_of(host))
        if number is None or number >= len(self._sizes):
            return None
        site = self[number]
        return site if host in site.robots else None


def zipf_sizes(domains: int, pages: int, exponent: float) -> array[int]:
    """Sizes of at least 1 in proportion to 1 / rank ** exponent, largest first, that add up to `pages`."""
    weights = [rank**-exponent for rank in range(1, domains + 1)]
    spare = pages - domains
    scale = spare / sum(weights)
    sizes = array("q", (1 + int(weight * scale) for weight in weights))
    for index in range(pages - sum(sizes)):
        sizes[index % domains] += 1
    return sizes


_SITEMAP = re.compile(r"^/sitemap-(\d{1,6})\.xml(?:\.gz)?$")
_LISTED_EACH = 1000
SHARED_RULES_HOST = "rules.test"


class Services:
    """The robots.txt and sitemaps of all hosts of a world."""

    def __init__(self, seed: int, features: Features) -> None:
        self._seed = seed
        self._features = features

    def resource(self, site: Site, host: str, target: str) -> Resource | None:
        """The resource at `target` on a host of `site`, if it is not a page. None if there is none."""
        if target == "/robots.txt":
            return self._robots(site, host)
        if target.startswith("/robots-hop/") and site.robots[host] is RobotsKind.FIVE_HOPS:
            return self._hop(site, host, target.removeprefix("/robots-hop/"))
        if site.has_sitemap and host == site.domain:
            return _sitemap(site, target)
        return None

    def rules_elsewhere(self, host: str, target: str) -> Resource | None:
        """The resource on a host to which MOVED and SHARED robots.txt redirect. None if there is none."""
        if (host == SHARED_RULES_HOST or host.startswith("rules-d")) and target.startswith("/for/"):
            return self._file(absolute(host, target), RobotsKind.FOLDER, "")
        return None

    def _robots(self, site: Site, host: str) -> Resource:
        kind = site.robots[host]
        url = absolute(host, "/robots.txt")
        if kind in (RobotsKind.ABSENT, RobotsKind.FORBIDDEN):
            return Resource(url=url, status=404 if kind is RobotsKind.ABSENT else 403, body=b"<h1>No</h1>")
        if kind is RobotsKind.FIVE_HOPS:
            return _moved(url, absolute(host, "/robots-hop/2"))
        if kind in (RobotsKind.MOVED, RobotsKind.SHARED):
            elsewhere = SHARED_RULES_HOST if kind is RobotsKind.SHARED else f"rules-{site.domain}"
            return _moved(url, absolute(elsewhere, f"/for/{host}"))
        sitemap = absolute(host, "/sitemap.xml") if site.has_sitemap and host == site.domain else ""
        return self._file(url, kind, sitemap)

    def _file(self, url: str, kind: RobotsKind, sitemap: str) -> Resource:
        body = robots_text(kind, self._features.crawl_delay_s, sitemap)
        file = Resource(url=url, body=body, media="text/plain")
        if kind is RobotsKind.SLOW:
            return replace(file, delay=self._features.slow_s)
        if kind is RobotsKind.FLAKY:
            busy = Trouble(status=503, succeeds_at=FLAKY_FAILURES + 1, retry_after_s=self._features.retry_after_s)
            return replace(file, trouble=busy)
        if kind is RobotsKind.UNREACHABLE:
            status = 500 + 3 * (draw(self._seed, url) % 2)
            retry_after_s = self._features.retry_after_s if status == 503 else 0
            return replace(file, trouble=Trouble(status=status, succeeds_at=0, retry_after_s=retry_after_s))
        return file

    def _hop(self, site: Site, host: str, step: str) -> Resource | None:
        url = absolute(host, f"/robots-hop/{step}")
        if step == str(HOPS + 1):
            return self._file(url, RobotsKind.FOLDER, "")
        if step in "2345" and len(step) == 1:
            return _moved(url, absolute(host, f"/robots-hop/{int(step) + 1}"))
        return None


def _moved(url: str, goal: str) -> Resource:
    return Resource(url=url, status=301, location=goal, redirect=goal, body=b"")


def _sitemap(site: Site, target: str) -> Resource | None:
    """/sitemap.xml, which is an index (sitemaps.org protocol), and its sitemaps. Every other one is compressed."""
    count = -(-site.size // _LISTED_EACH)
    if target == "/sitemap.xml":
        return _listing(site, target, "sitemapindex", "sitemap", [_part_url(site, n) for n in range(count)])
    match = _SITEMAP.match(target)
    if match is None or int(match[1]) >= count or absolute(site.domain, target) != _part_url(site, int(match[1])):
        return None
    first = int(match[1]) * _LISTED_EACH
    slots = (site.slot(number) for number in range(first, min(first + _LISTED_EACH, site.size)))
    return _listing(site, target, "urlset", "url", [slot.url for slot in slots if slot.host == site.domain])


def _part_url(site: Site, part: int) -> str:
    return absolute(site.domain, f"/sitemap-{part}.xml" + (".gz" if part % 2 == 0 else ""))


def _listing(site: Site, target: str, outer: str, inner: str, urls: list[str]) -> Resource:
    items = "".join(f"<{inner}><loc>{url.replace('&', '&amp;')}</loc></{inner}>\n" for url in urls)
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<{outer} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{items}</{outer}>\n'
    )
    zipped = target.endswith(".gz")
    return Resource(
        url=absolute(site.domain, target),
        body=gzip.compress(text.encode(), 1, mtime=0) if zipped else text.encode(),
        media="application/gzip" if zipped else "application/xml",
        listed=tuple(urls),
    )


_SIDE = re.compile(r"^/(hop|loop|spin|mirror|ghost)/(\d{1,12})(?:/(\d{1,6}))?$")
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_TITLES = {"utf-8": "Café – 東京", "iso-8859-1": "Café & Straße", "shift_jis": "日本語のページ"}
_BINARY = {"pdf": (b"%PDF-1.7\n", "application/pdf"), "png": (b"\x89PNG\r\n\x1a\n", "image/png")}
_NO_LINK = b'<a href="/not-a-link">not HTML</a>'
_FILLER_OFFSETS = 64

# Entries have about half a KiB, so the cache stays below 32 MiB. It halves the cost of a page's links.
_SLOTS_KEPT = 65_536


class Numbered:
    """The pages of all domains of a world."""

    def __init__(self, seed: int, features: Features, sites: Sites) -> None:
        self._seed = seed
        self._features = features
        self._sites = sites
        self._slot = lru_cache(maxsize=_SLOTS_KEPT)(Site.slot)
        self._codings = Shares(features.codings, Coding.IDENTITY)
        self._charsets = Shares(features.charsets, Charset.UTF8_HEADER)

    def resource(self, site: Site, host: str, target: str) -> Resource | None:
        """The resource at `target` (path and query) on a host of `site`, or None."""
        number = site.number_of(host, target)
        if number is not None:
            return self._page(site, number, self._slot(site, number))
        match = _SIDE.match(target)
        if match is None or not 0 < int(match[2]) < site.size:
            return None
        slot = self._slot(site, int(match[2]))
        return self._side(site, int(match[2]), slot, match[1], int(match[3] or 0)) if slot.host == host else None

    def _page(self, site: Site, number: int, slot: Slot) -> Resource:
        rng = Random(draw(self._seed, "page", site.number, number))
        if slot.kind in REDIRECTS:
            return self._redirect(site, number, slot, rng)
        if slot.kind in (Kind.MISSING, Kind.GONE):
            status = 404 if slot.kind is Kind.MISSING else 410
            return Resource(url=slot.url, status=status, body=b"<h1>Nothing here</h1>")
        if slot.kind is Kind.BINARY:
            magic, media = _BINARY[slot.target[-3:]]
            return Resource(url=slot.url, media=media, body=magic + rng.randbytes(1000) + _NO_LINK)
        if slot.kind is Kind.CUT:
            return Resource(url=slot.url, markup=Markup(title=slot.kind.value, size=4000), is_cut=True)
        return self._html(site, number, slot, rng)

    # -- redirects

    def _redirect(self, site: Site, number: int, slot: Slot, rng: Random) -> Resource:
        if slot.kind is Kind.CHAIN:
            return _redirect(slot.url, slot.host, f"/hop/{number}/{rng.randint(1, 4)}", rng)
        if slot.kind is Kind.LOOP:
            return _redirect(slot.url, slot.host, f"/loop/{number}", rng)
        if slot.kind is Kind.SPIN:
            return _redirect(slot.url, slot.host, f"/spin/{number}/1", rng)
        if slot.kind is Kind.MOVED_AWAY:
            other = self._slot(self._sites[int(rng.random() * len(self._sites))], 0)
            return _redirect(slot.url, other.host, other.target, rng)
        goal = self._goal(site, number)
        return _redirect(slot.url, goal.host, goal.target, rng)

    def _goal(self, site: Site, number: int) -> Slot:
        """A page that does not redirect, so that chains are not longer than intended."""
        goal = self._slot(site, draw(self._seed, "goal", site.number, number) % site.size)
        return self._slot(site, 0) if goal.kind in REDIRECTS else goal

    def _side(self, site: Site, number: int, slot: Slot, name: str, step: int) -> Resource | None:
        url = absolute(slot.host, f"/{name}/{number}/{step}" if step else f"/{name}/{number}")
        rng = Random(draw(self._seed, url))
        if name == "hop" and slot.kind is Kind.CHAIN and 1 <= step <= 4:
            goal = self._goal(site, number)
            back = (slot.host, f"/hop/{number}/{step - 1}") if step > 1 else (goal.host, goal.target)
            return _redirect(url, *back, rng)
        if name == "loop" and slot.kind is Kind.LOOP:
            return _redirect(url, slot.host, slot.target, rng)
        if name == "spin" and slot.kind is Kind.SPIN and step:
            return _redirect(url, slot.host, f"/spin/{number}/{step + 1}", rng)
        if name == "mirror" and self._is_mirrored(site, number, slot):
            return replace(self._page(site, number, slot), url=url)
        if name == "ghost" and self._is_nofollow(site, number, slot):
            return Resource(url=url, markup=Markup(title="Not to be followed to"))
        return None

    # -- HTML

    def _html(self, site: Site, number: int, slot: Slot, rng: Random) -> Resource:
        fixed = self._is_mirrored(site, number, slot)
        base, base_href = self._base(slot, fixed, rng)
        nofollow = self._is_nofollow(site, number, slot)
        in_header = nofollow and rng.random() < 0.5
        charset = self._charsets.pick(rng.getrandbits(32))
        return Resource(
            url=slot.url,
            links=tuple(self._links(site, number, slot, base, rng)),
            markup=self._markup(slot, charset, base_href, nofollow and not in_header, rng),
            charset=charset,
            coding=self._codings.pick(rng.getrandbits(32)),
            chunked=rng.random() < self._features.chunked,
            x_robots="noindex, nofollow" if in_header else "",
            nofollow=nofollow,
            trouble=self._trouble(slot.kind, rng),
            delay=self._features.slow_s if slot.kind is Kind.SLOW else 0.0,
        )

    def _base(self, slot: Slot, fixed: bool, rng: Random) -> tuple[Base, str]:
        """The base of relative hrefs, and the href of <base>, or empty if there is none."""
        if fixed or not self._features.varied or rng.random() > 0.1:
            return Base.of(slot.host, slot.target), ""
        base = Base(slot.host, rng.choice(("/wiki/", "/shop/deep/")))
        return base, rng.choice((base.folder, absolute(base.host, base.folder)))

    def _markup(self, slot: Slot, charset: Charset, base_href: str, nofollow: bool, rng: Random) -> Markup:
        varied = self._features.varied
        found = article(self._seed, slot.url) if self._features.articles else None
        harmless = rng.choice(("", "", "", "noindex", "noarchive", "index, follow")) if varied else ""
        return Markup(
            title=f"{slot.target.rpartition('/')[2] or slot.host} {_TITLES[charset.encoding]}",
            base=base_href,
            canonical=slot.url if varied and rng.random() < 0.2 else "",
            meta_robots="NoFollow" if nofollow else harmless,
            prolog=varied and rng.random() < 0.05,
            decoys=varied,
            article=found.html if found else "",
            size=rng.randint(*self._features.body_bytes),
            offset=rng.randrange(_FILLER_OFFSETS),
        )

    def _trouble(self, kind: Kind, rng: Random) -> Trouble | None:
        if kind is Kind.BUSY:
            return Trouble(
                status=rng.choice((429, 503)),
                succeeds_at=rng.randint(2, 4),
                retry_after_s=self._features.retry_after_s,
                as_date=rng.random() < 0.5,
            )
        if kind is Kind.FLAKY or kind is Kind.FAILING:
            return Trouble(status=500, succeeds_at=rng.randint(2, 4) if kind is Kind.FLAKY else 0)
        return None

    # -- links

    def _links(self, site: Site, number: int, slot: Slot, base: Base, rng: Random) -> Iterator[PlacedLink]:
        fixed = self._is_mirrored(site, number, slot)
        write = spell if self._features.varied and not fixed else spell_fixed
        for goal in self._goals(site, number, rng):
            if not goal.unlinked:
                href = write(goal.host, goal.target, base, rng.getrandbits(16))
                yield PlacedLink(goal.url, href, goal.nofollow_only)
        for name, exists in (("mirror", fixed), ("ghost", self._is_nofollow(site, number, slot))):
            if exists:
                target = f"/{name}/{number}"
                yield PlacedLink(absolute(slot.host, target), spell_fixed(slot.host, target, base, number))

    def _goals(self, site: Site, number: int, rng: Random) -> Iterator[Slot]:
        """The root, the children in the tree, and pages here and elsewhere."""
        yield self._slot(site, 0)
        for child in site.children(number):
            yield self._slot(site, child)
        for _ in range(self._features.links):
            goal_site = site
            if rng.random() < self._features.abroad:
                goal_site = self._sites[int(rng.random() * len(self._sites))]
            yield self._slot(goal_site, int(rng.random() * goal_site.size))

    def _is_mirrored(self, site: Site, number: int, slot: Slot) -> bool:
        lucky = fraction(draw(self._seed, "mirror", site.number, number)) < self._features.mirrored
        return lucky and slot.kind is Kind.PAGE and number > 0

    def _is_nofollow(self, site: Site, number: int, slot: Slot) -> bool:
        lucky = fraction(draw(self._seed, "nofollow", site.number, number)) < self._features.nofollow_pages
        return lucky and slot.kind is Kind.PAGE and not site.is_hub(number)


def _redirect(url: str, host: str, target: str, rng: Random) -> Resource:
    own_host, own_target = split(url)
    return Resource(
        url=url,
        status=rng.choice(_REDIRECT_STATUSES),
        location=spell_location(host, target, Base.of(own_host, own_target), rng.getrandbits(8)),
        redirect=absolute(host, target),
        body=b'<h1>Moved</h1><a href="/not-a-link-of-a-redirect">there</a>',
    )


_BY_FILE = {
    Hazard.ROBOTS_BOMB: "/robots.txt",
    Hazard.ROBOTS_ENDLESS: "/robots.txt",
    Hazard.ROBOTS_PATTERNS: "/robots.txt",
    Hazard.SITEMAP_BOMB: "/sitemap.xml",
}
_MONTH = re.compile(r"^/calendar/(\d{4,6})/(\d\d)$")
_STEP = re.compile(r"^/hop/(\d{1,6})$")


class Hostile:
    """The domains for these hazards."""

    def __init__(self, hazards: tuple[Hazard, ...]) -> None:
        names = (hazard_domain(number, hazard) for number, hazard in enumerate(hazards, 1))
        self._by_domain = dict(zip(names, hazards, strict=True))
        circles = [name for name, hazard in self._by_domain.items() if hazard is Hazard.CIRCLE]
        self._by_host = self._by_domain | {_partner(name): Hazard.CIRCLE for name in circles}

    def domains(self) -> list[str]:
        """Their names. Only these must be seeds."""
        return list(self._by_domain)

    def attacks(self) -> list[str]:
        """The URLs of the attacks."""
        places = self._by_domain.items()
        return [absolute(domain, _BY_FILE.get(hazard, "/hazard")) for domain, hazard in places]

    def is_hostile(self, host: str) -> bool:
        """Whether this is the host of a hostile domain."""
        return host in self._by_host

    def is_trap(self, host: str) -> bool:
        """Whether the host has an unlimited number of pages."""
        return self._by_host.get(host) in TRAPS

    def names_sitemap(self, host: str) -> bool:
        """Whether the host's robots.txt names /sitemap.xml."""
        return self._by_host.get(host) is Hazard.SITEMAP_BOMB

    def resource(self, host: str, target: str) -> Resource | None:
        """The resource of a hostile host. None if there is none, or if the host is not hostile."""
        hazard = self._by_host.get(host)
        if hazard is None:
            return None
        url = absolute(host, target)
        if target == "/":
            return _page(host, target, "/hazard", "/after")
        if target == "/robots.txt":
            return self._robots(url, host, hazard)
        if target == _BY_FILE.get(hazard, "/hazard") and hazard not in _MANY_PAGES:
            return Resource(url=url, hazard=hazard)
        if target in ("/after", "/hazard") and hazard not in _MANY_PAGES:
            return _page(host, target)
        return _page(host, target) if target == "/after" else _behind(hazard, host, target)

    def _robots(self, url: str, host: str, hazard: Hazard) -> Resource:
        sitemap = absolute(host, "/sitemap.xml") if self.names_sitemap(host) else ""
        rules = robots_text(RobotsKind.FOLDER, 0, sitemap)
        by_robots = hazard if _BY_FILE.get(hazard) == "/robots.txt" else None
        return Resource(url=url, body=rules, media="text/plain", hazard=by_robots)


_MANY_PAGES = TRAPS | {Hazard.CIRCLE}


def hazard_domain(number: int, hazard: Hazard) -> str:
    """h0001-gzip-bomb.test"""
    return f"h{number:04}-{hazard}.test"


def _partner(domain: str) -> str:
    """The other domain of a redirect circle."""
    here, there = ("-circle.", "-elcric.") if "-circle." in domain else ("-elcric.", "-circle.")
    return domain.replace(here, there)


def _behind(hazard: Hazard, host: str, target: str) -> Resource | None:
    """/hazard and the pages after it, on the domains with an unlimited number of pages."""
    if hazard is Hazard.CIRCLE:
        return _circle(host, target)
    if hazard is Hazard.CALENDAR:
        return _month(host, target)
    if hazard is Hazard.SESSIONS and target.partition("?")[0] == "/hazard":
        ids = (draw(0, target, n) for n in range(3))
        return _trap(host, target, *(f"/hazard?visit={number:016x}" for number in ids))
    if hazard is Hazard.DEEPER and target.startswith("/hazard"):
        return _trap(host, target, f"{target}/folder", f"{target}/other")
    return None


def _circle(host: str, target: str) -> Resource | None:
    match = _STEP.match(target)
    if match is None and target != "/hazard":
        return None
    goal = absolute(_partner(host), f"/hop/{int(match[1]) + 1 if match else 1}")
    return Resource(url=absolute(host, target), status=302, location=goal, redirect=goal, body=b"")


def _month(host: str, target: str) -> Resource | None:
    if target == "/hazard":
        return _trap(host, target, "/calendar/2024/01")
    match = _MONTH.match(target)
    if match is None or not 1 <= int(match[2]) <= 12:
        return None
    months = int(match[1]) * 12 + int(match[2])
    return _trap(host, target, f"/calendar/{months // 12:04}/{months % 12 + 1:02}")


def _page(host: str, target: str, *goals: str) -> Resource:
    links = tuple(PlacedLink(absolute(host, goal), goal) for goal in goals)
    return Resource(url=absolute(host, target), markup=Markup(title=f"{target} of {host}"), links=links)


def _trap(host: str, target: str, *goals: str) -> Resource:
    """A page whose links are unknown to the expectation, because their number is unlimited."""
    anchors = "".join(f'<a href="{goal}">on</a>\n' for goal in goals)
    return Resource(url=absolute(host, target), body=f"<title>On and on</title>\n{anchors}".encode())


class World:
    """`pages` numbered pages spread over `domains` domains. Raises ValueError if there are fewer pages than domains."""

    def __init__(self, seed: int, domains: int, pages: int, features: Features | None = None) -> None:
        self.seed = seed
        self.pages = pages
        self.features = features or Features.plain()
        self.sites = Sites(seed, domains, pages, self.features)
        self._services = Services(seed, self.features)
        self._numbered = Numbered(seed, self.features, self.sites)
        self._hostile = Hostile(self.features.hazards)

    def seeds(self) -> list[str]:
        """The root of every domain, hostile ones last."""
        names = [domain_name(number) for number in range(len(self.sites))] + self._hostile.domains()
        return [absolute(name, "/") for name in names]

    def attacks(self) -> list[str]:
        """The URLs of the attacks by the hostile domains. Pages within a trap are not listed."""
        return self._hostile.attacks()

    def resource(self, url: str) -> Resource | None:
        """The resource at the canonical `url`, or None, which is sent as a 404."""
        return self.at(*split(url))

    def at(self, host: str, target: str) -> Resource | None:
        """The resource at `target` (path and query) on `host` (lower case, without port), or None."""
        site = self.sites.find(host)
        if site is None:
            return self._hostile.resource(host, target) or self._services.rules_elsewhere(host, target)
        service = self._services.resource(site, host, target)
        return service or self._numbered.resource(site, host, target)

    def is_denied(self, url: str) -> bool:
        """Whether the robots.txt of the URL's host denies it."""
        host, target = split(url)
        site = self.sites.find(host)
        if site is None:
            return self._hostile.is_hostile(host) and robots_deny(RobotsKind.FOLDER, target)
        return robots_deny(site.robots[host], target)

    def is_trap(self, host: str) -> bool:
        """Whether the host has an unlimited number of pages, which no expectation can list."""
        return self._hostile.is_trap(host)

    def names_sitemap(self, host: str) -> bool:
        """Whether the robots.txt of the host names its /sitemap.xml."""
        site = self.sites.find(host)
        if site is None:
            return self._hostile.names_sitemap(host)
        return site.has_sitemap and host == site.domain

    def crawl_delay(self, domain: str) -> float:
        """The Crawl-delay of the domain's robots.txt in seconds, 0 if there is none."""
        site = self.sites.find(domain)
        return site.crawl_delay if site else 0.0


def address_slot(host: str, addresses: int) -> int:
    """The index of the address, out of `addresses`, that serves the host. It depends on the last digit of the domain, so
    that ten patterns map all hosts."""
    digit = domain_of(host).partition(".")[0][-1:]
    return int(digit) % addresses if digit.isdecimal() else 0
