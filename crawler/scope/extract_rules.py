"""Says what data is extracted from which pages without code. Pure: `crawler.parse.extraction` applies it.

A rule makes items of one data set from the pages that it matches: one from each page, or one from each element that `each`
selects. Each field of an item has one source, and a type that its value must have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import pcre2  # type: ignore[import-untyped]

from crawler.errors import UserError
from crawler.page import DATA_SET, Page
from frontier.errors import BadInput
from frontier.urls import UrlPattern, is_in_url, limited

FieldType = Literal["text", "int", "decimal", "decimal_comma", "bool", "url", "date"]
NUMBERS: frozenset[FieldType] = frozenset({"int", "decimal", "decimal_comma"})
PageFact = Literal["url", "domain", "depth", "status", "title", "lang", "canonical", "fetched_at"]

_PATH = re.compile(r"[\w:@-]+(\.[\w:@-]+)*")


SOURCES = ("css", "xpath", "json_ld", "microdata", "rdfa", "page", "value")


class FieldRule(msgspec.Struct, frozen=True):
    """Where the value of the field `name` comes from, and what it has to be.

    The source is one of: `css`, the text of the elements that this selector selects, or their attribute `attr` (with `attr`
    alone, that of the element that `each` selects); `xpath`, what this expression selects; `json_ld`, a path such as
    `Product.offers.price`, or the same in `microdata` or `rdfa`; `page`, something that is known of the page; `value`, this
    text. `regex`: takes the part of the value that this expression matches, its first group if it has groups; without a
    source, of the source text of the page. `list`: takes all values, not the first.
    """

    name: str
    css: str = ""
    attr: str = ""
    xpath: str = ""
    json_ld: str = ""
    microdata: str = ""
    rdfa: str = ""
    page: PageFact | None = None
    value: str = ""
    regex: str = ""
    type: FieldType = "text"
    list: bool = False
    required: bool = False

    @property
    def is_found(self) -> bool:
        """Whether the value comes from the contents of the page."""
        return not (self.page or self.value)

    @property
    def reads_source(self) -> bool:
        """Whether the value is a part of the source text."""
        return bool(self.regex) and not (self.attr or any(getattr(self, name) for name in SOURCES))


class ExtractRule(msgspec.Struct, frozen=True):
    """What is extracted from pages whose URL matches the regular expression `match`, and that have this media type.
    `name`: the data set. `each`: the selector of the elements that are an item each; empty: the page is one."""

    name: str
    fields: tuple[FieldRule, ...]
    match: str = ""
    content_type: str = "text/html"
    each: str = ""

    def applies(self, page: Page) -> bool:
        return page.has_type(self.content_type) and is_in_url(self.match, page.url)


def check_name(name: str) -> None:
    """Raises UserError if `name` cannot be that of a data set."""
    if not DATA_SET.fullmatch(name):
        raise UserError("cannot be the name of a data set: use letters, digits, _, - and .")


def check_match(pattern: str) -> None:
    """Raises UserError if `pattern` is not a regular expression for URLs."""
    try:
        UrlPattern(pattern)
    except BadInput as error:
        raise UserError(str(error)) from error


def check_regex(pattern: str) -> None:
    """Raises UserError if `pattern` is not a regular expression for values."""
    if not pattern:
        return
    try:
        limited(pattern, 1)
    except (pcre2.PatternError, ValueError) as error:
        raise UserError(f"not a regular expression: {error}") from error


_OF_SCRAPY = {
    "::text": "leave out `::text`: the value is the text of the element",
    "::attr": 'write the attribute of `::attr` beside the selector, such as attr = "href"',
}
"""What users of Scrapy add to selectors, and what to write instead."""


def check_selector(selector: str) -> None:
    """Raises UserError if `selector` is not a CSS selector."""
    if not selector:
        return
    from turbohtml import query  # noqa: PLC0415 - most crawls have no selector in their settings

    try:
        query.compile(selector)
    except query.SelectorSyntaxError as error:
        hint = next((f"; {advice}" for ending, advice in _OF_SCRAPY.items() if ending in selector), "")
        raise UserError(f"not a CSS selector: {error}{hint}") from error


def check_xpath(expression: str) -> None:
    """Raises UserError if `expression` is not an XPath expression."""
    if not expression:
        return
    import turbohtml  # noqa: PLC0415

    try:
        turbohtml.parse("<p>").xpath(expression)
    except ValueError as error:
        raise UserError(f"not an XPath expression: {error}") from error


def check_path(path: str) -> None:
    """Raises UserError if `path` does not lead to a value in JSON-LD."""
    if path and not _PATH.fullmatch(path):
        raise UserError("write a type and keys with dots between them, such as Product.offers.price")


def check_field(field: FieldRule, has_each: bool) -> None:
    """Raises UserError if `field` has no source, or several. `has_each`: whether an item is an element of the page."""
    sources = [name for name in SOURCES if getattr(field, name)]
    if len(sources) > 1:
        raise UserError(f"has two sources, {' and '.join(sources)}: keep one")
    if field.attr and sources not in ([], ["css"], ["xpath"]):
        raise UserError(f"`attr` is of an element: it does not go with `{sources[0]}`")
    if field.attr and not sources and not has_each:
        raise UserError("`attr` needs `css`, the selector of the element")
    if not sources and not field.attr and not field.regex and not has_each:
        raise UserError("needs a source: css, xpath, json_ld, microdata, rdfa, regex, page or value")
    if field.list and not field.is_found:
        raise UserError("`list` needs a source with several values: css, xpath, json_ld, microdata, rdfa or regex")


Kind = Literal["bool", "int", "float", "text", "time", "list", "object", "json"]
"""The type of a field. A column with `json` takes lists and objects. Only fields of known columns may be times."""

Kinds = dict[str, Kind]
"""Field -> its type."""

LARGEST = 1 << 63
"""Whole numbers from here on have no column type. Nor has JSON for many of its readers."""

_DECLARED: Mapping[FieldType, Kind] = {"int": "int", "decimal": "float", "decimal_comma": "float", "bool": "bool"}
"""The others are text."""


class Misfit(NamedTuple):
    """The field of an item whose value does not fit. `found`: the type of the value, None if it has none; `known`: that of
    the field."""

    field: str
    value: Any
    found: Kind | None
    known: Kind | None


def joined(known: Kind | None, kind: Kind | None) -> Kind | None:
    """Return the type of a field that has values of both types: text, unless one of them takes those of the other."""
    if known is None or kind is None or known == kind:
        return known or kind
    if known == "json" and kind in ("list", "object"):
        return known
    return "float" if {known, kind} == {"int", "float"} else "text"


class Schema:
    """The fields of a data set in the order in which they were found, and their types. `columns`: fields whose types cannot
    change, because a table has them; `declared`: types that cannot change either, of fields that may be found; `known`:
    others that were found before, which become text when a value has another type. Otherwise the site that is crawled first
    would decide about the items of all others."""

    def __init__(
        self,
        columns: Mapping[str, Kind] | None = None,
        known: Mapping[str, Kind] | None = None,
        declared: Mapping[str, Kind] | None = None,
    ) -> None:
        self.kinds: dict[str, Kind | None] = {**(known or {}), **(columns or {})}
        self._declared = declared or {}
        self._fixed = {*(columns or ()), *self._declared}

    @property
    def known(self) -> Kinds:
        """The fields of which a value was found that is not null."""
        return {name: kind for name, kind in self.kinds.items() if kind is not None}

    def fix(self, names: Iterable[str]) -> None:
        """Let the types of the fields `names` be those of columns from now on."""
        self._fixed |= set(names)

    def add(self, item: Mapping[str, Any]) -> str:
        """Add the fields of `item`. Returns why this is impossible, "" if it is not. Then the schema has not changed."""
        found = self.found_in(item)
        if not isinstance(found, Misfit):
            self.learn(found)
            return ""
        if found.found is None:
            return f"{found.field}: {str(found.value)[:40]} is too large a number"
        return f"{found.field}: {found.found} ({shown(found.value)}), where the column has {found.known}"

    def learn(self, found: Mapping[str, Kind | None]) -> None:
        """Let fields have values of the types in `found`, too."""
        for name, kind in found.items():
            self.kinds[name] = joined(self.kinds.get(name), kind)

    def found_in(self, item: Mapping[str, Any]) -> dict[str, Kind | None] | Misfit:
        """Return the types of those fields of `item` that are new or change, or the first field that does not fit."""
        found: dict[str, Kind | None] = {}
        for name, value in item.items():
            known, kind = self.kinds.get(name), _kind(value)
            if value is not None and kind is None:
                return Misfit(name, value, None, known)
            expected = known or (kind and self._declared.get(name))
            new = joined(expected, kind)
            if new != expected and name in self._fixed and expected is not None:
                return Misfit(name, value, kind, expected)
            if new != known or name not in self.kinds:
                found[name] = new
        return found

    def as_written(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of `item`, with JSON in place of other values where the type is text."""
        return {
            name: value if value is None or isinstance(value, str) or self.kinds.get(name) != "text" else as_json(value)
            for name, value in item.items()
        }

    def rounds(self, item: Mapping[str, Any], exact: Collection[str] = ()) -> str:
        """Why columns of these types would change a number of `item`, "" if they do not. `exact`: columns that do not."""
        for name, value in item.items():
            is_inexact = self.kinds.get(name) == "float" and name not in exact
            if is_inexact and isinstance(value, int) and int(float(value)) != value:
                return f"{name}: {value} would be rounded, as other items have decimal numbers"
        return ""


def _kind(value: object) -> Kind | None:
    match value:
        case bool():
            return "bool"
        case int():
            return "int" if -LARGEST <= value < LARGEST else None
        case float():
            return "float"
        case str():
            return "text"
        case list():
            return "list"
        case dict():
            return "object"
    return None


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def shown(value: object) -> str:
    """Return the beginning of `value` as JSON."""
    text = as_json(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def declared(rules: Iterable[ExtractRule]) -> dict[str, Kinds]:
    """Return the types that `rules` declare, by the name of the data set. Raises UserError if they declare two for a field.
    A field with decimal numbers may have whole ones, too."""
    found: dict[str, Kinds] = {}
    for rule in rules:
        kinds = found.setdefault(rule.name, {})
        for field in rule.fields:
            kind = _declared_kind(field)
            known = kinds.setdefault(field.name, kind)
            if {known, kind} == {"int", "float"}:
                kinds[field.name] = "float"
            elif known != kind:
                raise UserError(
                    f"the data set {rule.name} has a field {field.name} that is {known} in one table and {kind} in "
                    "another; rename one, or give both the same type"
                )
    return found


def _declared_kind(field: FieldRule) -> Kind:
    return "list" if field.list else _DECLARED.get(field.type, "text")
