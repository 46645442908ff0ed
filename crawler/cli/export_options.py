"""Which options of `crawler export` have an effect together. Others are refused, so that none is ignored."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import typer

from crawler.errors import UserError
from crawler.sinks.wacz import SUFFIX

_FILES = frozenset({".csv", ".gz", ".json", ".jsonl", ".md", ".parquet", ".warc", ".zip", ".zst", SUFFIX})
"""Endings of names that people give to files, not to folders."""

_ALWAYS = frozenset({"archives", "out", "crawl"})
_OF_PAGES = _ALWAYS | {"form", "usage", "processes"}

USED = {
    "pages": _OF_PAGES | {"text", "structured", "links", "simhash"},
    "--format markdown": _OF_PAGES,
    "--format wacz": _ALWAYS | {"form", "text", "processes", "usage"},
    "--items": _ALWAYS | {"form", "items", "table", "key", "follow"},
    "--to": _ALWAYS | {"items", "to", "table", "key", "follow"},
    "--changes": _ALWAYS | {"form", "changes", "since", "items"},
}
"""What is exported -> the options, by parameter, that have an effect on it, or are refused with a reason of their own."""

_NEEDS = {"table": "--to", "key": "--to", "follow": "--items and --to", "since": "--changes"}


def given(context: typer.Context) -> dict[str, str]:
    """Return the parameters that are on the command line, each with the option as it was typed."""
    return {
        one.name: _typed(one, context.params[one.name])
        for one in context.command.params
        if one.name is not None and getattr(context.get_parameter_source(one.name), "name", "") == "COMMANDLINE"
    }


def _typed(parameter: Any, value: object) -> str:
    names = parameter.secondary_opts if value is False else parameter.opts
    return str(names[0])


def check_options(options: dict[str, str], form: str, out: Path) -> None:
    """Raises UserError if one of `options` (parameter -> as it was typed) has no effect with the others, or if `out` is no
    name for what is written in the format `form`."""
    exported = _exported(options, form)
    for name, typed in options.items():
        if name not in USED[exported]:
            if name in _NEEDS and exported != "--changes":
                raise UserError(f"{typed} needs {_NEEDS[name]}")
            raise UserError(f"{typed} has no effect {_with(exported)}: leave it out")
    if exported == "pages" and form == "csv":
        raise UserError("--format csv needs --items or --changes: pages have lists of links")
    if "follow" in options and "crawl" in options:
        raise UserError("--crawl cannot be used with --follow: let the crawl write to a folder of its own (--out)")
    is_file = out.suffix.lower() in _FILES and not out.is_dir()
    if is_file and (exported != "--format wacz" or out.suffix != SUFFIX):
        also = f" or NAME{SUFFIX}" if exported == "--format wacz" else ", and the files in it get their names"
        raise UserError(f"--out {out} has the name of a file: name a folder{also}")


def _exported(options: Collection[str], form: str) -> str:
    if "changes" in options or "since" in options:
        return "--changes"
    if "to" in options or "items" in options:
        return "--to" if "to" in options else "--items"
    return f"--format {form}" if f"--format {form}" in USED else "pages"


def _with(exported: str) -> str:
    return f"with {exported}" if exported.startswith("--") else f"on {exported}"
