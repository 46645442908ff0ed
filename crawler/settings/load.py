"""Loads the settings, and reports each one that cannot be used, in one error.

The sources of a setting, in rising order of precedence, are its default, the TOML file, the environment
(``CRAWLER_POLITENESS__DELAY=2``) and the command line. Values are converted key by key, so that every problem is found,
with the line, variable or option where it was set.

`CrawlSettings` belong to the crawl: they are stored in Redis when the crawl is created, so that all replicas use the
same values. `Settings` has those of one process as well. Lower layers receive only the values that they need.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from crawler.errors import SettingsInvalid, UserError, closest
from crawler.settings.tables import (
    HOME_PAGE,
    ArchiveTable,
    ExtractTable,
    FetchTable,
    FrontierTable,
    HandlersTable,
    IdentityTable,
    Key,
    LimitsTable,
    PolitenessTable,
    RecrawlTable,
    RenderTable,
    ReplicaTable,
    RequestsTable,
    ScopeTable,
    Table,
    keys_of,
)
from frontier.errors import BadInput


class CrawlSettings(Table, frozen=True, kw_only=True):
    politeness: PolitenessTable = PolitenessTable()
    scope: ScopeTable = ScopeTable()
    limits: LimitsTable = LimitsTable()
    frontier: FrontierTable = FrontierTable()
    fetch: FetchTable = FetchTable()
    archive: ArchiveTable = ArchiveTable()
    handlers: HandlersTable = HandlersTable()
    render: RenderTable = RenderTable()
    app: dict[str, Any] = msgspec.field(default_factory=dict)
    recrawl: RecrawlTable = RecrawlTable()
    extract: tuple[ExtractTable, ...] = ()

    def flat(self) -> dict[str, Any]:
        """The settings as {"table.key": value}. A repeated table is one value, and so is one with free keys."""
        flat: dict[str, Any] = {}
        for name, declared in keys_of(type(self)).items():
            table = msgspec.to_builtins(getattr(self, name), enc_hook=str)
            is_one = not isinstance(table, dict) or declared.is_map
            keys = {name: table} if is_one else {f"{name}.{key}": value for key, value in table.items()}
            flat |= {key: list(value) if isinstance(value, tuple) else value for key, value in keys.items()}
        return flat

    def with_shards(self, shards: int) -> CrawlSettings:
        return replace(self, frontier=replace(self.frontier, shards=shards))

    @classmethod
    def of(cls, tables: Mapping[str, Any], place: str = "") -> CrawlSettings:
        """Return the settings with the values in `tables`, which are from `place`. Raises SettingsInvalid."""
        conversion = _Conversion(lambda _: place)
        values = conversion.table(CrawlSettings, tables)
        raise_for(conversion.problems)
        return CrawlSettings(**_built(values))

    @classmethod
    def from_json(cls, text: bytes) -> CrawlSettings:
        place = "the crawl's stored settings"
        try:
            return cls.of(msgspec.json.decode(text, type=dict[str, Any]), place)
        except msgspec.DecodeError as error:
            raise SettingsInvalid((f"{place}: {error}",)) from error

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def warnings(self) -> list[str]:
        """Warnings about valid settings that are probably a mistake."""
        patterns = {"scope.include": self.scope.include, "scope.exclude": self.scope.exclude}
        found = [
            f"{name}: {pattern!r} looks like a pattern for file names{GLOB}"
            for name, listed in patterns.items()
            for pattern in listed
            if _LIKE_A_GLOB.search(pattern)
        ]
        polite = self.politeness
        if polite.parallel == 1 or not polite.delay:
            return found
        return [
            *found,
            f"politeness.parallel = {polite.parallel} has no effect on a domain with a delay: set politeness.delay = 0, or "
            "run `crawler delay DOMAIN 0` for your own sites",
        ]


GLOB = "; it is a regular expression, in which `*` repeats what is before it: write `.*` for any characters"
_LIKE_A_GLOB = re.compile(r"(?<!\\)[/A-Za-z0-9]\*")
"""A `*` that repeats one character, which a regular expression for URLs hardly ever does."""

EMBEDDED_SHARDS = 64
"""Shards of a crawl on one machine: enough for a handful of replicas, and cheap to poll."""


class Settings(CrawlSettings, frozen=True, kw_only=True):
    """All settings: the tables of `CrawlSettings`, `[replica]`, `[identity]` and `[[requests]]`."""

    replica: ReplicaTable = ReplicaTable()
    identity: IdentityTable = IdentityTable()
    requests: tuple[RequestsTable, ...] = ()

    _sources: tuple[Source, ...] = ()
    _added: dict[str, tuple[Any, ...]] = msgspec.field(default_factory=dict)

    @property
    def file_has_crawl_tables(self) -> bool:
        return bool(self._sources) and self._sources[0].has_crawl_tables

    @property
    def name_none_of_a_crawl(self) -> bool:
        return not (self._added or any(source.has_crawl_tables for source in self._sources))

    def names(self, name: str) -> bool:
        """Whether the file, the environment or an option sets the setting `name`, other than by adding to a list."""
        table, dot, key = name.partition(".")
        tables = [source.values[table] for source in self._sources if table in source.values]
        return any(key in keys for keys in tables) if dot else bool(tables)

    def place_of(self, name: str) -> str:
        """Where the setting `name` was set: a line of the file, an environment variable or an option; "" for a default."""
        return next(filter(None, (source.place_of(name) for source in reversed(self._sources))), "")

    @property
    def created(self) -> CrawlSettings:
        """The settings with which a crawl is created. The default number of shards depends on the store alone."""
        is_default = not self.names("frontier.shards")
        return self.crawl.with_shards(EMBEDDED_SHARDS) if is_default and not self.replica.redis else self.crawl

    def adding(self, allow: Sequence[str], ports: Sequence[int]) -> Settings:
        """Return these settings with more in `fetch.allow` and `fetch.ports`."""
        more = {key: items for key, items in (("allow", tuple(allow)), ("ports", tuple(ports))) if items}
        added = {key: items for key, items in more.items() if not self.names(f"fetch.{key}")}
        return replace(self, fetch=extended(self.fetch, more), _added=added)

    @property
    def added(self) -> dict[str, tuple[Any, ...]]:
        """What `adding` has added to keys of `[fetch]` that are not set otherwise. An existing crawl gets it on top."""
        return self._added

    def onto(self, stored: CrawlSettings) -> CrawlSettings:
        """Return `stored`, updated with the values that are set explicitly here."""
        values: dict[str, Any] = {}
        for name in filter(self.names, keys_of(CrawlSettings)):
            table = getattr(self, name)
            if isinstance(table, Table):
                changes = {key: getattr(table, key) for key in keys_of(type(table)) if self.names(f"{name}.{key}")}
                table = replace(getattr(stored, name), **changes)
            values[name] = table
        return replace(stored, **values)

    @property
    def crawl(self) -> CrawlSettings:
        return CrawlSettings(**{name: getattr(self, name) for name in keys_of(CrawlSettings)})


def extended(fetch: FetchTable, more: dict[str, tuple[Any, ...]]) -> FetchTable:
    """Return `fetch` with more items in some of its lists, by key."""
    lists = {key: tuple(dict.fromkeys([*getattr(fetch, key), *items])) for key, items in more.items()}
    return replace(fetch, **{k: tuple(sorted(v)) if k == "ports" else v for k, v in lists.items()})


_OPTIONS = {"scope.kind": "--scope", "fetch.ports": "--port"}
"""Settings whose option has another name than their key."""


def option_of(name: str) -> str:
    return _OPTIONS.get(name, "--" + name.rpartition(".")[2].replace("_", "-"))


def load(
    path: Path | None = None,
    flags: dict[str, dict[str, Any]] | None = None,
    option: Callable[[str], str] = option_of,
) -> Settings:
    """Load the settings from the defaults, the file at `path`, the environment, and `flags` ({table: {key: value}}).
    `option`: says what the flag of a setting is called.

    Raises SettingsInvalid, which names each unknown or malformed setting and where it was set, and UserError for a file
    that cannot be read.
    """
    flags = flags or {}
    places = {f"{table}.{key}" for table, keys in flags.items() if isinstance(keys, dict) for key in keys}
    sources = (
        _from_file(path) if path else Source(),
        _from_environment(),
        Source(flags, {name: option(name) for name in places}),
    )
    problems = [problem for source in sources for problem in source.problems]
    merged: dict[str, Any] = {}
    for source in sources:
        conversion = _Conversion(source.place_of, source.is_text)
        for table, values in conversion.table(Settings, source.values).items():
            merged[table] = (merged.get(table) or {}) | values if isinstance(values, dict) else values
        # Also a value that another source overrides: without it, this one would count.
        problems += conversion.problems
    raise_for(problems)
    return Settings(**_built(merged), _sources=sources)


def _built(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return `tables` as objects, with the defaults of the keys that are missing."""
    known = keys_of(Settings)
    return {
        name: known[name].type(**values) if known[name].is_table and isinstance(values, dict) else values
        for name, values in tables.items()
    }


