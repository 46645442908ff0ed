"""What the help calls the value of an option or argument, such as FOLDER or SECONDS, and what is said of a wrong number."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import typer

NAMES = {
    **dict.fromkeys(("archive", "file", "settings"), "FILE"),
    **dict.fromkeys(("out", "data_dir", "folder"), "FOLDER"),
    **dict.fromkeys(("url", "urls", "redis"), "URL"),
    **dict.fromkeys(("delay", "every", "grace", "interval", "seconds", "tolerance"), "SECONDS"),
    **dict.fromkeys(
        ("capacity", "concurrency", "domains", "limit", "max_depth", "max_pages", "pages", "processes", "replicas"),
        "NUMBER",
    ),
    **dict.fromkeys(("domain", "of_domain"), "DOMAIN"),
    **dict.fromkeys(("crawl", "preset", "user_agent"), "NAME"),
    "allow": "NETWORK",
    "archives": "PATH",
    "host_map": "PATTERN=ADDRESS:PORT",
    "listen": "ADDRESS:PORT",
    "log_format": "console|json",
    "log_level": "LEVEL",
    "on_page": "MODULE:FUNCTION",
    "scope": "KIND",
    "setting": "SETTING",
    "with_reason": "REASON",
}
"""Parameter -> what its value is. Others are shown by their own name, such as PORT, or by their choices."""


def name_value(parameter: Any) -> None:
    """Set what the help shows as the type of `parameter`, which is nothing for a flag, and how a number is read."""
    kind = parameter.type = copy(parameter.type)  # a type may be that of other parameters too
    if hasattr(kind, "min"):
        kind.convert = partial(_number, kind)
    if parameter.param_type_name == "argument":  # its name is shown already, so it needs no type
        kind.get_metavar = partial(_limits, kind)
        parameter.get_usage_pieces = partial(_usage, parameter)
    if parameter.metavar is not None:
        return
    if getattr(parameter, "is_flag", False) or parameter.name in ("help", "install_completion", "show_completion"):
        parameter.metavar = ""
        return
    choices = getattr(kind, "choices", None)
    name = "|".join(map(str, choices)) if choices else NAMES.get(parameter.name, parameter.name.upper())
    parameter.metavar = name


def _limits(kind: Any, param: Any, ctx: Any) -> str:
    return f"[{kind._describe_range()}]" if hasattr(kind, "min") else ""


def _usage(parameter: Any, ctx: Any) -> list[str]:
    return [parameter.make_metavar(ctx, usage=True) + "..." * (parameter.nargs != 1)]


def _number(kind: Any, value: Any, param: Any, ctx: Any) -> int | float:
    """Return `value` as a number. Raises BadParameter, with the value as it was typed, if it is none or out of range."""
    try:
        read: int | float = kind._number_class(value)
    except ValueError:
        whole = kind._number_class is int
        raise typer.BadParameter(f"{value!r} must be a valid {'integer' if whole else 'number'}") from None
    if kind.min is not None and not read >= kind.min:  # so NaN is refused
        raise typer.BadParameter(f"{value!r} must be greater than or equal to {kind.min}")
    if kind.max is not None and not read <= kind.max:
        raise typer.BadParameter(f"{value!r} must be less than or equal to {kind.max}")
    return read
