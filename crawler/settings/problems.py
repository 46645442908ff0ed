"""Describes settings that cannot be used: each in one line, with the place where it was set and the closest valid name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from crawler.errors import SettingsInvalid, closest

Names = Mapping[str, Collection[str]]
"""All settings: table -> its keys."""


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


def of_value(name: str, value: object) -> str:
    """Return the setting `name` with its `value` as TOML, unless that is a list or a table."""
    if not isinstance(value, (str, int, float)):
        return name
    return f"{name} = {value if isinstance(value, float) else json.dumps(value, ensure_ascii=False)}"


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


def environment_name(name: str) -> str:
    """Return the environment variable of the setting `name` ("table.key")."""
    return "CRAWLER_" + name.replace(".", "__").upper()
