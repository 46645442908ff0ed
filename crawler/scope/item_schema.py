"""The types of the fields of data sets: those that `[[extract]]` declares, and otherwise that of the first value.

Null fits every type, and a whole number fits a field with decimal numbers. A field with whole numbers becomes one with
decimal numbers when the first of these is found, unless its type is declared. No other type changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from crawler.errors import UserError
from crawler.scope.extract_rules import ExtractRule, FieldRule, FieldType

Kind = Literal["bool", "int", "float", "text", "time", "list", "object", "json"]
"""The type of a field. A column with `json` takes lists and objects. Only fields of known columns may be times."""

Kinds = dict[str, Kind]
"""Field -> its type."""

_LARGEST = 1 << 63
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


class Schema:
    """The fields of a data set in the order in which they were found, and their types. `columns`: fields whose types cannot
    change, because a table has them, or the settings; `known`: others that were found before."""

    def __init__(self, columns: Mapping[str, Kind] | None = None, known: Mapping[str, Kind] | None = None) -> None:
        self.kinds: dict[str, Kind | None] = {**(known or {}), **(columns or {})}
        self._fixed = set(columns or {})

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
        where = "the column has" if found.field in self._fixed else "earlier items have"
        return f"{found.field}: {found.found} ({shown(found.value)}), where {where} {found.known}"

    def learn(self, found: Mapping[str, Kind | None]) -> None:
        """Let fields have the types in `found`."""
        self.kinds |= found

    def found_in(self, item: Mapping[str, Any]) -> dict[str, Kind | None] | Misfit:
        """Return the types of those fields of `item` that are new or change, or the first field that does not fit."""
        found: dict[str, Kind | None] = {}
        for name, value in item.items():
            known, kind = self.kinds.get(name), _kind(value)
            if value is not None and kind is None:
                return Misfit(name, value, None, known)
            if known is None or kind is None or known == kind or (known == "json" and kind in ("list", "object")):
                new = known or kind
            elif {known, kind} == {"int", "float"} and (known == "float" or name not in self._fixed):
                new = "float"
            else:
                return Misfit(name, value, kind, known)
            if new != known or name not in self.kinds:
                found[name] = new
        return found


def _kind(value: object) -> Kind | None:
    match value:
        case bool():
            return "bool"
        case int():
            return "int" if -_LARGEST <= value < _LARGEST else None
        case float():
            return "float"
        case str():
            return "text"
        case list():
            return "list"
        case dict():
            return "object"
    return None


def shown(value: object) -> str:
    """Return the beginning of `value` as JSON."""
    text = msgspec.json.encode(value).decode()
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
