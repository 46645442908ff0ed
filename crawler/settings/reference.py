"""Describes every setting. `config explain`, `init` and docs/reference/settings.md are generated from it."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import UserError
from crawler.settings.load import Settings, environment_name, similar
from crawler.settings.tables import GUARDED, Key, Table, keys_of

FIXED = frozenset({"frontier.shards"})
"""Settings that cannot be changed once the crawl exists."""

AT_ONCE, RESTART, CREATION = "at once", "when the replicas restart", "only when the crawl is created"
CONSENT = f"{RESTART}, if their machines accept it"
"""When a change of a setting takes effect. "At once" means within about two seconds, in running replicas."""

PRESETS: Mapping[str, tuple[str, Mapping[str, Any]]] = types.MappingProxyType(
    {
        "polite": ("A crawl of a few sites that belong to others. These are the defaults.", {}),
        "own-site": (
            "A crawl of your own site, as fast as it responds. A Crawl-delay in its robots.txt still applies; to ignore "
            "it, set `politeness.crawl_delay_cap = 0`.",
            {
                "politeness.delay": 0.0,
                "politeness.parallel": 4,
                "politeness.response_share": 0.0,
                "scope.nofollow": False,
                "archive.revisits": 0,
            },
        ),
        "broad": (
            "A crawl of the whole web from seeds: many domains, with a limited number of pages from each. It "
            "needs `fetch.contact`.",
            {
                "scope.kind": "any",
                "limits.domain_cap": 1_000,
                "limits.max_body": 2_097_152,
                "frontier.batch": 16,
                "politeness.tries": 3,
                "archive.links": False,
            },
        ),
        "archive": (
            "A complete and durable copy of the seeds' sites, with what their pages embed.",
            {
                "limits.max_body": 1_073_741_824,
                "fetch.timeout": 900.0,
                "archive.fsync": True,
                "archive.revisits": 65_536,
                "archive.requisites": True,
                "politeness.tries": 8,
            },
        ),
        "continuous": (
            "A copy of the seeds' sites that is kept up to date, with `crawler run`: pages are visited again as often as "
            "it is worth it, and sitemaps every six hours.",
            {
                "recrawl.rules": [
                    "match=sitemap every=6h",
                    "type=text/html adaptive",
                    "type=image/* never",
                    "adaptive min=1d start=7d max=90d",
                ],
            },
        ),
    }
)


class Setting(msgspec.Struct, frozen=True):
    """One setting. `takes_effect`: when a change takes effect; `because`: why not at once, or empty; `guarded`: whether a
    replica takes it from Redis only if its own machine allows it; `is_required`: whether it has no default; `example`: a
    value, or None."""

    name: str
    kind: str
    default: Any
    meaning: str
    takes_effect: str
    because: str
    guarded: bool
    is_required: bool = False
    example: Any = None

    @property
    def table(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def key(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def default_text(self) -> str:
        """The default as TOML, "unset", or "required" if there is none."""
        return "required" if self.is_required else "unset" if self.default is None else as_toml(self.default)

    @property
    def environment(self) -> str:
        """The variable that sets it; for a key of a repeated table with an example, because it is a list of tables."""
        table = self.table.partition(".")[0]
        if table in repeated():
            examples = {one.key: one.example for one in _of_table(table, repeated()[table]) if one.example}
            return f"CRAWLER_{table.upper()}={shlex.quote(json.dumps([examples]))}"
        return environment_name(self.name)


def all_settings() -> list[Setting]:
    return [setting for table, model in models().items() for setting in _of_table(table, model)]


def models() -> dict[str, type[Table]]:
    """All tables by name, also repeated ones and those with free names in them, by the key that has them."""
    nested = {
        f"{table}.{key}": declared.type
        for table, model in repeated().items()
        for key, declared in keys_of(model).items()
        if declared.is_map
    }
    return {**tables(), **repeated(), **nested}


def header(table: str) -> str:
    """The header of a table in a settings file."""
    return f"[{table}]" if table in tables() else f"[[{table}]]" if table in repeated() else f"[{table}.NAME]"


def tables() -> dict[str, type[Table]]:
    return {name: key.type for name, key in keys_of(Settings).items() if key.is_table and not key.is_list}


def repeated() -> dict[str, type[Table]]:
    """The tables that may appear any number of times in a settings file, written `[[table]]`."""
    return {name: key.type for name, key in keys_of(Settings).items() if key.is_list}


def _of_table(table: str, model: type[Table]) -> Iterable[Setting]:
    for key, declared in keys_of(model).items():
        name, because = f"{table}.{key}", model.waits_because(key)
        is_required, when = declared.default is msgspec.NODEFAULT, takes_effect(name, because)
        default: Any = None if is_required else msgspec.to_builtins(declared.default, enc_hook=str)
        example = next((example for examples in declared.meta_values("examples") for example in examples), None)
        guarded = name in GUARDED
        yield Setting(name, _kind(declared), default, declared.meaning, when, because, guarded, is_required, example)


def takes_effect(name: str, because: str) -> str:
    """When a change of the setting `name` takes effect. `because`: why not at once, or empty."""
    return CREATION if name in FIXED else CONSENT if name in GUARDED else RESTART if because else AT_ONCE


_TYPES = {float: "number", int: "whole number", str: "text", bool: "true or false", Path: "path"}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<="}


def _kind(key: Key) -> str:
    bounds = " and ".join(f"{sign} {bound:g}" for name, sign in _BOUNDS.items() for bound in key.meta_values(name))
    if key.is_map:
        return "tables, by name"
    kind = " | ".join(map(json.dumps, key.choices)) or _TYPES[key.type] + "s" * key.is_list
    kind = f"list of {kind}" if key.is_list else kind
    return kind + f", {bounds}" * bool(bounds) + "; or unset" * (key.default is None)


def find(name: str) -> list[Setting]:
    """The settings whose full name, table or key is `name`. Raises UserError if there are none."""
    settings = all_settings()
    if matching := [one for one in settings if name in (one.name, one.table, one.key)]:
        return matching
    near = [one.key for one in settings if name in one.key.split("_")][:3] or similar(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "`crawler config explain` lists them all"
    raise UserError(f"there is no setting {name!r}; {hint}")


def as_toml(value: Any) -> str:
    """`value` as TOML. For every type that a setting can have, the JSON form is valid TOML."""
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{toml_key(key)} = {as_toml(item)}" for key, item in value.items() if item is not None)
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value, ensure_ascii=False)  # TOML has no surrogate escapes


def toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def commented_file(preset: str) -> str:
    """A settings file that explains every setting and sets those of the preset. Raises UserError for an unknown one."""
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}; choose one of {', '.join(PRESETS)}")
    meaning, values = PRESETS[preset]
    lines = [
        *_comment(f"peercrawl settings, preset `{preset}`: {meaning}"),
        "# Settings after a `#` show the default. To change one, remove the `#` and edit the value.",
        "# Check this file with: crawler config check FILE",
    ]
    for table, model in models().items():
        is_shown = table in tables()
        lines += ["", "", *_comment(" ".join((model.__doc__ or "").split())), "# " * (not is_shown) + header(table)]
        for setting in _of_table(table, model):
            value = values.get(setting.name, setting.default) if is_shown else None
            line = f"{setting.key} =" if value is None else f"{setting.key} = {as_toml(value)}"
            mark = "# " * (setting.name not in values)
            lines += ["", *_comment(f"{setting.meaning} ({setting.kind})"), mark + line]
    lines += ["", "", *_comment("Settings of your own handlers. See docs/how-to/extract-data.md."), "# [app]"]
    return "\n".join(lines) + "\n"
