"""The base class of all tables of settings, the types of numbers that they share, and how a key was declared."""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

NotNegative = Annotated[float, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(gt=0)]

LOADED = "code is loaded when a replica starts"
"""Why a change of a setting that names code needs a restart."""


class Table(msgspec.Struct, frozen=True):
    """A table of the TOML file. `restart`: why a change of its settings needs a restart of the replicas; empty if it does
    not.

    A key is declared as `name: Annotated[TYPE, Meta(...), "its meaning"] = DEFAULT`. Two entries of `Meta.extra` have a
    meaning: `check` is called with the value, and raises UserError or BadInput if it cannot be used; `restart` replaces
    that of the table. Only `crawler.settings.conversion` checks values. Modules with tables do not postpone annotations,
    which would be compiled again in each process."""

    restart: ClassVar[str] = ""

    @classmethod
    def waits_because(cls, key: str) -> str:
        """Why a change of the setting `key` needs a restart of the replicas, or "" if running replicas apply it."""
        return str(keys_of(cls)[key].extra.get("restart", cls.restart))


class Key(msgspec.Struct, frozen=True):
    """How a key was declared. A `default` of None also means that it may be unset. `type`: that of its value, or of an
    item if it `is_list`, or of each value if it `is_map`, whose keys are free: a Table, bool, int, float, str, Path or
    a Literal; `about`: all that is in an Annotated."""

    default: Any
    is_list: bool
    type: Any
    about: tuple[Any, ...]
    is_map: bool = False

    @property
    def is_table(self) -> bool:
        return isinstance(self.type, type) and issubclass(self.type, Table)

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts of a Literal."""
        return get_args(self.type)

    @property
    def meaning(self) -> str:
        return next(one for one in self.about if isinstance(one, str))

    @property
    def extra(self) -> dict[str, Any]:
        return {name: value for one in self.about for name, value in (getattr(one, "extra", None) or {}).items()}

    def said(self, name: str) -> list[Any]:
        """What the declaration gives Meta as `name`, such as "ge"."""
        return [value for one in self.about if (value := getattr(one, name, None)) is not None]


@functools.cache
def keys_of(table: type[Table]) -> dict[str, Key]:
    """The keys of `table`. A field whose name begins with an underscore is not a key."""
    fields = (one for one in msgspec.structs.fields(table) if not one.name.startswith("_"))
    return {one.name: _key(one.type, one.default) for one in fields}


def _key(kind: Any, default: Any) -> Key:
    about: list[Any] = []
    is_list = is_map = False
    while (origin := get_origin(kind)) not in (None, Literal):  # Annotated, tuple, dict, or None beside another type
        about += getattr(kind, "__metadata__", ())
        kind = get_args(kind)[1 if origin is dict else 0]
        is_list, is_map = is_list or origin is tuple, is_map or origin is dict
    return Key(default, is_list, kind, tuple(about), is_map)
