"""Extracts items from a page by rules (`crawler.scope.extract_rules`). Pure.

The rules come from the operator, the page from anyone. What the page can cost is limited: a selector takes time in
proportion to the elements times the depth of the tree, so only the trees of small or flat documents are searched in the
event loop. There, all rules together have `INLINE_S` of CPU time. For other documents, the same code runs in the
process for large documents, which has a limit of its own (`crawler.parse.child`). Values, items and their
bytes are limited, too. An item that cannot be written as its rule says is rejected as a whole, and reported.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pcre2  # type: ignore[import-untyped]

from crawler.page import MAX_ITEM_BYTES, TORN, Item, Page, RejectedItem
from crawler.parse import structured, tree
from crawler.parse.coding import decode_body
from crawler.parse.encoding import as_text
from crawler.parse.tags import INLINE_TREE, TakesLong
from crawler.scope.extract_rules import NUMBERS, ExtractRule, FieldRule
from frontier.errors import BadUrl
from frontier.urls import canonicalize, limited

if TYPE_CHECKING:
    import turbohtml

MAX_ITEMS = 10_000
"""The most items of a page. That many may also be rejected."""

MAX_VALUES = 1_000
MAX_LENGTH = 1 << 20
"""The most values of a field that is a list, and the characters of a value."""

MAX_REPORTED = 20
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
"""A selector with `:has()` takes a time that grows with the square of the elements: 6 ms for 1,000, 20 s for 60,000. So
may an XPath expression, and references between items of microdata."""


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
    """What a rule has found on a page: how many elements that may be items, how many items, its fields by name, and what
    of the page could not be read."""

    elements: int
    items: int
    fields: Mapping[str, FieldReport]
    unread: Sequence[str] = ()


class ExtractionJob(msgspec.Struct, frozen=True):
    """A page from which the `rules` extract items. `content_type`: its media type; `charset`: the encoding of its text;
    `coding`: its Content-Encoding; `facts`: what is known of it, by the names of `PageFact`; `max_decoded`: the most bytes
    of its decoded body; `is_torn`: whether its end is missing."""

    CPU_S: ClassVar[float] = 10.0  # selectors and expressions are the operator's, and may be dear on ordinary pages
    RESULT: ClassVar = Extraction

    rules: tuple[ExtractRule, ...]
    url: str
    content_type: str
    charset: str
    coding: str
    facts: Mapping[str, Any]
    max_decoded: int
    is_torn: bool = False

    @classmethod
    def of(cls, page: Page, rules: tuple[ExtractRule, ...], max_decoded: int) -> ExtractionJob:
        """The job for `page`, which has an exchange."""
        assert page.shown is not None
        coding, is_torn = page.shown.content_coding, not TORN.isdisjoint(page.cut)
        return cls(rules, page.url, page.content_type, page.charset, coding, _facts(page), max_decoded, is_torn)

    def _decoded(self, body: bytes) -> bytes:
        data = decode_body(body, self.coding, self.max_decoded).data
        return tree.without_torn_end(data) if self.is_torn else data

    def run(self, body: bytes, is_inline: bool = False) -> Extraction:
        """Extract the items from `body`, as it was received. `is_inline`: raise TakesLong if that would hold up the event
        loop."""
        source = _Source(self._decoded(body), self, is_inline)
        found = _Found()
        if source.is_malformed:
            for rule in self.rules:
                found.add(rule, _Rejected("", "unread"))
            return found.result()
        if is_inline and source.is_deep:
            raise TakesLong
        for rule in self.rules:
            for item in source.items_of(rule):
                found.add(rule, item)
        return found.result()

    def report(self, body: bytes) -> RuleReport:
        """Say what its first rule finds in `body` and what not, for whoever writes the rule. Raises TakesLong as `run`
        does in the event loop."""
        (rule, *_), source = self.rules, _Source(self._decoded(body), self, True)
        if source.is_malformed:
            return RuleReport(0, 0, {}, ["the page is not well-formed XML"])
        if source.is_deep:
            raise TakesLong
        fields = {field.name: FieldReport() for field in rule.fields}
        elements = source.elements_of(rule)
        for element in elements:
            for field in rule.fields:
                fields[field.name].add(source.outcome(field, element))
        items = sum(isinstance(item, dict) for item in source.items_of(rule))
        unread = source.json_ld.unread if any(field.json_ld for field in rule.fields) else []
        return RuleReport(len(elements), items, fields, [f"JSON-LD not read, {one}" for one in unread])


def unread(rules: Iterable[ExtractRule]) -> Extraction:
    """What is reported of a page that took too long to read."""
    rejected = tuple(RejectedItem(rule.name, "", "unread") for rule in rules)
    return Extraction((), rejected[:MAX_REPORTED], dict(Counter(one.word for one in rejected)))


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
        text = f"({type(value).__name__})" if isinstance(value, (dict, list)) else str(value)[:_SHOWN]
        self.value = text.replace("\n", " ")


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
        if len(self._rejected) < MAX_REPORTED:
            self._rejected.append(item)

    def result(self) -> Extraction:
        return Extraction(tuple(self._items), tuple(self._rejected), dict(self._rejected_by))


class _Source:
    """The contents of a page, each form of which is made when a field first needs it."""

    def __init__(self, body: bytes, job: ExtractionJob, is_inline: bool) -> None:
        self._body = body
        self._job = job
        self._is_inline = is_inline
        self._markup: dict[tuple[bool, bool], list[Any]] = {}
        self._items: set[Any] = set()
        self._steps = 1 if is_inline else _STEPS
        self._ends_at = time.thread_time() + INLINE_S if is_inline else math.inf

    @property
    def _needs_tree(self) -> bool:
        return any(
            rule.each or any(field.is_found and not field.reads_source for field in rule.fields)
            for rule in self._job.rules
        )

    @property
    def is_deep(self) -> bool:
        """Whether searching the tree could take long."""
        if not self._needs_tree:
            return False
        tags = self._body.count(b"<")
        selectors = (one for rule in self._job.rules for one in (rule.each, *(field.css for field in rule.fields)))
        if any(":has(" in one.lower() for one in selectors) or any(
            field.xpath or field.microdata or field.rdfa for rule in self._job.rules for field in rule.fields
        ):
            return tags > _FEW_TAGS_WITH_HAS or len(self.document.select("*")) > _FEW_TAGS_WITH_HAS
        if tags <= _FEW_TAGS:
            return False
        return len(self._body) > INLINE_TREE or self.document.select_one(_FLAT) is not None

    @cached_property
    def document(self) -> turbohtml.Document:
        return self._xml or tree.parse(self._body, self._job.charset or None)

    @cached_property
    def _xml(self) -> turbohtml.Document | None:
        is_xml = tree.is_xml(self._job.content_type)
        return tree.parse_xml(self._body, self._job.charset) if is_xml else None

    @property
    def is_malformed(self) -> bool:
        """Whether a tree is needed, and the page is XML that has none."""
        return tree.is_xml(self._job.content_type) and self._needs_tree and self._xml is None

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
        return as_text(self._body, self._job.charset)

    @cached_property
    def json_ld(self) -> structured.JsonLd:
        return structured.json_ld_of(self.document)

    def _in_markup(self, field: FieldRule) -> list[Any]:
        """The objects of the markup from which `field` is."""
        is_microdata, is_number = key = bool(field.microdata), field.type in NUMBERS
        if key not in self._markup:
            read = partial(structured.microdata_of, base=self.base) if is_microdata else structured.rdfa_of
            self._markup[key] = read(self.document, split_digits=is_number)
        return self._markup[key]

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
        elements = list(self.document.select(rule.each)) if rule.each else [None]
        self._items = set(elements)
        return elements

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
        from crawler.parse.values import NotOfType, converted  # noqa: PLC0415 - few crawls need it

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
        """Yield the values of `field` before conversion, without empty ones. Lines remain only in numbers, which do not
        go on in the next one."""
        joint = "\n" if field.type in NUMBERS and not field.regex else " "
        for value in self._values(field, element):
            if isinstance(value, str):
                value = joint.join(filter(None, (" ".join(line.split()) for line in value.split("\n"))))
            if value not in (None, ""):
                yield value

    def _values(self, field: FieldRule, element: Any) -> Iterator[Any]:
        """Yield what the source of `field` has, or the parts that its `regex` matches."""
        try:
            if field.reads_source and element is None:
                yield from self._matches_in(self.text, field)
                return
            for value in self._whole_values(field, element):
                if not field.regex or value is None or isinstance(value, (dict, list)):
                    yield value
                else:
                    yield next(self._matches_in(str(value), field), None)
        except pcre2.LibraryError:  # too many steps
            if self._is_inline:
                raise TakesLong from None
            raise _Rejected(field.name, "unread") from None

    def _matches_in(self, text: str, field: FieldRule) -> Iterator[str]:
        for value, is_part in _matches(text, field.regex, self._steps):
            self._check_time()
            if is_part and field.type in NUMBERS:
                raise _Rejected(field.name, "type", value)
            if value:
                yield value

    def _whole_values(self, field: FieldRule, element: Any) -> Iterator[Any]:
        only_first = not field.list
        if field.page:
            yield self._job.facts[field.page]
        elif field.value:
            yield field.value
        elif field.json_ld:
            yield from structured.values_at(self.json_ld.values, field.json_ld, only_first)
        elif field.microdata or field.rdfa:
            yield from structured.values_at(self._in_markup(field), field.microdata or field.rdfa, only_first)
        else:
            for one in self._elements(field, element):
                if isinstance(one, (str, float, bool)):  # what XPath has found
                    yield tree.restored(one) if isinstance(one, str) else one
                elif field.attr:
                    yield one.attr(field.attr)
                else:
                    yield tree.text_of(one, split_digits=field.type in NUMBERS)

    def _elements(self, field: FieldRule, element: Any) -> Sequence[Any]:
        root = self.document if element is None else element
        if field.xpath:
            try:
                found = root.xpath(field.xpath)
                if isinstance(found, str) and field.type in NUMBERS:
                    found = self._separated(found, root, field.xpath)
            except (ValueError, RecursionError):
                raise _Rejected(field.name, "unread") from None
            return found if isinstance(found, list) else [found]
        if not field.css:
            return [root]
        if not field.list and ((one := root.select_one(field.css)) is None or self._is_of(one, element)):
            return [] if one is None else [one]
        own = [one for one in root.select(field.css) if self._is_of(one, element)]
        return own if field.list else own[:1]

    def _separated(self, found: str, root: Any, xpath: str) -> str:
        """`found`, which `xpath` gives, with what separates its digits; unless it compares such texts."""
        with tree.separate_texts(root, split_digits=True, only_digits=True):
            again = root.xpath(xpath)
        return again if "".join(again.split()) == "".join(found.split()) else found

    def _is_of(self, one: Any, item: Any) -> bool:
        """Whether `one`, which is in the element `item`, is in no other item within it."""
        return item is None or next(part for part in one.ancestors if part in self._items) == item


_limited = lru_cache(maxsize=1_000)(limited)


_DIGITS_BEFORE, _DIGITS_AFTER = re.compile(r"\d[.,'\u2019\s]?\Z"), re.compile(r"[.,'\u2019\s]?\d")


def _matches(text: str, pattern: str, steps: int) -> Iterator[tuple[str, bool]]:
    """Yield what `pattern` matches in `text`, from left to right, and whether it is a part of a number there that the match
    does not contain. Raises pcre2.LibraryError if a search takes more `steps` for each character."""
    limit = 1 << (max(len(text), _SHORT) * steps).bit_length()  # so that few expressions have to be compiled
    for found in _limited(pattern, limit).finditer(text):
        group = 1 if found.groups() else 0
        value, (start, end) = found.group(group) or "", found.span(group)
        begins = (
            value[:1].isdigit() and start == found.start() and _DIGITS_BEFORE.search(text, max(0, start - 2), start)
        )
        ends = value[-1:].isdigit() and end == found.end() and _DIGITS_AFTER.match(text, end)
        yield value, bool(begins or ends)
