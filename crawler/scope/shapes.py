"""Learns which shapes of URLs bring nothing new, so that calendars, permutations of filters and views of other pages come
last. No I/O.

A *shape* is the host, the first two path segments with numbers and ids left out, and the names of the parameters. There
is a wider one for each, with any last segment, to which each narrow one adds a few pages: `/wiki/*?action` is learnt from
the pages of several articles. Another wider one has any names of parameters, because filters can be combined in hundreds
of ways: `/list?*`. It applies to combinations that were not seen yet, or whose pages all brought nothing. A shape is
useless when 30 of its pages were fetched and 80 % of the latest brought nothing, or 15 and none of the latest 12 brought
anything:

- the page says noindex, others of its site do not, and it leads to no new URL of a shape whose pages may be indexed, as
  the lists of an archive do,
- its body is that of another page of the site,
- or its title is that of an earlier page, dates left out, and all its text is on earlier pages of its shape, as that of a
  list in another order. Below a long menu, a line that no other page has is content, and so is a link to a new URL without
  a query, such as the file of a newspaper, unless most pages of the shape of that URL were useless, too.

A new title is new content, so texts are compared only for pages without one, and only of some pages of a shape. That keeps
the cost of an ordinary page at some microseconds.

Copies at URLs without a query, such as dead links and empty folders, say nothing of the wider shape: what else is beside
them may be the articles of the site. URLs of a known shape are only judged by a wider one if none of its pages was new.

URLs of a useless shape are put off: they come after all others. So do the links of copies, because a relative menu on a
server that answers every path leads to ever more of them, but one of a manual to the chapters of another version. When
nothing else is left of their domain, some at random and then those nearest to a seed are fetched, up to a share of its
pages, and more after each that has new text, such as the day of an event in a calendar of empty days. Links of copies are
all fetched once others of their shape were new. The rest are denied. All of this is forgotten when a domain moves to
another replica, which then needs 30 pages of each shape again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec
from xxhash import xxh3_64_intdigest

from frontier.entries import MOST_PRIORITY, Entry
from frontier.urls import origin_of

LEARNT_FROM = 30
"""Pages of a shape before it can be useless."""

_QUICKLY = 15  # pages of a shape that suffice if all of the latest ones were useless
_FEW = 12  # of its latest pages that must have been judged useless then, if so many were judged
_WINDOW = 30  # latest pages that were judged
_LATEST = (1 << _WINDOW) - 1
_LEAST_JUDGED = 20
_INDEXED = 10  # pages that may be indexed before noindex says anything: all of an intranet or a staging site may say it
_USELESS = 0.8
_MOST_USELESS = 1_000  # shapes of a domain that are remembered

_PER_NARROW = 10  # pages that a shape adds to the wider one
_UNREAD = 5  # pages of a shape before texts are compared
_PROMISED = 5  # pages that are worth their links to a shape of which nothing is known
_SAMPLED = 16  # afterwards one page of so many is compared
_SUSPECT = 4  # and of a shape of which some of the latest pages were useless
_BAD = 0b11  # while the latest two were useless, the next ones are compared, too

_NEW_TEXT = 0.03  # share of a text that a near duplicate may have of its own
_TEXTS = 12  # per shape: those of a calendar whose titles name months
_NUMBERED_PIECES = 2  # of a page, that differ from those of others only in their numbers
_LITTLE = 1_000  # bytes of text; a page with less is also told by its scripts and attributes
_LISTED = 3  # links to known pages that make a list
_TIME = 5  # bytes of 12:30, which is data if it stands alone, as in a timetable
_ECHOES = 4  # parameters that pages may repeat
_NAME = 1 << 30  # bytes as which a name counts
_PIECES = 2_000  # distinct pieces of a text that is compared
_MOST_PIECES = 4_000  # of a shape, a hundred bytes each in memory; with more, it begins anew

LEAST = 10
"""Pages that are put off and fetched anyway, from each domain."""

_EARNED = 20  # pages more after each of them that has new text, and not only known text put together anew
_SAVED = 50  # most that a domain may have left after that

PUT_OFF = -0.95 * MOST_PRIORITY
"""The highest priority of URLs that are put off."""

_DRAWN = 32  # one in so many of them comes before all others, wherever it was found; the first ones are in no share

LAST = -0.9 * MOST_PRIORITY
"""Added to the priority of URLs that come last although nothing is known of their shape."""

NAMED = 20
"""Useless shapes that a replica counts by name."""

OTHER = "other"
"""The name of all others."""

COPIES = "copies"
"""The name by which links of copies are counted whose own shape is not known to be useless."""

_ANY_NAMES = "?*"
_NUMBERS = re.compile(r"\d+")
_YEAR = "(?:19|20)[0-9]{2}"
_DATE = (
    rf"(?:[0-9]{{1,2}}[^0-9<>]{{0,14}}){{0,2}}{_YEAR}(?![0-9])"
    r"(?:[^0-9<>]{1,3}[0-9]{1,2}(?![0-9])){0,2}"
    r"|[0-9]{1,2}:[0-9]{2}"
)
"""2026-11-02, 02/11/2026, 2 November 2026, 12:30. Other numbers may be all that tells two products apart. The pattern
takes 70 ns a byte, so it is tried only on texts with 20, 19 or a colon."""
_MAY_HAVE_DATES = re.compile(b"20|19|:")  # `in` takes three times as long: for bytes, it first asks for a number

_DAYS_AND_MONTHS = """
january february march april may june july august september october november december
monday tuesday wednesday thursday friday saturday sunday
januar februar märz mai juni juli oktober dezember montag dienstag mittwoch donnerstag freitag samstag sonntag
janvier février mars avril juin juillet août septembre octobre novembre décembre lundi mardi mercredi jeudi vendredi samedi
dimanche enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre lunes martes miércoles
jueves viernes sábado domingo gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre
"""
_NAMES = frozenset(part.encode() for name in _DAYS_AND_MONTHS.split() for part in (name, name[:3]))
"""They are left out beside a date."""

_DATES, _DATES_OF_PAGES = re.compile(_DATE), re.compile(_DATE.encode())
_DATE_OF_URL = re.compile(rf"(?<![0-9])(?:{_YEAR}[^0-9]{{0,8}}[0-9]{{1,2}}|[0-9]{{1,2}}[^0-9]{{1,8}}{_YEAR})(?![0-9])")
_SHORT = 30  # characters of `Sunday, 09` in a calendar
_SPACES = bytes(32 if byte in b",." else byte for byte in range(256))
_HIDDEN = re.compile(rb"<(?:(title)|(script)|style)\b", re.IGNORECASE)
_HIDDEN_END = [re.compile(rb"</" + name, re.IGNORECASE) for name in (b"style", b"title", b"script")]
_TEXT = re.compile(rb">\s*+([^<>]++)")
_LINK_TEXT = re.compile(rb"<a\b[^<>]*+>\s*+([^<>]*[^<>\s])", re.IGNORECASE)
_HEADING = re.compile(rb"<h1\b[^<>]*+>\s*+([^<>]++)", re.IGNORECASE)
_SUBHEADING = re.compile(rb"<h2\b[^<>]*+>\s*+([^<>]++)", re.IGNORECASE)
_DESCRIPTION = re.compile(
    rb"""<meta\b[^<>]{0,99}?\b(?:name|property)=["']?(?:og:)?description\b[^<>]{0,99}?\bcontent=("[^"<>]*|'[^'<>]*)""",
    re.IGNORECASE,
)
_HEAD = 16_384  # bytes in which a description is looked for
_NUMBERED = re.compile(
    rb"(?<![a-zA-Z0-9])(?:(?:[0-9][0-9.,:/%-]*+[a-z]{0,2}|[0-9a-f]{8,})(?![a-zA-Z0-9])|((?:[0-9]++[.,:/%-]++)++))"
)
"""Numbers and ids; or what precedes the last number of one that is none, so that no other number of it is tried."""
_DIGIT = re.compile(b"[0-9]")
_SOURCE = re.compile(
    rb"""(?:(?<=[\s-])(?:src(?:set)?|poster|data)\s*+=|\burl\()\s*+["']?\s*+([^\s"'<>()#]++)""", re.IGNORECASE
)
_DATA = re.compile(
    rb"""<input\b[^<>]*?\btype\s*+=\s*+["']?hidden[^<>]*+"""
    rb"""|(?<=\s)(?:data-[a-z-]++|value|d|points)\s*+=\s*+("[^"]*+|'[^']*+|[^\s"'<>]++)""",
    re.IGNORECASE,
)
"""What pages may consist of that have hardly any text: data for scripts, values of forms, drawings. Hidden inputs hold
tokens, so they are skipped."""
_ALT = re.compile(rb"""<img\b[^<>]*?\balt\s*+=\s*+["']?\s*+([^\s"'<>][^"'<>]*)""", re.IGNORECASE)
_LONG_ID = 16  # characters of a segment that, with digits in it, is an id

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A bounded dict in two generations. When the young one is full, the old one is discarded."""

    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None and (found := self._old.pop(key, None)) is not None:
            self.put(key, found)
        return found

    def put(self, key: K, value: V) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = value


class _Shape:
    """What is known of a shape. `latest`: a bit for each of the latest pages that were judged, 1 for a useless one;
    `near`: the same, without regard to where they lead; `indexed`: one for each of the latest pages, 1 if it may be
    indexed; `promised`: useless pages that led to URLs of this shape before its pages were seen."""

    __slots__ = ("indexed", "judged", "latest", "name", "near", "pages", "promised")

    def __init__(self) -> None:
        self.pages = self.judged = self.latest = self.indexed = self.near = self.promised = 0
        self.name = ""

    @property
    def is_useless(self) -> bool:
        if self.pages >= _QUICKLY and self.judged >= _QUICKLY - _UNREAD:
            few = min(self.judged, _FEW)
            if (self.latest & ((1 << few) - 1)).bit_count() == few:
                return True
        if self.pages < LEARNT_FROM or self.judged < _LEAST_JUDGED:
            return False
        return self.latest.bit_count() >= _USELESS * min(self.judged, _WINDOW)

    @property
    def is_all_useless(self) -> bool:
        """Whether some of the latest pages were judged, and each brought nothing."""
        return self.judged > 0 and self.latest.bit_count() == min(self.judged, _WINDOW)

    @property
    def compares(self) -> bool:
        """Whether the text of the next page is compared."""
        if self.pages < LEARNT_FROM:
            return self.pages >= _UNREAD
        return self.latest & _BAD == _BAD or self.pages % (_SUSPECT if self.latest else _SAMPLED) == 0

    @property
    def is_good(self) -> bool:
        """Whether some of the latest pages were judged, and one of them brought something."""
        return self.judged > 0 and not self.is_all_useless

    @property
    def is_known(self) -> bool:
        """Whether enough pages were seen to say whether they are new."""
        return self.pages > _UNREAD or self.judged > 0

    @property
    def is_mostly_near(self) -> bool:
        return self.near.bit_count() > min(self.judged, _WINDOW) / 2

    def judge(self, is_useless: bool, is_near: bool) -> None:
        self.judged += 1
        self.near = (self.near << 1 | is_near) & _LATEST
        self.latest = (self.latest << 1 | is_useless) & _LATEST


class _Texts:
    """The last texts of a shape that were new. `titles`: their titles; `pieces`: for the hash of each piece of text that
    was seen, and of what it is without numbers, a bit for each of the texts that has it. The first page is only kept: to
    take it apart takes a millisecond, and many shapes have no second one."""

    __slots__ = ("_count", "_first", "pieces", "titles")

    def __init__(self, first: tuple[int, bytes, str]) -> None:
        """`first`: the title, page and URL of the first text."""
        self.titles: list[int] = []
        self.pieces: dict[int, int] = {}
        self._count = 0
        self._first: tuple[int, bytes, str] | None = first

    def is_near(self, title: int, page: bytes, url: str) -> tuple[bool | None, bool]:
        """Whether all of `page` but for paths in its `url` was on pages that were compared before, and it is no data that
        is put together anew, as the results of a league. If not, it is remembered. None: none of the texts has its title,
        so the page with its title that was seen before may have the same text. Also returns whether it has text that was
        on none of them.

        One or two pieces may be as others but for their numbers: `Page 3 of 9` and how long it took to make the page."""
        if self._first is not None:
            first, self._first = self._first, None
            self.is_near(*first)
        pieces, names = _pieces(page, url.partition("?")[2].encode())
        if len(pieces) > _PIECES:
            return False, True
        echoes = _echoes(url)
        every = (1 << len(self.titles)) - 1
        allowed = _NEW_TEXT * sum(map(len, pieces))
        missing = [0] * len(self.titles)  # bytes that are not in each text
        rest: list[tuple[bytes, int]] = []  # pieces that are not in all texts, and in which they are
        numbered, is_new = 0, not every
        for piece in pieces:
            texts = self.pieces.get(hash(piece))
            if texts == every > 0:
                continue
            is_name = piece in names
            for echo in echoes:
                piece = piece.replace(echo, b"")
            if not (plain := _without_dates_of_page(piece, is_name)):
                continue
            if (same := self.pieces.get(hash(plain))) is not None:
                texts = same | (texts or 0)
            rest.append((plain, texts or 0))
            if texts is not None:
                size = _NAME if is_name else len(plain)
                missing = [known if texts >> number & 1 else known + size for number, known in enumerate(missing)]
                continue
            allowed -= len(plain)
            numbered += 1
            is_others = numbered <= _NUMBERED_PIECES and allowed >= 0 and hash(_numberless(plain)) in self.pieces
            if every and not (is_others and not is_name and piece not in _SUBHEADING.findall(page)):
                is_new = True
                break
        if not is_new:
            best = min(range(len(missing)), key=missing.__getitem__)
            size = sum(len(piece) for piece, _ in rest)
            if missing[best] <= _NEW_TEXT * size:
                return True, False
            linked = set(_LINK_TEXT.findall(page))
            links = sum(piece in linked for piece, texts in rest if not texts >> best & 1)
            if links >= _LISTED or (links and missing[best] <= min(allowed, size / 3)):
                return True, False  # a list of known pages
        is_known = title in self.titles
        self._remember(title, pieces, rest)
        return (False if is_known else None), is_new

    def _remember(self, title: int, pieces: Iterable[bytes], rest: Iterable[tuple[bytes, int]]) -> None:
        if len(self.pieces) > _MOST_PIECES:
            self.titles, self.pieces, self._count = [], {}, 0
        number = self._count % _TEXTS
        bit = 1 << number
        self._count += 1
        if len(self.titles) < _TEXTS:
            self.titles.append(title)
        else:
            self.titles[number] = title
            self.pieces = {key: texts & ~bit for key, texts in self.pieces.items()}
        for piece in (*pieces, *(plain for plain, _ in rest)):
            key = hash(piece)
            self.pieces[key] = self.pieces.get(key, 0) | bit
        for plain, _ in rest:
            self.pieces.setdefault(hash(_numberless(plain)), 0)


def put_off(priority: float, url: str) -> float:
    """The priority of `url` that is put off, and had this one. Apart from some that are drawn, those that came first still
    do."""
    if priority <= PUT_OFF:
        return priority
    draw = xxh3_64_intdigest(url.encode()) / 2**64 * _DRAWN
    return max(-MOST_PRIORITY, PUT_OFF - (1 - min(0.0, priority) if draw >= 1 else draw))


def _is_drawn(priority: float) -> bool:
    return PUT_OFF - 1 < priority < PUT_OFF


class Noted(msgspec.Struct, frozen=True):
    """What is to be said of a page. `is_copy`: its body is that of another page of the domain. `shape`: the name of its
    shape if that is useless; `pages` and `useless`: how many more pages of the shape, and useless ones among them, are to
    be counted."""

    is_copy: bool = False
    shape: str = ""
    pages: int = 0
    useless: int = 0


NOTHING = Noted()


_UNSEEN = _Shape()
_NO_COUNTS = (0, 0, 0, 0)


class Shapes:
    """The shapes that one replica has seen. `share`: that of the pages of a domain up to which URLs that are put off are
    fetched; with 1, none is put off."""

    def __init__(self, share: float = 1.0) -> None:
        self._share = share
        self._shapes = Recent[str, _Shape](20_000)
        self._bodies = Recent[int, int](65_536)  # hash of origin and body -> hash of the URL
        self._titles = Recent[int, int](65_536)
        # Pages of a domain, those that were put off, less those that they have earned, pages that may be indexed, and the
        # first ones that were drawn.
        self._counts = Recent[str, list[int]](8_192)
        self._texts = Recent[str, _Texts](256)  # by shape, with any names of parameters
        self._useless = Recent[str, set[str]](4_096)  # domain -> its useless shapes
        self._has_useless = False  # asked for each link
        self._named = 0

    def __repr__(self) -> str:
        return f"<Shapes {len(self._shapes)} share={self._share}>"

    def apply(self, share: float) -> None:
        self._share = share

    def _known(self, name: str) -> _Shape:
        """What is known of the shape `name`. One page asks for thousands: what is not known is not kept."""
        return self._shapes.get(name) or _UNSEEN

    def _shape(self, name: str) -> _Shape:
        if (shape := self._shapes.get(name)) is None:
            self._shapes.put(name, shape := _Shape())
        return shape

    def puts_off(self, url: str, domain: str) -> str:
        """The name of the useless shape of `url`, or "" if it is not to be put off."""
        if not self._has_useless or self._share >= 1 or not (useless := self._useless.get(domain)):
            return ""
        narrow, wide = shapes_of(url)
        if narrow in useless:
            return self._name(narrow)
        known = self._known(narrow)
        if wide in useless and not known.is_good:
            return self._name(wide)
        path, mark, names = narrow.partition("?")
        if not mark or (whole := path + _ANY_NAMES) not in useless:
            return ""
        is_put_off = known.is_all_useless if known.pages else "&" in names
        return self._name(whole) if is_put_off else ""

    def is_good(self, url: str) -> bool:
        """Whether pages like `url` brought something."""
        if self._share >= 1:
            return True
        narrow, wide = map(self._known, shapes_of(url))
        return (narrow if narrow.pages else wide).is_good

    def may_fetch(self, domain: str, priority: float) -> bool:
        """Whether a URL of `domain` that was put off, and has this priority, may be fetched."""
        counts = self._counts.get(domain) or _NO_COUNTS
        return self._left(counts) > 0 or (_is_drawn(priority) and counts[3] < LEAST)

    def _left(self, counts: Sequence[int]) -> float:
        pages, put_off, *_ = counts
        return max(LEAST, self._share * pages) - put_off

    def note(
        self,
        entry: Entry,
        title: str,
        noindex: bool,
        body: bytes,
        decoded: Callable[[], bytes] | None,
        new_links: Iterable[str] = (),
    ) -> Noted:
        """Learn from the page of `entry`. `body`: as received; `decoded`: returns it without its content coding; None if
        its text says nothing, because it has no links and so leads to no more of its like. `new_links`: URLs that the
        page leads to and that are not known; read only if it may bring nothing."""
        domain, page, origin = entry.domain, hash(entry.url), origin_of(entry.url)
        is_copy = bool(body) and self._is_repeated(self._bodies, xxh3_64_intdigest(body), origin, page)
        if self._share >= 1:
            return Noted(is_copy) if is_copy else NOTHING
        if (counts := self._counts.get(domain)) is None:
            self._counts.put(domain, counts := [*_NO_COUNTS])
        counts[3 if _is_drawn(entry.priority) and counts[3] < LEAST else entry.priority <= PUT_OFF] += 1
        counts[2] += not noindex
        names: tuple[str, ...] = shapes_of(entry.url)
        path, mark, _ = names[0].partition("?")
        if mark:
            names = *names, path + _ANY_NAMES
        shapes = tuple(map(self._shape, names))
        narrow, *wider = shapes
        title_key = hash(_without_dates(title, entry.url))
        is_repeated = self._is_repeated(self._titles, title_key, origin, page)
        adds_to_wide = narrow.pages < _PER_NARROW
        useless: bool | None = False
        is_new = True
        if is_copy:
            useless = None if next(iter(new_links), None) else True
        elif noindex and counts[2] >= _INDEXED:
            useless = True
        elif is_repeated:
            useless = None
            compares = narrow.compares or (adds_to_wide and any(shape.compares for shape in wider))
            if decoded is not None and (compares or entry.priority <= PUT_OFF):
                useless, is_new = self._is_near(names[-1] if mark else names[0], title_key, decoded(), entry.url)
        is_near = useless is True
        if is_near and not is_copy and self._leads_on(names[0], noindex, new_links):
            useless, is_new = False, True
        if useless is None and not (mark or is_copy):
            # Such as the translation of a page of another shape.
            useless = False if is_new and entry.priority <= PUT_OFF else None
        if useless is False and is_new and entry.priority <= PUT_OFF:
            counts[1] -= max(0, min(_EARNED, math.ceil(_SAVED - self._left(counts))))
        for shape in shapes if adds_to_wide and (mark or not is_copy) else (narrow,):
            shape.pages += 1
            shape.indexed = (shape.indexed << 1 | (not noindex)) & _LATEST
            if useless is not None:
                shape.judge(useless, is_near)
        return self._learn(domain, names, shapes, is_copy, bool(useless))

    def _learn(
        self, domain: str, names: tuple[str, ...], shapes: tuple[_Shape, ...], is_copy: bool, useless: bool
    ) -> Noted:
        known = self._useless.get(domain) if self._has_useless else None
        new = 0
        for name, shape in zip(names, shapes, strict=True):
            if shape.latest and shape.is_useless:
                if known is None:
                    self._useless.put(domain, known := set())
                    self._has_useless = True
                if name not in known and len(known) < _MOST_USELESS:
                    new = max(new, shape.pages)
                    known.add(name)
            elif known and name in known:
                known.remove(name)
        if not known or not (found := next((name for name in names if name in known), "")):
            return Noted(is_copy) if is_copy else NOTHING
        shape = shapes[names.index(found)]
        if new:
            rate = shape.latest.bit_count() / min(shape.judged, _WINDOW)
            return Noted(is_copy, self._name(found), new, round(rate * new))
        return Noted(is_copy, self._name(found), 1, int(useless))

    def _leads_on(self, shape: str, noindex: bool, new_links: Iterable[str]) -> bool:
        """Whether one of `new_links` has another shape than `shape`, of which no page was seen or some may be indexed. From
        a page that does not say noindex, it must have no query, as views of the same pages do, and its like be new."""
        for url in new_links:
            names = shapes_of(url)
            if names[0] == shape or ("?" in names[0] and not noindex):
                continue
            known = list(map(self._known, names))
            if not all(found.indexed or not found.pages for found in known):
                continue
            if noindex:
                return True
            if any(found.is_mostly_near for found in known):
                continue
            target = self._shape(names[0])
            target.promised += not target.is_known
            if target.is_known or target.promised <= _PROMISED:
                return True
        return False

    def _is_near(self, shape: str, title: int, page: bytes, url: str) -> tuple[bool | None, bool]:
        texts = self._texts.get(shape)
        if texts is None:
            self._texts.put(shape, _Texts((title, page, url)))
            return None, False
        return texts.is_near(title, page, url)

    def _name(self, name: str) -> str:
        shape = self._shape(name)
        if not shape.name:
            self._named += 1
            shape.name = name[:120] if self._named <= NAMED else OTHER
        return shape.name

    def _is_repeated(self, seen: Recent[int, int], value: int, origin: str, page: int) -> bool:
        key = hash((origin, value))
        first = seen.get(key)
        if first is None:
            seen.put(key, page)
        return first is not None and first != page


def shapes_of(url: str) -> tuple[str, str]:
    """The shape of the canonical `url`, and the wider one."""
    start = url.index("/", 8)
    path, mark, query = url[start + 1 :].partition("?")
    names = ""
    if mark:
        pairs = query.replace(";", "&").split("&")
        names = "?" + "&".join(sorted({_plain(pair.partition("=")[0]) for pair in pairs}))
    first, slash, rest = path.partition("/")
    second, more, _ = rest.partition("/")
    host = url[url.index("/") + 2 : start]
    if not slash:
        return f"{host}/{_plain(first)}{names}", f"{host}/*{names}"
    begin, end = f"{host}/{_plain(first)}/", f"{'/...' if more else ''}{names}"
    if not second:
        return f"{begin}{end}", f"{host}/*/{end}"
    return f"{begin}{_plain(second)}{end}", f"{begin}*{end}"


def _plain(segment: str) -> str:
    if segment.isalpha():
        return segment
    plain = _NUMBERS.sub("0", segment)
    return "0" if len(segment) >= _LONG_ID and "0" in plain else plain


def _echoes(url: str) -> list[bytes]:
    """What a page that brings nothing new may say of its own `url`: paths in it."""
    parts = urlsplit(url)
    paths = [parts.path, *(pair.partition("=")[2] for pair in parts.query.split("&")[:_ECHOES])]
    return [unquote_to_bytes(path) for path in paths if "/" in path[1:] or "%2F" in path[1:]]


def _without_dates(title: str, url: str) -> str:
    """`title` without dates. A year alone is one only if the URL has one, too: it may be the number of a product."""
    if "20" not in title and "19" not in title and ":" not in title:
        return title
    plain = _DATES.sub("", title)
    if len(plain) == len(title):
        return title
    nameless = _without_names(plain.encode()).decode()
    is_year = nameless == plain and len(title) - len(plain) == 4
    return title if is_year and not _DATE_OF_URL.search(url) else nameless


def _without_names(text: bytes, has_year: bool = True) -> bytes:
    """`text` without the names of days and months. Without a year, numbers beside them are left out, too."""
    words = text.lower().translate(_SPACES).split()
    others = [word for word in words if word not in _NAMES]
    if len(others) == len(words):
        return text
    return b" ".join(word for word in others if has_year or len(word) > 2 or not word.isdigit())


def _pieces(page: bytes, query: bytes) -> tuple[set[bytes], set[bytes]]:
    """The pieces of text between the tags of `page`, without its title; and those of them that tell pages apart however
    short they are: headings, the descriptions and addresses of images, videos and frames, and the data of a page with
    little text. All of a page without tags is one piece. `query`: that of its URL."""
    shown, scripts = _without_scripts(page)
    found = set(_TEXT.findall(b">" + shown))
    names = set(_HEADING.findall(page))
    if b"description" in page:
        found.update(_DESCRIPTION.findall(page, 0, _HEAD))
    if b"<img" in page or b"<IMG" in page:
        names.update(_ALT.findall(page))
    names.update(_address(source, query) for source in _SOURCE.findall(shown))
    if sum(map(len, found)) < _LITTLE:
        names.update(scripts, _DATA.findall(shown))
        names.discard(b"")
    return found | names, names


def _without_scripts(page: bytes) -> tuple[bytes, list[bytes]]:
    """`page` without its title, scripts and styles, and the text of its scripts. One that does not end takes the rest."""
    kept, scripts, at = [], [], 0
    for found in _HIDDEN.finditer(page):
        if found.start() < at:
            continue
        kept.append(page[at : found.start()])
        end = _HIDDEN_END[found.lastindex or 0].search(page, found.end())
        at = end.end() if end else len(page)
        if found[2]:
            scripts.append(page[found.end() : end.start() if end else at].partition(b">")[2])
    return b"".join((*kept, page[at:])), scripts


def _numberless(piece: bytes) -> bytes:
    """`piece` with 0 for each number and id. Few pieces have a digit, and to look for one takes a tenth of the time."""
    return _NUMBERED.sub(lambda found: found[1] or b"0", piece) if _DIGIT.search(piece) else piece


def _address(source: bytes, query: bytes) -> bytes:
    """`source` without its query, unless that has a parameter of the `query` of its page: `/scan?id=5` shows
    `/image?id=5`."""
    path, _, own = source.partition(b"?")
    pairs = own.replace(b"&amp;", b"&").split(b"&")
    return source if query and not set(filter(None, pairs)).isdisjoint(query.split(b"&")) else path


def _without_dates_of_page(piece: bytes, is_name: bool) -> bytes:
    """A piece of the text of a page without dates, and without the names of days and months that belong to them."""
    dates = 0
    if (len(piece) > _TIME or b":" not in piece) and _MAY_HAVE_DATES.search(piece):
        piece, dates = _DATES_OF_PAGES.subn(b"", piece)
    piece = piece.rstrip()
    if dates and len(piece) <= _SHORT:
        return _without_names(piece)
    if len(piece) <= _SHORT and not is_name and piece[:1].isdigit() != piece[-1:].isdigit():
        return _without_names(piece, has_year=False)
    return piece
