"""Converts the values of a source to the types of the settings, key by key, so that all that cannot be used is found."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from crawler.errors import UserError, closest
from crawler.settings.problems import Names, at, environment_name, of_value, unknown
from crawler.settings.table import Key, Table, keys_of
from frontier.errors import BadInput

Tables = TypeVar("Tables", bound=Table)


def _of_text(kind: type[Path], text: str) -> Path:
    """A path; `~` is the user's home folder, as in a shell."""
    return kind(os.path.expanduser(text))  # noqa: PTH111 - `Path.expanduser` raises for an unknown user


_EXPECTED = {
    bool: "must be true or false",
    int: "must be a valid integer",
    float: "must be a valid number",
    str: "must be a valid string",
    Path: "must be a valid path",
}

_BOUNDS = {
    "ge": (operator.ge, "greater than or equal to"),
    "gt": (operator.gt, "greater than"),
    "le": (operator.le, "less than or equal to"),
}

_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


class Conversion:
    """Converts values of one source. `place_of`: where that of a setting is from, or ""; `is_text`: whether a text may
    stand for a number, or for true or false, as in the environment. `problems`: a line for each setting so far that cannot
    be used or is not in `names`; if there is any, what `table` returns is incomplete."""

    def __init__(self, names: Names, place_of: Callable[[str], str], is_text: bool = False) -> None:
        self._names, self._place_of, self._is_text = names, place_of, is_text
        self.problems: list[str] = []

    def table(self, table: type[Table], values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
        """Return the converted `values` of a table. `path`: the name of the table and a dot."""
        known = keys_of(table)
        for name in [path + key for key in values if key not in known]:
            in_environment = self._place_of(name).startswith("CRAWLER_")
            near = closest(name.rpartition(".")[2], known) if name.count(".") > 2 else []  # a table in a table
            told = unknown(name, self._names, environment_name if in_environment else str)
            self._refuse(name, f"there is no such setting; did you mean {near[0]}?" if near else told)
        return {key: self._value(known[key], value, path + key) for key, value in values.items() if key in known}

    def _value(self, key: Key, value: Any, name: str) -> Any:
        items, found = value if isinstance(value, (list, tuple)) else [value], len(self.problems)
        if key.is_map:
            return self._map(key, value, name)
        if key.type is not bool and any(isinstance(item, bool) for item in items):
            return self._refuse(name, "must not be true or false")
        if not key.is_list:
            converted = self._one(key, value, name)
        elif items is value:
            converted = tuple(self._one(key, item, f"{name}.{number}") for number, item in enumerate(items))
        else:
            return self._refuse(name, f"must be a list, such as {_as_list(value)}", value)
        if "check" in key.extra and len(self.problems) == found:
            self._try(name, lambda: key.extra["check"](converted))
        return converted

    def _map(self, key: Key, value: Any, name: str) -> Any:
        """Convert a table with free keys."""
        if not isinstance(value, dict):
            return self._refuse(name, "must be a table", value)
        if key.type is Any:
            return self._free(name, value)
        item = msgspec.structs.replace(key, is_list=True, is_map=False)  # an item is built at once, as that of a list
        return {one: self._one(item, each, f"{name}.{one}") for one, each in value.items()}

    def _free(self, name: str, values: dict[str, Any]) -> Any:
        """A table of which only a program knows what it has to contain."""
        try:
            json.dumps(values, allow_nan=False).encode()
            return msgspec.json.decode(msgspec.json.encode(values))
        except (TypeError, ValueError) as error:
            return self._refuse(name, f"cannot be stored as JSON: {error}")

    def _one(self, key: Key, value: Any, name: str) -> Any:
        """Convert a value that is not a list, or an item of a list."""
        if not key.is_table:
            return self._plain(key, value, name)
        if not isinstance(value, dict):
            return self._refuse(name, "must be a table", value)
        found, keys = len(self.problems), self.table(key.type, value, f"{name}.")
        if not key.is_list:
            return keys
        for one, declared in keys_of(key.type).items():
            if declared.default is msgspec.NODEFAULT and one not in keys:
                self._refuse(f"{name}.{one}", "is required")
        return self._try(name, lambda: key.type(**keys)) if len(self.problems) == found else None

    def _plain(self, key: Key, value: Any, name: str) -> Any:
        if value is None and key.default is None:
            return None
        meant = _meant(value, key.type) if self._is_text and isinstance(value, str) else value
        try:
            converted = msgspec.convert(meant, key.type, strict=not self._is_text, dec_hook=_of_text)
        except msgspec.ValidationError:
            return self._refuse(name, _expected(key, value), value)
        if (
            isinstance(converted, str) and converted.encode(errors="ignore").decode() != converted
        ):  # no JSON can store it
            return self._refuse(name, _EXPECTED[str], value)
        if isinstance(converted, float) and not math.isfinite(converted):
            return self._refuse(name, "must be a finite number", value)
        for bound, (holds, words) in _BOUNDS.items():
            if broken := [limit for limit in key.said(bound) if not holds(converted, limit)]:
                return self._refuse(name, f"must be {words} {broken[0]:.16g}", value)
        return converted

    def _try(self, name: str, use: Callable[[], Any]) -> Any:
        try:
            return use()
        except (UserError, BadInput) as error:
            return self._refuse(name, str(error))

    def _refuse(self, name: str, reason: str, value: Any = None) -> None:
        self.problems.append(at(self._place_of(name), f"{of_value(name, value)}: {reason}"))


def build(table: type[Tables], values: Mapping[str, Any]) -> Tables:
    """Return a table of tables with converted `values`, and the defaults of those that are missing."""
    known = keys_of(table)

    def built(name: str, value: Any) -> Any:
        return known[name].type(**value) if known[name].is_table and isinstance(value, dict) else value

    return table(**{name: built(name, value) for name, value in values.items()})


def _meant(text: str, kind: type) -> Any:
    """Return what `text` stands for as a value of the type `kind`, or itself."""
    with contextlib.suppress(KeyError, ValueError):
        return _WORDS[text.lower()] if kind is bool else kind(text) if kind in (int, float) else text
    return text


def _as_list(value: Any) -> str:
    """Return `value` as a list of TOML with one item. A URL is not repeated, because it may have a password."""
    is_plain = isinstance(value, (str, int, float)) and "://" not in str(value)
    return json.dumps([value if is_plain else "VALUE"], ensure_ascii=False)


def _expected(key: Key, value: Any) -> str:
    if not key.choices:
        return _EXPECTED[key.type]
    *others, last = map(repr, key.choices)
    near = closest(str(value), key.choices)
    return f"must be {', '.join(others)} or {last}" + (f"; did you mean {near[0]}?" if near else "")
