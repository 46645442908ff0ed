"""Decides which pages are rendered with `render.mode = "auto"`, and learns from each that was. No I/O.

A page without a script is not rendered, and the shell of an application is (`crawler.parse.needs_scripts`). Of the others,
only rendering tells, so samples are rendered: of each shape of URLs the first page, one whenever its pages have doubled,
and the next page after one that brought something. If two of the last five brought something, all pages of the shape are
rendered, until fewer of the last five do. Its first pages, which were settled without a browser, are visited again then.

Rendering takes hundreds of times the CPU of a page. So the more samples of a site in a row brought nothing, the more pages
a shape needs before another one is rendered. The first sample of a shape comes early if the page has a trait that no page
with a sample in vain has: a script, a place that scripts may fill, or a word that they name. A list mostly has one, and is
found among many other pages then. A first sample that asks for data of its own counts for nothing. A shape with a page
that brought something waits for no other. A list among more shapes than there are samples, and with no such trait, may be
missed.

What was learnt of a domain is kept with its lease. When it moves to another replica, this is forgotten: which pages were
skipped, the shapes beyond `_KEPT_SHAPES` and those without a sample, and the words that scripts name.
"""

from __future__ import annotations

from collections.abc import Callable, Set

import msgspec
from xxhash import xxh3_64_intdigest

from crawler.page import Rendered, WhyRendered
from crawler.parse.document import ParsedDocument
from crawler.parse.needs_scripts import Need
from crawler.scope.shapes import NAMED, Recent, shapes_of
from frontier.entries import Entry

_LATEST, _ENOUGH = 5, 2
"""Rendered pages of a shape that are remembered, and how many of them have to bring something."""

_PATIENCE = 1.5
"""Base of the number of pages that a shape needs for a sample: its first one by the first samples of pages without a trait
of their own that brought nothing, another one by all samples of the site in a row that brought nothing."""

_FREE_SHAPES = 5
"""Shapes without a trait of their own, in a row, that have their first page rendered."""

_FREE_AGAIN, _FREE, _FREE_NEW, _AT_LAST = 6, 12, 15, 4.0
"""Samples of a site in a row that brought nothing, from which on each needs four times as many pages of its shape as the
one before: a later sample of a shape, its first one, and one of a page with a trait of its own. So 10,000 pages have at
most 20 in vain besides those of `_ASKING`, and most of them are of different shapes."""

_ASKING = 100
"""First samples of a site that ask for data of their own, and count for nothing if they bring nothing."""

_MOST_TRAITS, _MOST_SHAPES, _KEPT_SHAPES = 100, 2_000, 50
"""Traits and shapes of a site that are remembered, and shapes that are kept with its lease, those that brought
something before the newest others."""

_REFUTED = 5
"""Shells of a shape that brought nothing, after which its shells are pages like others."""

MOST_AGAIN, SHAPES_AGAIN = 1_000, 100
"""Pages of a shape that are visited again when it turns out that they need a browser, and shapes whose pages are remembered
for that, those that were seen last: at most some 40 MB."""

_LEAST_LINKS, _LEAST_WORDS = 3, 50
_MORE_LINKS, _MORE_WORDS = 0.05, 0.2
"""Links of the site and words that a page has to bring, at least, and as a share of what it had."""

_LEAST_OF_SHELL = 5
"""Words that the shell of an application has to bring."""

_LONGEST_NAME = 120  # characters of a shape that is named

_FAILED_SHARE = 0.2
"""Share of a page's requests that failed, from which on it says nothing about its shape."""

_NO_PARTS = frozenset({"navigation", "window", "download", "scheme"})
"""Why requests are refused that no page needs to be complete."""


class _Shape(msgspec.Struct, array_like=True):
    """`latest`: a bit for each of the last rendered pages, 1 if it brought something."""

    seen: int = 0
    rendered: int = 0
    latest: int = 0
    next_sample: int = 1

    @property
    def is_rendered(self) -> bool:
        return self.latest.bit_count() >= _ENOUGH


