"""What the help calls the value of an option or argument, such as FOLDER or SECONDS."""

from __future__ import annotations

from typing import Any

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
    """Set what the help shows as the type of `parameter`: nothing for a flag."""
    if parameter.param_type_name == "argument":  # its name is shown already, so it needs no type
        parameter.display_type_rich = _nothing
    if parameter.metavar is not None:
        return
    if getattr(parameter, "is_flag", False) or parameter.name in ("help", "install_completion", "show_completion"):
        parameter.metavar = ""
        return
    choices = getattr(getattr(parameter, "type_descriptor", None), "choices", None)
    name = "|".join(map(str, choices)) if choices else NAMES.get(parameter.name, parameter.name.upper())
    parameter.metavar = name


def _nothing(ctx: Any) -> None:
    return None
