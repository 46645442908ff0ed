"""Reads the structured data of a page: JSON-LD, microdata and RDFa, the last two in the form of JSON-LD. Pure.

There is one reading of JSON-LD, for items, handlers and the archive. It is lenient like that of extruct, which users of
Scrapy know: comments, trailing commas, CDATA marks and line ends within texts are no reason to lose a price. What cannot
be read is left out, and reported.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from crawler.arguments import DEEPEST
from crawler.parse.tree import restored, separate_texts

if TYPE_CHECKING:
    from turbohtml import Document, Element

MAX_CHARACTERS = 1 << 20
"""Characters of all JSON-LD of a page that is read."""

MAX_SEARCHED = 20_000
"""Objects and lists that are searched, and values that are returned, for one path."""

_SCRIPTS = 'script[type^="application/ld+json" i]'
_TEXT = r'("(?:[^"\\]++|\\.)*+"?)'
_MARKS = re.compile(rf"{_TEXT}|/\*(?:.*?\*/|.*)|//[^\r\n]*|<!--[^\[{{\x22<]*?-->|<!--|-->|<!\[CDATA\[|\]\]>", re.DOTALL)
_LAST_COMMAS = re.compile(rf"{_TEXT}|,(?=\s*[}}\]])", re.DOTALL)
_AROUND = " \t\r\n;\ufeff"
_SHOWN = 20
"""Characters before and after an error that are shown."""
_END = object()

_MAX_DIGITS = 4_000
"""Digits of a whole number that are written: Python refuses to write a few hundred more."""

_WITH_CONTENT = (
    "[itemprop][content]:not([content=''], [itemscope], meta, audio, embed, iframe, img, source, track, video, "
    "a[href], area[href], link[href], object[data], data[value], meter[value], time[datetime])"
)
"""Elements whose value is their `content`. The standard gives it only to `meta`, schema.org and its readers to all."""

_AT_ITS_LEVEL = ("@graph", "mainEntity")
"""Keys to what an object is about: it is nested no deeper."""

_PUBLISHED_BY_META = ", ".join(
    f"meta[{said} i]"
    for said in ("property='article:published_time'", "name='article:published_time'", "name='dc.date.issued'")
)
_PUBLISHED = "[itemprop=datePublished], time[pubdate]"
_OF_OTHERS = "aside, nav, footer, " + ", ".join(
    f"[{key}*={kind} i]" for key in ("itemtype", "itemprop") for kind in ("comment", "review")
)
"""Elements whose date of publication is not that of the page."""
_DATE_OF_POST = "time.published[datetime], time.dt-published[datetime]"  # hAtom and h-entry: WordPress, Ghost, Jekyll
_DATE_LENGTH = 60
_MOST_DATES = 100
"""The most characters of a date of publication, and the most that are looked at."""


class JsonLd(NamedTuple):
    """What the JSON-LD scripts of a page contain, in the order of the page, and why some could not be read."""

    values: list[Any]
    unread: list[str]


def json_ld_of(document: Document) -> JsonLd:
    """The JSON-LD of `document`."""
    found, left = JsonLd([], []), MAX_CHARACTERS
    scripts = document.select(_SCRIPTS)
    for number, script in enumerate(scripts, 1):
        text = restored(script.text)
        left -= len(text)
        if left < 0:
            found.unread.append(f"script {number} of {len(scripts)}: beyond the first MiB")
            break
        try:
            found.values.append(_lenient(text))
        except (ValueError, RecursionError) as error:
            if text.strip():
                found.unread.append(f"script {number} of {len(scripts)}: {_problem(error)}")
    return found


def _lenient(text: str) -> Any:
    """The JSON value in `text`. Raises ValueError and RecursionError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        pass
    for noise in (_MARKS, _LAST_COMMAS):
        text = noise.sub(lambda found: found[1] or " ", text)
    return plain(json.loads(text.strip(_AROUND), strict=False, parse_constant=lambda name: None))


def _problem(error: Exception) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return "nested too deeply" if isinstance(error, RecursionError) else str(error)
    before, after = error.doc[max(0, error.pos - _SHOWN) : error.pos], error.doc[error.pos : error.pos + _SHOWN]
    return f"{error.msg}, at {' '.join((before + after).split())!r}"


