"""Extracts items from a page by rules (`crawler.scope.extract_rules`). Pure.

The rules come from the operator, the page from anyone. What the page can cost is limited: a selector takes time in
proportion to the elements times the depth of the tree, so only the trees of small or flat documents are searched in the
event loop. There, all rules together have `INLINE_S` of CPU time. For other documents, the same code runs in the
process for large documents, which has a limit of its own (`crawler.parse.child`). Values, items and their
bytes are limited, too. An item that cannot be written as its rule says is rejected as a whole, and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import msgspec

from crawler.parse import tree
from crawler.scope.extract_rules import FieldType
from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize

if TYPE_CHECKING:
    from turbohtml import Document
import math
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import pcre2  # type: ignore[import-untyped]

from crawler.page import MAX_ITEM_BYTES, Item, Page, RejectedItem
from crawler.parse.coding import decode_body
from crawler.parse.tags import INLINE_TREE, TakesLong
from crawler.scope.extract_rules import ExtractRule, FieldRule
from frontier.urls import limited

if TYPE_CHECKING:
    import turbohtml


LARGEST = 1 << 63
"""Whole numbers from here on cannot be exported."""

DIGITS = 15
"""Digits that a decimal number keeps exactly."""

LONGEST_NUMBER = 60
"""Characters of a text with a number."""

_BOOLEANS = {**dict.fromkeys(("true", "yes", "1", "on"), True), **dict.fromkeys(("false", "no", "0", "off"), False)}

_NUMBER = r"""(?<![\d.,])(?P<sign>(?<!\w)[-+\u2212])?(?P<whole>\d{1,3}(?P<group>[GROUP' ])\d{3}(?:(?P=group)\d{3})*|\d+)
    (?:[MARK](?P<rest>\d+))?(?!\d)"""
_POINT, _COMMA = (
    re.compile("".join(_NUMBER.split("\n    ")).replace("GROUP", group).replace("MARK", mark))
    for group, mark in ((",", "."), (".", ","))
)
_SCIENTIFIC = re.compile(r"[-+]?\d+(?:\.\d+)?[eE][-+]?\d{1,3}")

_WRITTEN_DATES = ("%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y")
_LONGEST_DATE = 60

_KEEP_ALL = UrlRules((), ())


class NotOfType(Exception):
    """Raised when a value is not of the type of its field."""


def converted(value: Any, wanted: FieldType, base: str) -> Any:
    """`value`, a text or another plain value of JSON, as the type `wanted`. `base`: the URL to which URLs are relative.
    Raises NotOfType."""
    match wanted:
        case "text":
            return _text(value)
        case "int":
            return _int(value)
        case "decimal":
            return _decimal(value, _POINT)
        case "decimal_comma":
            return _decimal(value, _COMMA)
        case "bool":
            if (known := _BOOLEANS.get(_text(value).strip().lower())) is None:
                raise NotOfType
            return known
        case "url":
            return _url(value, base)
        case "date":
            return _date(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        raise NotOfType
    return str(value)


def _int(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        value = int(_number(value, _POINT, is_whole=True))
    if not isinstance(value, int) or isinstance(value, bool) or not -LARGEST <= value < LARGEST:
        raise NotOfType
    return value


def _decimal(value: Any, numbers: re.Pattern[str]) -> float:
    if isinstance(value, str):
        plain = value.strip()
        text = plain if _SCIENTIFIC.fullmatch(plain) else _number(value, numbers)
        if len(text.partition("e")[0].strip("-0.").replace(".", "")) > DIGITS:
            raise NotOfType
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -LARGEST < value < LARGEST:
        raise NotOfType  # also for infinity and NaN
    return float(value)


def _number(text: str, numbers: re.Pattern[str], is_whole: bool = False) -> str:
    """The only number in `text`, as Python writes it."""
    if len(text) > LONGEST_NUMBER or (found := numbers.search(text)) is None:
        raise NotOfType
    outside = text[: found.start()] + text[found.end() :]
    if any(one.isdigit() for one in outside) or (is_whole and found["rest"]):
        raise NotOfType
    whole = re.sub(r"\D", "", found["whole"])
    return ("-" if found["sign"] in ("-", "\u2212") else "") + whole + (f".{found['rest']}" if found["rest"] else "")


def _url(value: Any, base: str) -> str:
    if not isinstance(value, str):
        raise NotOfType
    try:
        return canonicalize(value.strip(), base, _KEEP_ALL).href
    except BadUrl:
        raise NotOfType from None


def _date(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_DATE:
        raise NotOfType
    text = " ".join(value.split())
    with suppress(ValueError, OverflowError, TypeError):
        if text[:4].isdigit():
            return (date.fromisoformat(text) if len(text) <= 10 else datetime.fromisoformat(text)).isoformat()
    for form in _WRITTEN_DATES:
        with suppress(ValueError, OverflowError):
            return datetime.strptime(text, form).date().isoformat()
    with suppress(ValueError, OverflowError, TypeError):
        if ":" in text:  # as in the Date field of a mail (RFC 5322 3.3)
            return parsedate_to_datetime(text).isoformat()
    raise NotOfType


MAX_BYTES = 1 << 20
"""Bytes of all JSON-LD of a page that is read."""

MAX_SEARCHED = 20_000
"""Objects and lists that are searched, and values that are returned, for one path."""

_SCRIPTS = 'script[type^="application/ld+json" i]'
_END = object()
_SPACES = dict.fromkeys(range(0x20), " ")


def json_ld_of(document: Document) -> list[Any]:
    """What the JSON-LD scripts of `document` contain, in the order of the page."""
    found, left = [], MAX_BYTES
    for script in document.select(_SCRIPTS):
        text = tree.restored(script.text)
        left -= len(text)
        if left < 0:
            break
        try:
            # JSON allows no control characters within texts, but pages have line breaks there.
            found.append(msgspec.json.decode(text.translate(_SPACES)))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            continue
    return found


def values_at(found: Sequence[Any], path: str) -> list[Any]:
    """The values to which `path` leads in `found`. Its first part is a type, such as `Product`: objects of it are found
    wherever they are; an empty path is for the objects at the top. The other parts are keys. The items of lists take
    the place of these."""
    kind, *keys = path.split(".")
    values = _flat(_of_type(found, kind) if kind else _tops(found))
    for key in keys:
        values = _flat(value[key] for value in values if isinstance(value, dict) and key in value)
    return [value["@value"] if isinstance(value, dict) and "@value" in value else value for value in values]


def _flat(values: Any) -> list[Any]:
    """`values` with the items of lists in place of these."""
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
    waiting: list[Any] = [list(found)]
    for _ in range(MAX_SEARCHED):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, dict) and kind in _types(value.get("@type")):
            yield value
        inner = list(value.values()) if isinstance(value, dict) else value
        waiting += [one for one in reversed(inner) if isinstance(one, (dict, list))]


def _types(said: object) -> set[str]:
    """The names of the types in the value of `@type`, also without a prefix as in `https://schema.org/Product`."""
    texts = {one for one in (said if isinstance(said, list) else [said]) if isinstance(one, str)}
    return texts | {one.rpartition("/")[2].rpartition(":")[2] for one in texts}


MAX_ITEMS = 10_000
"""The most items of a page. That many may also be rejected."""

MAX_VALUES = 1_000
MAX_LENGTH = 1 << 20
"""The most values of a field that is a list, and the characters of a value."""

TOLD = 20
"""Rejected items of a page that are reported one by one. The others are only counted."""

_SHOWN = 100
"""Characters of a value that is reported."""

_STEPS = 100
_SHORT = 50_000
"""Steps of a regular expression for each character of a text, as if it had at least so many: 0.25 us each at worst. In the
event loop, it is a step for each character."""

INLINE_S = 0.05
"""CPU seconds for the rules of a page in the event loop."""

_FEW_TAGS = 8_000
_FLAT = " > ".join(["*"] * 65)
"""A selector takes up to 4 us an element if the elements are all in each other: 33 ms for 8,000. A document with more
tags is searched in the event loop if no element has 64 ancestors. To find out takes as long as parsing it."""

_FEW_TAGS_WITH_HAS = 1_000
"""A selector with `:has()` takes a time that grows with the square of the elements: 6 ms for 1,000, 20 s for 60,000."""


class Extraction(msgspec.Struct, frozen=True, gc=False):
    """What was extracted from a page: its items, the first that were rejected, and how many were, by
    `RejectedItem.word`."""

    items: tuple[Item, ...] = ()
    rejected: tuple[RejectedItem, ...] = ()
    rejected_by: dict[str, int] = {}

    @property
    def rejected_count(self) -> int:
        """How many items were rejected."""
        return sum(self.rejected_by.values())


class FieldReport(msgspec.Struct):
    """What became of a field of a rule: how often it had a value, none, and one that cannot be written, and the first such
    (`reason`, `value`)."""

    found: int = 0
    missing: int = 0
    unusable: int = 0
    reason: str = ""
    value: str = ""

    def add(self, outcome: Any) -> None:
        """Count an `outcome`: a value, or why there is none that can be written."""
        if not isinstance(outcome, _Rejected):
            self.found, self.missing = self.found + (outcome is not None), self.missing + (outcome is None)
        elif outcome.reason == "missing":
            self.missing += 1
        else:
            self.unusable += 1
            if not self.reason:
                self.reason, self.value = outcome.reason, outcome.value


class RuleReport(msgspec.Struct, frozen=True):
    """What a rule has found on a page: how many elements that may be items, how many items, and its fields by name."""

    elements: int
    items: int
    fields: Mapping[str, FieldReport]


class ExtractionJob(msgspec.Struct, frozen=True):
    """A page from which the `rules` extract items. `charset`: the encoding of its text; `coding`: its Content-Encoding;
    `facts`: what is known of it, by the names of `PageFact`; `max_decoded`: the most bytes of its decoded body."""

    CPU_S: ClassVar[float] = 10.0  # selectors and expressions are the operator's, and may be dear on ordinary pages
    RESULT: ClassVar = Extraction

    rules: tuple[ExtractRule, ...]
    url: str
    charset: str
    coding: str
    facts: Mapping[str, Any]
    max_decoded: int

    @classmethod
    def of(cls, page: Page, rules: tuple[ExtractRule, ...], max_decoded: int) -> ExtractionJob:
        """The job for `page`, which has an exchange."""
        assert page.exchange is not None
        return cls(rules, page.url, page.charset, page.exchange.content_coding, _facts(page), max_decoded)

    def run(self, body: bytes, is_inline: bool = False) -> Extraction:
        """Extract the items from `body`, as it was received. `is_inline`: raise TakesLong if that would hold up the event
        loop."""
        source = _Source(decode_body(body, self.coding, self.max_decoded).data, self, is_inline)
        if is_inline and source.is_deep:
            raise TakesLong
        found = _Found()
        for rule in self.rules:
            for item in source.items_of(rule):
                found.add(rule, item)
        return found.result()

    def report(self, body: bytes) -> RuleReport:
        """Say what its first rule finds in `body` and what not, for whoever writes the rule. Raises TakesLong as `run`
        does in the event loop."""
        (rule, *_), source = self.rules, _Source(decode_body(body, self.coding, self.max_decoded).data, self, True)
        if source.is_deep:
            raise TakesLong
        fields = {field.name: FieldReport() for field in rule.fields}
        elements = source.elements_of(rule)
        for element in elements:
            for field in rule.fields:
                fields[field.name].add(source.outcome(field, element))
        items = sum(isinstance(item, dict) for item in source.items_of(rule))
        return RuleReport(len(elements), items, fields)


def unread(rules: Iterable[ExtractRule]) -> Extraction:
    """What is reported of a page that took too long to read."""
    rejected = tuple(RejectedItem(rule.name, "", "unread") for rule in rules)
    return Extraction((), rejected[:TOLD], dict(Counter(one.word for one in rejected)))


def _facts(page: Page) -> dict[str, Any]:
    assert page.exchange is not None
    return {
        "url": page.url,
        "domain": page.domain,
        "depth": page.depth,
        "status": page.exchange.status,
        "title": page.title or None,
        "lang": page.lang or None,
        "canonical": page.canonical or None,
        "fetched_at": datetime.fromtimestamp(page.exchange.started_at, UTC).isoformat(timespec="seconds"),
    }


class _Rejected(Exception):
    """Raised when an item cannot be written."""

    def __init__(self, field: str, reason: Any, value: object = "") -> None:
        self.field, self.reason = field, reason
        self.value = f"({type(value).__name__})" if isinstance(value, (dict, list)) else str(value)[:_SHOWN]


class _Found:
    """Collects items, within their limits."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._rejected: list[RejectedItem] = []
        self._rejected_by = Counter[str]()
        self._bytes = 0

    def add(self, rule: ExtractRule, item: dict[str, Any] | _Rejected) -> None:
        if isinstance(item, _Rejected):
            self._reject(RejectedItem(rule.name, item.field, item.reason, item.value))
            return
        encoded = msgspec.json.encode(item)
        self._bytes += len(encoded)
        if self._bytes > MAX_ITEM_BYTES or len(self._items) >= MAX_ITEMS:
            self._reject(RejectedItem(rule.name, "", "size"))
        else:
            self._items.append(Item(rule.name, encoded))

    def _reject(self, item: RejectedItem) -> None:
        self._rejected_by[item.word] += 1
        if len(self._rejected) < TOLD:
            self._rejected.append(item)

    def result(self) -> Extraction:
        return Extraction(tuple(self._items), tuple(self._rejected), dict(self._rejected_by))


class _Source:
    """The contents of a page, each form of which is made when a field first needs it."""

    def __init__(self, body: bytes, job: ExtractionJob, is_inline: bool) -> None:
        self._body = body
        self._job = job
        self._is_inline = is_inline
        self._steps = 1 if is_inline else _STEPS
        self._ends_at = time.thread_time() + INLINE_S if is_inline else math.inf

    @property
    def is_deep(self) -> bool:
        """Whether searching the tree could take long."""
        needs_tree = any(
            rule.each or any(field.css or field.json_ld for field in rule.fields) for rule in self._job.rules
        )
        if not needs_tree or self._body.count(b"<") <= _FEW_TAGS_WITH_HAS:
            return False
        if tree.takes_long(self._body):
            return True
        selectors = (one for rule in self._job.rules for one in (rule.each, *(field.css for field in rule.fields)))
        if any(":has(" in one.lower() for one in selectors):
            return True
        if self._body.count(b"<") <= _FEW_TAGS:
            return False
        return len(self._body) > INLINE_TREE or self.document.select_one(_FLAT) is not None

    @cached_property
    def document(self) -> turbohtml.Document:
        return tree.parse(self._body, self._job.charset or None)

    @cached_property
    def base(self) -> str:
        """The URL to which those of the page are relative."""
        element = self.document.select_one("base[href]")
        try:
            return canonicalize((element and element.attr("href")) or "", self._job.url).href
        except BadUrl:
            return self._job.url

    @cached_property
    def text(self) -> str:
        try:
            return self._body.decode(self._job.charset or "utf-8", "replace")
        except LookupError:
            return self._body.decode("utf-8", "replace")

    @cached_property
    def json_ld(self) -> list[Any]:
        return json_ld_of(self.document)

    def items_of(self, rule: ExtractRule) -> Iterator[dict[str, Any] | _Rejected]:
        """Yield the items of `rule`, or why they are rejected. Those of which nothing was found are left out."""
        elements = self.elements_of(rule)
        for element in elements[: 2 * MAX_ITEMS]:
            if (item := self._item(rule, element)) is not None:
                yield item
        if len(elements) > 2 * MAX_ITEMS:
            yield _Rejected("", "size")

    def elements_of(self, rule: ExtractRule) -> Sequence[Any]:
        """The elements that may be an item of `rule`; None stands for the page."""
        return list(self.document.select(rule.each)) if rule.each else [None]

    def outcome(self, field: FieldRule, element: Any) -> Any:
        """The value of `field`, None if it has none, or why it cannot be written."""
        try:
            value = self._value(field, element)
        except _Rejected as rejected:
            return rejected
        return None if value == [] else value

    def _item(self, rule: ExtractRule, element: Any) -> dict[str, Any] | _Rejected | None:
        """The item that `element`, or the page, is; None if it has a value for no field: it is simply something else."""
        values: dict[str, Any] = {}
        rejected: _Rejected | None = None
        is_empty = any(field.is_found for field in rule.fields)
        for field in rule.fields:
            try:
                value = values[field.name] = self._value(field, element)
                is_empty = is_empty and not (field.is_found and value not in (None, []))
            except _Rejected as error:
                rejected = rejected or error
                is_empty = is_empty and error.reason == "missing"
        return None if is_empty else rejected or values

    def _check_time(self) -> None:
        if time.thread_time() > self._ends_at:
            raise TakesLong

    def _value(self, field: FieldRule, element: Any) -> Any:
        self._check_time()
        values = []
        for raw in islice(self._raw(field, element), MAX_VALUES if field.list else 1):
            self._check_time()
            if isinstance(raw, str) and len(raw) > MAX_LENGTH:
                raise _Rejected(field.name, "size", raw)
            try:
                values.append(converted(raw, field.type, self.base if field.type == "url" else ""))
            except NotOfType:
                raise _Rejected(field.name, "type", raw) from None
        if field.required and not values:
            raise _Rejected(field.name, "missing")
        return values if field.list else values[0] if values else None

    def _raw(self, field: FieldRule, element: Any) -> Iterator[Any]:
        """Yield the values of `field` before conversion, without empty ones."""
        for value in self._sourced(field, element):
            if isinstance(value, str):
                value = " ".join(value.split())
            if value not in (None, ""):
                yield value

    def _sourced(self, field: FieldRule, element: Any) -> Iterator[Any]:
        try:
            if field.reads_source and element is None:
                yield from self._matched(self.text, field.regex)
                return
            for value in self._unmatched(field, element):
                if not field.regex or value is None or isinstance(value, (dict, list)):
                    yield value
                else:
                    yield next(self._matched(str(value), field.regex), None)
        except pcre2.LibraryError:  # too many steps
            if self._is_inline:
                raise TakesLong from None
            raise _Rejected(field.name, "unread") from None

    def _matched(self, text: str, pattern: str) -> Iterator[str]:
        """Yield what `pattern` matches in `text`, without empty matches."""
        for value in _matches(text, pattern, self._steps):
            self._check_time()
            if value:
                yield value

    def _unmatched(self, field: FieldRule, element: Any) -> Iterator[Any]:
        if field.page:
            yield self._job.facts[field.page]
        elif field.value:
            yield field.value
        elif field.json_ld:
            yield from values_at(self.json_ld, field.json_ld)
        else:
            for one in self._elements(field, element):
                yield one.attr(field.attr) if field.attr else tree.restored(one.text)

    def _elements(self, field: FieldRule, element: Any) -> Sequence[Any]:
        root = self.document if element is None else element
        if not field.css:
            return [root]
        if field.list:
            return list(root.select(field.css))
        return [one] if (one := root.select_one(field.css)) is not None else []


_limited = lru_cache(maxsize=1_000)(limited)


def _matches(text: str, pattern: str, steps: int) -> Iterator[str]:
    """Yield what `pattern` matches in `text`, from left to right. Raises pcre2.LibraryError if a search takes more
    `steps` for each character."""
    limit = 1 << (max(len(text), _SHORT) * steps).bit_length()  # so that few expressions have to be compiled
    for found in _limited(pattern, limit).finditer(text):
        groups = found.groups()
        yield (groups[0] if groups else found.group()) or ""
