"""Reads the sources of the settings, and remembers where each value is from: a line of the settings file, an environment
variable or an option of the command line."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from crawler.errors import UserError
from crawler.settings.problems import Names, environment_name, unknown

PREFIX = "CRAWLER_"

_OPTIONS = {"scope.kind": "--scope", "fetch.ports": "--port"}
"""Settings whose option has another name than their key."""


class Source(msgspec.Struct, frozen=True):
    """The values of one source, as {table: {key: value}}. `places`: where each setting ("table.key") and table is from;
    `problems`: what could not be read, in one line each; `is_text`: whether a text may stand for a number, or for true."""

    values: dict[str, Any] = {}
    places: Mapping[str, str] = MappingProxyType({})
    problems: tuple[str, ...] = ()
    is_text: bool = False


def place_of(name: str, sources: Sequence[Source]) -> str:
    """Return where the value of the setting `name` is from, or of the setting or table that contains it; "" if it is a
    default. `sources`: in rising order of precedence."""
    while name:
        for source in reversed(sources):
            if name in source.places:
                return source.places[name]
        name = name.rpartition(".")[0]
    return ""


# the file


def from_file(path: Path) -> Source:
    """Read the TOML file at `path`. Raises UserError if it cannot be read."""
    import tomllib  # noqa: PLC0415 - a replica of a supervisor has no file

    try:
        text = path.read_text(encoding="utf-8")
        return Source(tomllib.loads(text), {name: f"{path}:{line}" for name, line in _lines(text).items()})
    except OSError as error:
        raise UserError(f"settings file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"settings file {path} is not TOML: {error}") from error


_HEADER = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([\w.-]+)\s*=")


def _lines(text: str) -> dict[str, int]:
    """Return the line of each setting and table. Items of a repeated table are numbered: "schedule.0.every". Keys in
    quotes and in inline tables are not found; the line of their table is then the best place to name."""
    lines: dict[str, int] = {}
    table, repeated = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            table = header[2]
            if header[1] == "[[":
                repeated[table] = repeated.get(table, -1) + 1
                lines.setdefault(table, number)
                table = f"{table}.{repeated[table]}"
            elif (first := table.partition(".")[0]) in repeated:  # a table in the last item of a repeated one
                table = f"{first}.{repeated[first]}.{table.partition('.')[2]}"
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            name = f"{table}.{key[1]}" if table else key[1]
            lines.setdefault(name, number)
            lines.setdefault(name.partition(".")[0], number)
    return lines


# the environment


def from_environment(names: Names, lists: Collection[str], environment: Mapping[str, str] = os.environ) -> Source:
    """Read the variables CRAWLER_<TABLE>__<KEY>, and CRAWLER_<TABLE> with a whole table as JSON. `lists`: the settings and
    tables that are lists. They are written as JSON, or if their items are plain, between commas.

    Others are reported, except those that Kubernetes sets for services, such as CRAWLER_PORT for a service `crawler`.
    """
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    problems = []
    for variable in sorted(environment):  # tables before their keys
        if not variable.upper().startswith(PREFIX):
            continue
        table, separator, key = variable[len(PREFIX) :].lower().partition("__")
        name = f"{table}.{key}" if separator else table
        if separator and table in lists:
            problems.append(f"{variable}: {name}: {_as_json(f'{PREFIX}{table.upper()}', '', True, True)}")
            continue
        if separator and key not in names.get(table, ()):
            problems.append(f"{variable}: {name}: {unknown(name, names, environment_name)}")
            continue
        if not separator and table not in names:
            if not _is_of_kubernetes(variable, environment[variable]):
                problems.append(f"{variable}: {unknown(name, names, environment_name)}")
            continue
        try:
            value = _value(environment[variable], name in lists, not separator)
        except (ValueError, RecursionError):
            problems.append(
                f"{variable}: {name}: {_as_json(variable, environment[variable], name in lists, not separator)}"
            )
            continue
        places[name] = variable
        if separator:
            values.setdefault(table, {})[key] = value
        else:
            values[table] = value
            if isinstance(value, dict):
                places |= {f"{table}.{one}": variable for one in value}
    return Source(values, places, tuple(problems), is_text=True)


_SERVICE = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def _is_of_kubernetes(variable: str, value: str) -> bool:
    """Whether `variable` is one of those that Kubernetes sets in each container for each service of its namespace."""
    return bool(_SERVICE.fullmatch(variable) or (variable.endswith("_PORT") and _SERVICE_URL.match(value)))


def _value(text: str, is_list: bool, is_table: bool) -> Any:
    """Return the value of a variable. Raises ValueError if it is not the JSON that it has to be."""
    if not (is_list or is_table):
        return text
    if not is_table and not text.lstrip().startswith(("[", "{", '"')):
        return [item.strip() for item in text.split(",") if item.strip()]
    value = json.loads(text)
    if not isinstance(value, list if is_list else dict):
        raise ValueError("another type")
    return value


def _as_json(variable: str, text: str, is_list: bool, is_table: bool) -> str:
    """Return how to write `text`, which should be a list, a table or a list of tables. Text with a URL is not repeated,
    because the URL may have a password."""
    if is_list and is_table:
        return f'write a list of tables as JSON, such as {variable}=\'[{{"KEY": "VALUE"}}]\''
    if not is_list:
        return f'write a table as JSON, such as {variable}=\'{{"KEY": "VALUE"}}\''
    items = [item.strip(" \"'") for item in text.strip("[] ").split(",") if item.strip()]
    shown = ["VALUE"] if "://" in text else [int(item) if item.isdecimal() else item for item in items]
    return f"write a list as JSON, such as {variable}={shlex.quote(json.dumps(shown))}"


# the command line


def from_options(flags: Mapping[str, Any], named: Callable[[str], str]) -> Source:
    """The options that were given, as {table: {key: value}}. `named`: says how that of a setting is written."""
    names = [f"{table}.{key}" for table, keys in flags.items() if isinstance(keys, dict) for key in keys]
    return Source(dict(flags), {name: named(name) for name in names})


def option_of(name: str) -> str:
    """Return the option for the setting `name`."""
    return _OPTIONS.get(name, "--" + name.rpartition(".")[2].replace("_", "-"))