def microdata_of(document: Document, base: str, split_digits: bool = False) -> list[Any]:
    """The microdata of `document` as objects of JSON-LD. `base`: the URL to which those in it are relative;
    `split_digits`: as in `text_of`, by which texts are read."""
    renamed = [(element, element.tag) for element in document.select(_WITH_CONTENT)]
    try:
        for element, _ in renamed:
            element.tag = "meta"
        with separate_texts(document, split_digits):
            return [_as_json_ld(item) for item in document.microdata(base)]
    except (RecursionError, ValueError):  # items that contain themselves
        return []
    finally:
        for element, tag in renamed:
            element.tag = tag


def rdfa_of(document: Document, split_digits: bool = False) -> list[Any]:
    """The RDFa of `document` as objects of JSON-LD, with names without their vocabulary. `split_digits`: as in
    `microdata_of`."""
    chained = document.select("[typeof] [rel]:not([href], [src], [property], [typeof]) > [typeof]:not([property])")
    for element in chained:  # the parser reads the objects of properties alone
        element.attrs["property"] = cast("Element", element.parent).attrs["rel"]
    try:
        with separate_texts(document, split_digits):
            return [_as_json_ld(item) for item in document.rdfa()]
    except (RecursionError, ValueError):
        return []
    finally:
        for element in chained:
            del element.attrs["property"]


def _as_json_ld(item: Any) -> Any:
    if isinstance(item, str):
        return restored(item).strip()
    types = item.type.split() if isinstance(item.type, str) else item.type
    name = getattr(item, "id", None) or getattr(item, "resource", None)
    named = {re.split(r"[/#]", name)[-1]: list(map(_as_json_ld, values)) for name, values in item.properties.items()}
    return {**({"@type": types} if types else {}), **({"@id": name} if name else {}), **named}


def values_at(found: Sequence[Any], path: str, only_first: bool = False) -> list[Any]:
    """The values to which `path` leads in `found`. Its first part is a type, such as `Product`; an empty path is for the
    objects at the top. The other parts are keys. The items of lists take the place of these, and objects that of references
    to them.

    A type alone is for its objects wherever they are. Keys lead from its main object, which is the first of those that are
    nested the least, and from others in the same list of a property: values of different objects do not belong together.
    `only_first`: from the first object wherever there are several on the way."""
    kind, *keys = path.split(".")
    if kind and (keys or only_first):
        values = _resolved(found, _main_of_type(found, kind))
    else:
        values = _resolved(found, _flat(_of_type(found, kind) if kind else _tops(found)))
    for key in keys:
        objects = [value for value in values if isinstance(value, dict)]
        inner = _flat(value[key] for value in (objects[:1] if only_first else objects) if key in value)
        values = _resolved(found, inner)
    return [value["@value"] if isinstance(value, dict) and "@value" in value else value for value in values]


def _resolved(found: Sequence[Any], values: list[Any]) -> list[Any]:
    """`values` with objects in place of references, such as `{"@id": "#offer"}`, if just one object has this name."""
    names = {value["@id"] for value in values if _is_reference(value)}
    if not names:
        return values
    named: dict[str, list[Any]] = {}
    for value in _objects(found):
        if isinstance(name := value.get("@id"), str) and name in names and not _is_reference(value):
            known = named.setdefault(name, [])
            if not known or not _is_same(value, known[0]):
                known.append(value)
    return [
        known[0] if _is_reference(value) and len(known := named.get(value["@id"], [])) == 1 else value
        for value in values
    ]


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    try:
        return one == other
    except RecursionError:
        return False


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("@id"), str) and value.keys() <= {"@id", "@type"}


def publication_date(document: Document, json_ld: Sequence[Any]) -> str | None:
    """When the page says that it was published, as it is written in its markup, or in its `json_ld`. None if that has
    several dates, as lists have."""
    marked = [part for part in document.select(_PUBLISHED)[:_MOST_DATES] if not part.closest(_OF_OTHERS)]
    sources = (
        [part.attr("content") for part in document.select(_PUBLISHED_BY_META)[:1]],
        _dates_of_articles(json_ld),
        map(_date_in, marked),
        (_date_in(part) for part in marked if part.closest("main, article")),
        map(_date_in, document.select(_DATE_OF_POST)),
    )
    for source in sources:
        dates = {restored(date.strip()) for date in source if isinstance(date, str)}
        known = {date for date in dates if 0 < len(date) <= _DATE_LENGTH}
        if len(known) == 1:
            return known.pop()
    return None


