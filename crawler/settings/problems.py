"""Describes settings that cannot be used: each in one line, with the place where it was set and the closest valid name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from pydantic_core import ErrorDetails

from crawler.errors import SettingsInvalid, closest

Names = Mapping[str, Collection[str]]
"""All settings: table -> its keys."""

_EXPECTED = {
    "tuple_type": "must be a list",
    "model_type": "must be a table",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "missing": "is required",
}
"""Type of an error -> the same in TOML's words, where Pydantic's differ from these."""


def describe(errors: Iterable[ErrorDetails], names: Names, place_of: Callable[[str], str]) -> list[str]:
    """Return one line for each of the `errors`. `place_of`: where the value of a setting ("table.key") is from, or
    "" if it is unknown."""
    return [_line(one, names, place_of) for one in errors]


def raise_for(problems: Iterable[str]) -> None:
    """Raises SettingsInvalid if there are any `problems`. Repeated ones are reported once. Those of a file come first, in
    the order of its lines."""
    if found := sorted(dict.fromkeys(problems), key=_place_in_file):
        raise SettingsInvalid(tuple(found))


def _place_in_file(problem: str) -> tuple[bool, str, int]:
    found = re.match(r"(.+?):(\d+): ", problem)
    return (False, found[1], int(found[2])) if found else (True, "", 0)


def at(place: str, text: str) -> str:
    """Return `text` after the place that it is about, if that is known."""
    return f"{place}: {text}" if place else text


def unknown(name: str, names: Names, shown: Callable[[str], str] = str) -> str:
    """Return what is wrong with a `name` that no setting has, with the most similar ones as `shown` returns them."""
    near = similar(name, names)
    hint = (
        f"; did you mean {' or '.join(map(shown, near))}?" if near else "; `crawler config explain` lists all settings"
    )
    return f"there is no such setting{hint}"


def similar(name: str, names: Names) -> list[str]:
    """Return up to three settings or tables with a name like `name`: the one that differs in its separator alone, as in
    "limits_max_pages", or those with the same key in another table first."""
    key = name.rpartition(".")[2]
    settings = [f"{table}.{one}" for table, keys in names.items() for one in keys]
    joined = {one.replace(".", "_"): one for one in settings}
    if name in joined:
        return [joined[name]]
    same = [one for one in settings if one.rpartition(".")[2] == key]
    if same:
        return same[:3]
    if "." in name:
        return closest(name, settings) or _by_key(key, settings)
    near = closest(name, [*names, *joined])
    return [joined.get(one, one) for one in near] or _by_key(key, settings)


def _by_key(key: str, settings: list[str]) -> list[str]:
    near = closest(key, (one.rpartition(".")[2] for one in settings))
    return [one for one in settings if one.rpartition(".")[2] in near][:3]


def _line(one: ErrorDetails, names: Names, place_of: Callable[[str], str]) -> str:
    name = ".".join(map(str, one["loc"]))
    place, value = place_of(name), one["input"]
    if one["type"] == "extra_forbidden":
        return at(place, f"{name}: {unknown(name, names, environment_name if place.startswith('CRAWLER_') else str)}")
    if one["type"] == "value_error":  # its message shows as much of the value as may be shown
        return at(place, f"{name}: {one['msg'].removeprefix('Value error, ')}")
    is_scalar = isinstance(value, (str, int, float, bool))
    shown = f"{name} = {_toml(value)}" if is_scalar and one["type"] != "missing" else name
    expected = _EXPECTED.get(one["type"]) or one["msg"].replace("Input should be", "must be").partition(", unable")[0]
    return at(place, f"{shown}: {expected}{_near_choice(one)}")


def _toml(value: object) -> str:
    return str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _near_choice(one: ErrorDetails) -> str:
    if one["type"] != "literal_error":
        return ""
    choices = str(one.get("ctx", {}).get("expected", "")).split("'")[1::2]
    near = closest(str(one["input"]), choices)
    return f"; did you mean {near[0]}?" if near else ""


def environment_name(name: str) -> str:
    """Return the environment variable of the setting `name` ("table.key")."""
    return "CRAWLER_" + name.replace(".", "__").upper()
