"""Decides which pages are rendered with `render.mode = "auto"`, and learns from each that was. No I/O.

A page without a script is not rendered, and the shell of an application is (`crawler.parse.needs_scripts`). Of the others,
only rendering tells, so samples are rendered: of each shape of URLs the first page, one whenever its pages have doubled,
and the next page after one that brought something. If two of the last five brought something, all pages of the shape are
rendered, until fewer of the last five do. Its first pages, which were settled without a browser, are visited again then.

Rendering takes hundreds of times the CPU of a page. So the more samples of a site in a row brought nothing, the more pages
a shape needs before another one is rendered. The first sample of a shape comes early unless its scripts, and the places
that they may fill, are those of other shapes that brought nothing: a list often has one of its own, and is found among many
other pages then. A shape with a page that brought something waits for no other. A list among more shapes than there are
samples, and with nothing of its own, may be missed.

What was learnt is forgotten when a domain moves to another replica, which then needs some samples again, as with
`crawler.scope.shapes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crawler.page import Rendered, WhyRendered
from crawler.parse.document import ParsedDocument
from crawler.parse.needs_scripts import Need
from crawler.scope.shapes import NAMED, Recent, shapes_of
from frontier.entries import Entry

_LATEST, _ENOUGH = 5, 2
"""Rendered pages of a shape that are remembered, and how many of them have to bring something."""

_PATIENCE = 1.5
"""Base of the number of pages that a shape needs for a sample: its first one by the shapes with the same scripts whose
first sample brought nothing, another one by all samples of the site in a row that brought nothing."""

_FREE_SHAPES = 5
"""Shapes with the same scripts, in a row, that have their first page rendered."""

_FREE, _FREE_NEW, _AT_LAST = 10, 14, 4.0
"""Samples of a site in a row that brought nothing, from which on each needs four times as many pages of its shape as the
one before; the second number is for the first page with scripts or places of its own. So 10,000 pages have at most 20 in
vain."""

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


@dataclass(slots=True)
class _Shape:
    """`latest`: a bit for each of the last rendered pages, 1 if it brought something."""

    seen: int = 0
    rendered: int = 0
    latest: int = 0
    next_sample: int = 1

    @property
    def is_rendered(self) -> bool:
        return self.latest.bit_count() >= _ENOUGH


class RenderChoice:
    """What one replica has learnt."""

    def __init__(self) -> None:
        self._shapes = Recent[str, _Shape](10_000)
        self._skipped = Recent[str, list[Entry]](SHAPES_AGAIN)  # pages that were not rendered, by shape
        self._named = set[str]()
        # What brought nothing, in a row: samples of a domain (0), and first samples of its shapes with the same scripts.
        self._in_vain = Recent[tuple[str, int], int](10_000)

    def choose(self, entry: Entry, need: Need, scripts: Callable[[], int] = lambda: 1) -> WhyRendered | None:
        """Why the page of `entry` is to be rendered, None if it is not. `scripts`: returns what `scripts_of`
        does; called for few pages."""
        if need == "no":
            return None
        shape = self._shape(entry)
        shape.seen += 1
        if need == "yes" and (shape.latest or shape.rendered < _REFUTED):
            return "shell"
        if shape.is_rendered:
            return "shape"
        if shape.seen >= shape.next_sample and shape.seen >= self._patience(shape, entry.domain, scripts()):
            shape.next_sample = 2 * shape.seen
            return "sample"
        key = shapes_of(entry.url)[1]
        if (skipped := self._skipped.get(key)) is None:
            self._skipped.put(key, skipped := [])
        if len(skipped) < MOST_AGAIN:
            skipped.append(entry)
        return None

    def _patience(self, shape: _Shape, domain: str, scripts: int) -> float:
        """How many pages `shape` needs for its next sample, as far as other shapes tell."""
        if shape.latest:
            return 0.0
        firsts, samples = self._in_vain.get((domain, scripts)) or 0, self._in_vain.get((domain, 0)) or 0
        enough = _PATIENCE ** (samples if shape.rendered else max(0, firsts - _FREE_SHAPES))
        free = _FREE if firsts or shape.rendered else _FREE_NEW
        return max(enough, _AT_LAST ** max(0, samples - free))

    def learn(self, entry: Entry, why: WhyRendered, has_gained: bool, scripts: int = 1) -> None:
        """Learn from the page of `entry`, which was rendered."""
        shape = self._shape(entry)
        shape.rendered += 1
        shape.latest = (shape.latest << 1 | has_gained) & ((1 << _LATEST) - 1)
        if has_gained:
            shape.next_sample = shape.seen + 1
        if why != "sample":
            return
        for key in ((entry.domain, 0), (entry.domain, scripts)):
            if has_gained:
                self._in_vain.put(key, 0)
            elif key[1] == 0 or shape.rendered == 1:
                self._in_vain.put(key, (self._in_vain.get(key) or 0) + 1)

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
        if not self._shape(entry).is_rendered or not (skipped := self._skipped.get(key)):
            return []
        self._skipped.put(key, [])
        return [
            Entry(one.url, one.domain, one.priority, one.depth, mode="again", via=one.via, tag=one.tag)
            for one in skipped
        ]

    def _shape(self, entry: Entry) -> _Shape:
        key = shapes_of(entry.url)[1]
        if (shape := self._shapes.get(key)) is None:
            self._shapes.put(key, shape := _Shape())
        return shape


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