def _dates_of_articles(json_ld: Sequence[Any]) -> list[Any]:
    """The dates of publication of the articles in `json_ld`, or of what else the page is about."""
    tops = [one for one in _flat(_tops(json_ld)) if isinstance(one, dict)]
    subjects = [one for top in tops for one in _flat([top, top.get("mainEntity")]) if isinstance(one, dict)]
    dated = [(one.get("datePublished"), _types(one.get("@type"))) for one in subjects]
    articles = [date for date, types in dated if any(kind.endswith(("Article", "Posting")) for kind in types)]
    return articles or [date for date, types in dated if "WebSite" not in types]


def _date_in(part: Element) -> str:
    return part.attr("content") or part.attr("datetime") or part.text


def _flat(values: Any) -> list[Any]:
    flat: list[Any] = []
    steps, waiting = 0, [iter(values)]
    while waiting and steps < MAX_SEARCHED:
        value = next(waiting[-1], _END)
        steps += 1
        if value is _END:
            waiting.pop()
        elif isinstance(value, list):
            waiting.append(iter(value))
        else:
            flat.append(value)
    return flat


def _tops(found: Sequence[Any]) -> Iterator[Any]:
    for value in _flat(found):
        graph = value.get("@graph") if isinstance(value, dict) else None
        yield graph if isinstance(graph, list) else value


def _of_type(found: Sequence[Any], kind: str) -> Iterator[dict[str, Any]]:
    """The objects of the type `kind` in `found`, outer ones before those that they contain."""
    return (value for value in _objects(found) if kind in _types(value.get("@type")))


def _objects(found: Sequence[Any]) -> Iterator[dict[str, Any]]:
    waiting: list[Any] = [list(found)]
    for _ in range(MAX_SEARCHED):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
        inner = list(value.values()) if isinstance(value, dict) else value
        waiting += [one for one in reversed(inner) if isinstance(one, (dict, list))]


def _main_of_type(found: Sequence[Any], kind: str) -> list[dict[str, Any]]:
    """The first of the least nested objects of the type `kind`, and further ones of that type in the list that is the same
    property. Empty if there is none."""
    level: list[Any] = [list(found)]
    deeper: list[Any] = []
    is_top = True
    for _ in range(MAX_SEARCHED):
        if not level:
            if not deeper:
                return []
            level, deeper, is_top = deeper[::-1], [], False
        value = level.pop()
        if isinstance(value, list):
            of_kind = [one for one in value if isinstance(one, dict) and kind in _types(one.get("@type"))]
            if of_kind and not is_top:
                return of_kind
            level += [one for one in reversed(value) if isinstance(one, (dict, list))]
            continue
        if kind in _types(value.get("@type")):
            return [value]
        for key, inner in value.items():
            if isinstance(inner, (dict, list)):
                (level if key in _AT_ITS_LEVEL else deeper).append(inner)
    return []


def _types(said: object) -> set[str]:
    """The names of the types in the value of `@type`, also without a prefix as in `https://schema.org/Product`."""
    texts = {one for one in (said if isinstance(said, list) else [said]) if isinstance(one, str)}
    return texts | {one.rpartition("/")[2].rpartition(":")[2] for one in texts}


def readable(text: bytes) -> bytes:
    """The JSON `text`, with question marks in place of halves of surrogate pairs, which msgspec does not read."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with contextlib.suppress(ValueError, RecursionError):
            return msgspec.json.encode(plain(json.loads(text)))
    return text


def plain(value: Any, depth: int = DEEPEST) -> Any:
    """`value`, without anything that an encoder rejects: containers deeper than `depth` become null."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return str(value) if abs(value) < 10**_MAX_DIGITS else hex(value)
    if isinstance(value, list):
        return [plain(item, depth - 1) for item in value] if depth else None
    if isinstance(value, dict):
        return {plain(key, 1): plain(item, depth - 1) for key, item in value.items()} if depth else None
    return value