# sources

PREFIX = "CRAWLER_"


class Source(msgspec.Struct, frozen=True):
    """The values of one source, as {table: {key: value}}. `places`: where each setting ("table.key") and table is from;
    `problems`: what could not be read, in one line each; `is_text`: whether a text may stand for a number, or for true."""

    values: dict[str, Any] = {}
    places: Mapping[str, str] = MappingProxyType({})
    problems: tuple[str, ...] = ()
    is_text: bool = False

    @property
    def has_crawl_tables(self) -> bool:
        return any(values for table, values in self.values.items() if table in keys_of(CrawlSettings))

    def place_of(self, name: str) -> str:
        """Where the setting `name`, or what contains it, was set; "" if not in this source."""
        while name and name not in self.places:
            name = name.rpartition(".")[0]
        return self.places.get(name, "")


def _from_file(path: Path) -> Source:
    import tomllib  # noqa: PLC0415 - a replica of a supervisor has no file

    try:
        text = path.read_text(encoding="utf-8-sig")
        return Source(tomllib.loads(text), {name: f"{path}:{line}" for name, line in _lines(text).items()})
    except OSError as error:
        raise UserError(f"settings file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"settings file {path} is not TOML: {error}") from error


_HEADER = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([\w.-]+)\s*=")


def _lines(text: str) -> dict[str, int]:
    """Return the line of each setting and table. Items of a repeated table are numbered: "extract.0.name". Keys in
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


def _from_environment() -> Source:
    """Read the variables CRAWLER_<TABLE>__<KEY>, and CRAWLER_<TABLE> with a whole table as JSON. Lists are written as JSON,
    or if their items are plain, between commas.

    Others are reported, except those that Kubernetes sets for services, such as CRAWLER_PORT for a service `crawler`.
    """
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    problems = []
    for variable in sorted(name for name in os.environ if name.upper().startswith(PREFIX)):  # tables before their keys
        text = os.environ[variable]
        table, dots, key = variable[len(PREFIX) :].lower().partition("__")
        declared, name, where = keys_of(Settings).get(table), table, variable
        if dots:
            name, where = f"{table}.{key}", f"{variable}: {table}.{key}"
            if declared and declared.is_list:
                problems.append(f"{where}: {_as_json(PREFIX + table.upper(), '', True, True)}")
                continue
            declared = _tables().get(table, {}).get(key)
        if declared is None:
            if not _is_of_kubernetes(variable, text):
                problems.append(f"{where}: {_unknown(name, environment_name)}")
            continue
        try:
            value = _value(text, declared.is_list, not dots)
        except (ValueError, RecursionError):
            problems.append(f"{variable}: {name}: {_as_json(variable, text, declared.is_list, not dots)}")
            continue
        places[name] = variable
        if dots:
            values.setdefault(table, {})[key] = value
        else:
            values[table] = value
            if isinstance(value, dict):
                places |= {f"{table}.{one}": variable for one in value}
    return Source(values, places, tuple(problems), is_text=True)


def environment_name(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


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
    """Return how to write `text` as a list, a table or a list of tables, without a URL, which may have a password."""
    if is_list and is_table:
        return f'write a list of tables as JSON, such as {variable}=\'[{{"KEY": "VALUE"}}]\''
    if not is_list:
        return f'write a table as JSON, such as {variable}=\'{{"KEY": "VALUE"}}\''
    items = [item.strip(" \"'") for item in text.strip("[] ").split(",") if item.strip()]
    example = ["VALUE"] if "://" in text else [int(item) if item.isdecimal() else item for item in items]
    return f"write a list as JSON, such as {variable}={shlex.quote(json.dumps(example))}"


# conversion

_EXPECTED = {
    bool: "must be true or false",
    int: "must be a valid integer",
    float: "must be a valid number",
    str: "must be a valid string",
    Path: "must be a valid path",
}
_BOUND = re.compile(r"Expected .* (>=|>|<=) (\S+)")
_BOUNDS = {">=": "greater than or equal to", ">": "greater than", "<=": "less than or equal to"}
_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


_LONGEST_NAME = 255
"""Bytes of the name of a file or folder (NAME_MAX in limits.h)."""

LARGEST: dict[type, float] = {float: 1e9, int: 1e15}
"""The largest values of settings: 31 years in seconds, and a petabyte. Beyond some more, Redis cannot count in whole
milliseconds."""


class _Conversion:
    """Converts the values of one source. `place_of`: where that of a setting is from, or ""; `is_text`: whether a text may
    stand for a number, or for true or false, as in the environment. `problems`: a line for each setting so far that cannot
    be used or is unknown; if there is any, what `table` returns is incomplete."""

    def __init__(self, place_of: Callable[[str], str], is_text: bool = False) -> None:
        self._place_of, self._is_text = place_of, is_text
        self.problems: list[str] = []

    def table(self, table: type[Table], values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
        """Return the converted `values` of a table. `path`: the name of the table and a dot."""
        known, converted = keys_of(table), {}
        for key, value in values.items():
            name = path + key
            if key in known:
                converted[key] = self._value(known[key], value, name)
            elif name.count(".") > 2 and (near := closest(key, known)):  # a table in a table
                self._refuse(name, f"there is no such setting; did you mean {near[0]}?")
            else:
                in_environment = self._place_of(name).startswith(PREFIX)
                self._refuse(name, _unknown(name, environment_name if in_environment else str))
        return converted

    def _value(self, key: Key, value: Any, name: str) -> Any:
        items, count = value if isinstance(value, (list, tuple)) else [value], len(self.problems)
        if key.is_map:
            return self._map(key, value, name)
        if key.type is not bool and any(isinstance(item, bool) for item in items):
            return self._refuse(name, "must not be true or false")
        if not key.is_list:
            converted = self._item(key, value, name)
        elif items is value:
            converted = tuple(self._item(key, item, f"{name}.{number}") for number, item in enumerate(items))
        else:
            wanted = f"of tables: write [[{name}]]" if key.is_table else f", such as {_as_list(value)}"
            return self._refuse(name, f"must be a list{' ' * key.is_table}{wanted}", value)
        if "check" in key.extra and len(self.problems) == count:
            self._try(name, lambda: key.extra["check"](converted))
        return converted

    def _map(self, key: Key, value: Any, name: str) -> Any:
        """Convert a table with free keys. Of `[app]`, only a program knows what it has to contain."""
        if not isinstance(value, dict):
            return self._refuse(name, "must be a table", value)
        if key.type is not Any:
            return {one: self._item(key, each, f"{name}.{one}") for one, each in value.items()}
        try:
            json.dumps(value, allow_nan=False)
            return msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError) as error:
            return self._refuse(name, f"cannot be stored as JSON: {error}")

    def _item(self, key: Key, value: Any, name: str) -> Any:
        """Convert a value that is not a list, or an item of a list or of a table with free keys."""
        if not key.is_table:
            return self._plain(key, value, name)
        if not isinstance(value, dict):
            return self._refuse(name, "must be a table", value)
        count, values = len(self.problems), self.table(key.type, value, f"{name}.")
        if not (key.is_list or key.is_map):
            return values  # another source may have more of it
        for required, declared in keys_of(key.type).items():
            if declared.default is msgspec.NODEFAULT and required not in values:
                self._refuse(f"{name}.{required}", "is required")
        return self._try(name, lambda: key.type(**values)) if len(self.problems) == count else None

    def _plain(self, key: Key, value: Any, name: str) -> Any:
        if value is None and key.default is None:
            return None
        meant = _meant(value, key.type) if self._is_text and isinstance(value, str) else value
        if isinstance(meant, float) and not math.isfinite(meant):
            return self._refuse(name, "must be a finite number", value)
        try:
            converted = msgspec.convert(meant, key.item_type, strict=not self._is_text, dec_hook=_path)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter for a lone surrogate
            return self._refuse(name, _expected(key, value, str(error)), value)
        if type(converted) in LARGEST and converted > LARGEST[type(converted)]:
            return self._refuse(name, f"must not be greater than {LARGEST[type(converted)]:g}", value)
        if isinstance(converted, str) and any(
            "\ud800" <= sign <= "\udfff" for sign in converted
        ):  # no JSON can have it
            return self._refuse(name, _EXPECTED[str], value)
        if isinstance(converted, (str, Path)) and "\0" in str(converted):  # neither a path nor a variable can have it
            return self._refuse(name, "must not contain a NUL character", value)
        try:
            if isinstance(converted, Path) and any(len(os.fsencode(part)) > _LONGEST_NAME for part in converted.parts):
                return self._refuse(name, f"must not contain a name of more than {_LONGEST_NAME} bytes")
        except UnicodeEncodeError:
            return self._refuse(name, "must not contain half a character", value)
        return converted

    def _try(self, name: str, use: Callable[[], Any]) -> Any:
        try:
            return use()
        except (UserError, BadInput) as error:
            return self._refuse(name, str(error))

    def _refuse(self, name: str, reason: str, value: Any = None) -> None:
        shown = name
        if isinstance(value, (str, int, float)):  # as in TOML
            shown = f"{name} = {value if isinstance(value, float) else json.dumps(value, ensure_ascii=False)}"
        self.problems.append(at(self._place_of(name), f"{shown}: {reason}"))


def _path(kind: type[Path], text: str) -> Path:
    """A path; `~` is the user's home folder, as in a shell."""
    return kind(os.path.expanduser(text))  # noqa: PTH111 - `Path.expanduser` raises for an unknown user


def _meant(text: str, kind: type) -> Any:
    """Return what `text` stands for as a value of the type `kind`, or itself."""
    try:
        return _WORDS[text.lower()] if kind is bool else kind(text) if kind in (int, float) else text
    except (KeyError, ValueError):
        return text


def _as_list(value: Any) -> str:
    """Return `value` as a list of TOML with one item. A URL is not repeated, because it may have a password."""
    is_plain = isinstance(value, (str, int, float)) and "://" not in str(value)
    return json.dumps([value if is_plain else "VALUE"], ensure_ascii=False)


def _expected(key: Key, value: Any, error: str) -> str:
    if key.choices:
        *others, last = map(repr, key.choices)
        near = closest(str(value), key.choices)
        return f"must be {', '.join(others)} or {last}" + (f"; did you mean {near[0]}?" if near else "")
    if bound := _BOUND.fullmatch(error):
        return f"must be {_BOUNDS[bound[1]]} {float(bound[2]):.16g}"
    is_quoted = isinstance(value, str) and not isinstance(_meant(value, key.type), str)
    return _EXPECTED[key.type] + ": write it without quotes" * is_quoted


# problems


def raise_for(problems: Iterable[str]) -> None:
    """Raises SettingsInvalid if there are any `problems`: each once, those of a file first, by its lines."""
    if ordered := sorted(dict.fromkeys(problems), key=_place_in_file):
        raise SettingsInvalid(tuple(ordered))


def _place_in_file(problem: str) -> tuple[bool, str, int]:
    place = re.match(r"(.+?):(\d+): ", problem)
    return (False, place[1], int(place[2])) if place else (True, "", 0)


def at(place: str, text: str) -> str:
    return f"{place}: {text}" if place else text


@cache
def _tables() -> dict[str, dict[str, Key]]:
    """The keys of each table. One whose keys are free has none."""
    return {name: {} if declared.is_map else keys_of(declared.type) for name, declared in keys_of(Settings).items()}


def _unknown(name: str, shown: Callable[[str], str] = str) -> str:
    """Return what is wrong with a `name` that no setting has, with the most similar ones as `shown` returns them."""
    near = " or ".join(map(shown, similar(name)))
    hint = f"did you mean {near}?" if near else "`crawler config explain` lists all settings"
    return f"there is no such setting; {hint}"


def similar(name: str) -> list[str]:
    """Return up to three settings or tables with a name like `name`: those with the same key in another table first."""
    key = name.rpartition(".")[2]
    key_of = {f"{table}.{own}": own for table, keys in _tables().items() for own in keys}
    if same := [setting for setting, own in key_of.items() if own == key]:
        return same[:3]
    # An underscore may stand for the dot, as in "limits_max_pages".
    spelled = {setting if "." in name else setting.replace(".", "_"): setting for setting in [*_tables(), *key_of]}
    near = [spelled[text] for text in closest(name, spelled)]
    return near or [setting for setting, own in key_of.items() if own in closest(key, key_of.values())][:3]


# the contact

NO_CONTACT = "fetch.contact is not set, so webmasters cannot reach you: give your web page or email address"


def missing_contact(settings: CrawlSettings) -> str:
    """Return that the contact is missing, "" if it is set or not needed, as for a crawl of one's own hosts. Nobody can tell
    whose a host is, so this looks at settings that are only meant for one's own: no delay, hosts that are mapped to
    addresses, or addresses that are not public. Raises UserError if a crawl of the whole web, such as one with the preset
    `broad`, has no contact."""
    fetch = settings.fetch
    is_of_own_hosts = not settings.politeness.delay or fetch.host_map or fetch.allow_private or fetch.allow
    if fetch.contact != HOME_PAGE or is_of_own_hosts:
        return ""
    if settings.scope.kind == "any":
        raise UserError(f'{NO_CONTACT}, which a crawl of the whole web (scope.kind = "any") needs, in [fetch] contact')
    return NO_CONTACT