class _Site(msgspec.Struct, array_like=True):
    """What was learnt of a domain. `samples`: those in a row that brought nothing; `alike`: the first ones of shapes among
    them without a trait of their own; `asking`: see `_ASKING`; `traits`: of pages that brought nothing."""

    samples: int = 0
    alike: int = 0
    asking: int = 0
    traits: list[int] = msgspec.field(default_factory=list)
    shapes: dict[int, _Shape] = msgspec.field(default_factory=dict)

    def shape(self, entry: Entry) -> _Shape:
        key = _key(entry.url)
        if (shape := self.shapes.get(key)) is None:
            if len(self.shapes) >= _MOST_SHAPES:
                self.shapes = dict(self._rendered())
            self.shapes[key] = shape = _Shape()
        return shape

    def _rendered(self) -> list[tuple[int, _Shape]]:
        rendered = [(key, shape) for key, shape in self.shapes.items() if shape.rendered]
        return sorted(rendered, key=lambda found: found[1].latest > 0)[-_MOST_SHAPES // 2 :]

    def is_known(self, traits: Set[int]) -> bool:
        """Whether pages with `traits` brought nothing."""
        return traits <= set(self.traits)

    def has_patience(self, shape: _Shape, traits: Callable[[], Set[int]]) -> bool:
        """Whether `shape` has enough pages for its next sample, as far as other shapes tell."""

        def is_due(samples: int, free: int, base: float = _AT_LAST) -> bool:
            return shape.seen >= base ** max(0, samples - free)

        if shape.latest:
            return True
        if shape.rendered:
            return is_due(self.samples, 0, _PATIENCE) and is_due(self.samples, _FREE_AGAIN)
        if self.asking < _ASKING and self.samples < 2 * self.asking:  # a third of the site's shapes ask, so more may
            return True
        if is_due(self.alike, _FREE_SHAPES, _PATIENCE) and is_due(self.samples, _FREE):
            return True
        is_looked_at = shape.seen.bit_count() == 1  # to look at each page would take milliseconds
        return is_looked_at and is_due(self.samples, _FREE_NEW) and not self.is_known(traits())

    def note_sample(self, is_first: bool, traits: Set[int], data: Set[int]) -> None:
        """Learn from a sample that brought nothing, and asked for `data`."""
        if is_first and self.asking < _ASKING and not self.is_known(data):
            self.asking += 1
        else:
            self.samples += 1
            self.alike += is_first and self.is_known(traits)
        self.traits = [*self.traits, *({*traits, *data} - set(self.traits))][-_MOST_TRAITS:]

    def __str__(self) -> str:
        """What is kept with a lease: about 1 KB."""
        kept = dict(self._rendered()[-_KEPT_SHAPES:])
        return msgspec.json.encode(msgspec.structs.replace(self, shapes=kept)).decode()


class RenderChoice:
    """What one replica knows of the domains that it has leased."""

    def __init__(self) -> None:
        self._sites = Recent[str, tuple[str, _Site]](2_000)
        self._skipped = Recent[str, list[Entry]](SHAPES_AGAIN)  # pages that were not rendered, by shape
        self._named = set[str]()

    def recall(self, domain: str, learnt: str) -> None:
        """Continue with what was `learnt` of `domain`, as the lease says, if that is not known here."""
        known, site = self._sites.get(domain) or ("", _Site())
        if not learnt or known == learnt:
            return
        try:
            kept = msgspec.json.decode(learnt, type=_Site)
        except (msgspec.DecodeError, UnicodeError):
            return
        kept.shapes = {**site.shapes, **kept.shapes}
        self._sites.put(domain, (learnt, kept))

    def choose(self, entry: Entry, need: Need, traits: Callable[[], Set[int]] = frozenset) -> WhyRendered | None:
        """Why the page of `entry` is to be rendered, None if it is not. `traits`: returns what `traits_of` does; called for
        few pages."""
        if need == "no":
            return None
        site = self._site(entry)
        shape = site.shape(entry)
        shape.seen += 1
        if need == "yes" and (shape.latest or shape.rendered < _REFUTED):
            return "shell"
        if shape.is_rendered:
            return "shape"
        if shape.seen >= shape.next_sample and site.has_patience(shape, traits):
            shape.next_sample = 2 * shape.seen
            return "sample"
        key = shapes_of(entry.url)[1]
        if (skipped := self._skipped.get(key)) is None:
            self._skipped.put(key, skipped := [])
        if len(skipped) < MOST_AGAIN:
            skipped.append(entry)
        return None

    def learn(
        self,
        entry: Entry,
        why: WhyRendered,
        has_gained: bool,
        traits: Set[int] = frozenset(),
        data: Set[int] = frozenset(),
    ) -> str:
        """Learn from the page of `entry`, which was rendered. `data`: what stands for the data that it has asked for.
        Returns what is to be kept with the lease."""
        site = self._site(entry)
        shape = site.shape(entry)
        shape.rendered += 1
        shape.latest = (shape.latest << 1 | has_gained) & ((1 << _LATEST) - 1)
        if has_gained:
            shape.next_sample = shape.seen + 1
        if why == "sample" and has_gained:
            site.samples, site.alike = 0, 0 if site.is_known(traits) else site.alike
        elif why == "sample":
            site.note_sample(shape.rendered == 1, traits, data)
        learnt = str(site)
        self._sites.put(entry.domain, (learnt, site))
        return learnt

    def name(self, entry: Entry, why: WhyRendered) -> str:
        """The name of the shape of `entry`, which is rendered because of `why`, if pages of it need a browser; otherwise,
        and if too many shapes were named, ""."""
        if why not in ("shell", "shape"):
            return ""
        key = shapes_of(entry.url)[1]
        if key not in self._named and len(self._named) < NAMED:
            self._named.add(key)
        return key[:_LONGEST_NAME] if key in self._named else ""

    def take_skipped(self, entry: Entry) -> list[Entry]:
        """The pages of the shape of `entry` that were not rendered, if that was wrong, to be queued again. A second call
        has none of them."""
        key = shapes_of(entry.url)[1]
        if not self._site(entry).shape(entry).is_rendered or not (skipped := self._skipped.get(key)):
            return []
        self._skipped.put(key, [])
        return [
            Entry(one.url, one.domain, one.priority, one.depth, mode="again", via=one.via, tag=one.tag)
            for one in skipped
        ]

    def _site(self, entry: Entry) -> _Site:
        if (known := self._sites.get(entry.domain)) is None:
            self._sites.put(entry.domain, known := ("", _Site()))
        return known[1]


def _key(url: str) -> int:
    return xxh3_64_intdigest(shapes_of(url)[1].encode()) >> 32


def has_gained(
    why: WhyRendered,
    static: ParsedDocument,
    dom: ParsedDocument,
    domain: str,
    words: int | None,
    words_of_dom: int | None,
) -> bool:
    """Whether a page has more in a browser: links to its site, or words; None if they were not counted."""
    had = {url.href for url in static.found.urls if url.domain == domain}
    links = sum(url.domain == domain and url.href not in had for url in dom.found.urls)
    new_words = 0 if words is None or words_of_dom is None else words_of_dom - words
    if why == "shell":  # whatever it shows is all that it has
        return links > 0 or new_words >= _LEAST_OF_SHELL
    return links >= max(_LEAST_LINKS, _MORE_LINKS * len(had)) or new_words >= max(
        _LEAST_WORDS, _MORE_WORDS * (words or 0)
    )


def is_evidence(rendered: Rendered) -> bool:
    """Whether a page was shown as it is: a failure, or many requests without an answer, say nothing about its shape."""
    unanswered = sum(
        count
        for reason, count in rendered.refused.items()
        if reason not in _NO_PARTS and not reason.startswith("type ")
    )
    return rendered.outcome == "done" and unanswered <= _FAILED_SHARE * (rendered.requests + unanswered)
