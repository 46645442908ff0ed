"""The responses of the numbered pages of a domain, and of the side URLs that belong to them.

| side URL | belongs to |
|---|---|
| /hop/k/n | the redirect chain that begins at page k |
| /loop/k | page k, which redirects here and is redirected to from here |
| /spin/k/n | page k; redirects to /spin/k/n+1 |
| /mirror/k | page k, whose body it repeats |
| /ghost/k | page k, which has a nofollow directive and is the only one to link here |
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from random import Random

from crawler.simweb.articles import article
from crawler.simweb.chance import Shares, draw, fraction
from crawler.simweb.changing import Change, Changing, Validity
from crawler.simweb.features import REDIRECTS, Charset, Coding, Features, Kind
from crawler.simweb.links import Base, PlacedLink, absolute, spell, spell_fixed, spell_location, split
from crawler.simweb.resource import Fault, Markup, Resource, Trouble
from crawler.simweb.site import Site, Slot
from crawler.simweb.sites import Sites

_SIDE = re.compile(r"^/(hop|loop|spin|mirror|ghost)/(\d{1,12})(?:/(\d{1,6}))?$")
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_FAULTS = {
    Kind.CUT: Fault.CUT,
    Kind.BAD_CHUNKS: Fault.BAD_CHUNKS,
    Kind.GARBAGE: Fault.GARBAGE,
    Kind.HANG_UP: Fault.HANG_UP,
    Kind.SILENT: Fault.SILENT,
}
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
        self._changes = Shares(features.changes, Change.NEVER)
        self._validities = Shares(features.validities, Validity.NONE)

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
        if slot.kind in _FAULTS:
            markup = Markup(title=slot.kind.value, size=4000)
            return Resource(url=slot.url, markup=markup, fault=_FAULTS[slot.kind], chunked=slot.kind is Kind.BAD_CHUNKS)
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
            return self._mirror(site, number, slot, url)
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
            changing=self.changing(slot.url),
        )

    def changing(self, url: str) -> Changing | None:
        """How the page `url` changes; None in a world without changes."""
        features = self._features
        if not features.changes:
            return None
        least, most = map(math.log, features.change_s)
        mean_s = math.exp(least + (most - least) * fraction(draw(self._seed, "rate", url)))
        change = self._changes.pick(draw(self._seed, "change", url))
        validity = self._validities.pick(draw(self._seed, "validity", url))
        is_lying = fraction(draw(self._seed, "lying", url)) < features.lying
        return Changing(self._seed, url, change, mean_s, validity, is_lying)

    def _mirror(self, site: Site, number: int, slot: Slot, url: str) -> Resource:
        return replace(self._page(site, number, slot), url=url)

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
        if kind is Kind.BUSY or kind is Kind.REFUSING:
            return Trouble(
                status=503 if kind is Kind.REFUSING else rng.choice((429, 503)),
                succeeds_at=rng.randint(2, 4) if kind is Kind.BUSY else 0,
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
