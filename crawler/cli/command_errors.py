"""Says in one line what is wrong with a command line that cannot be parsed, and what to type instead."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer

from crawler.errors import SIMILAR, UserError, closest

UsageError: Any = typer.BadParameter.__mro__[1]
"""What the parser raises. Typer has it in other modules than Click, from which it took it."""

NEARLY = 0.88
"""The least similarity of an option that is suggested if another command or a setting has the name that was typed."""

NAMED = 3
"""The most commands that are named as those that take an option."""

OTHER_WORDS = {
    "continue": "resume",
    "explain": "why",
    "kill": "stop",
    "requeue": "dead requeue",
    "retry": "dead requeue",
    "start": "run",
    "unpause": "resume",
}
"""Words that people type for a command. The most similar name would be that of another command."""

IS_REDIS = re.compile(r"(rediss?|valkeys?)(\+\w+)?://|unix:/", re.IGNORECASE)
"""Matches a Redis URL."""

FOR_REDIS = "use --redis for a Redis URL"

_EXAMPLE = re.compile(r"^\s*(crawler \S.*)$", re.MULTILINE)
_OTHER_DASH = re.compile(r"[\u2010-\u2015\u2212]{1,2}")
"""Dashes that editors and web pages put in the place of hyphens."""


@contextlib.contextmanager
def in_one_line(context: Any, command: Any, typed: Sequence[str]) -> Iterator[None]:
    """Turn an error of the parser about the words `typed` for `command` into a UserError."""
    try:
        yield
    except UsageError as error:
        name = type(error).__name__
        if name == "NoArgsIsHelpError":
            raise
        if name == "NoSuchOption":
            said = _unknown_option(context, command, _as_typed(error.option_name, typed))
        elif name == "MissingParameter":
            said = _missing(context, command, error)
        elif isinstance(error, typer.BadParameter):
            what = _bad_value(context, command, error, typed)
            said = typer.BadParameter(what, error.ctx, error.param, error.param_hint).format_message().rstrip(".")
        else:
            said = _other(context, command, error)
        raise UserError(said) from error


def path_of(context: Any) -> str:
    """Return the command line of a command up to its name, such as "crawler config check"."""
    names = []
    while context.parent is not None:
        names.append(context.info_name)
        context = context.parent
    return " ".join(["crawler", *reversed(names)])


def options_of(command: Any) -> set[str]:
    """Return all options of `command`, in all their spellings."""
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def check_dashes(context: Any, command: Any, words: Iterable[str]) -> None:
    """Raises UserError for an option that was typed with other dashes than two hyphens. The parser takes `-settings` for
    `--settings ettings`, and other dashes for the beginning of an argument."""
    for word in words:
        name = word.partition("=")[0]
        if re.match("-[^-]", name) and f"-{name}" in options_of(command):
            raise UserError(f"`{path_of(context)}` takes no {name}; did you mean -{name}?")
        if _OTHER_DASH.match(name) and (near := _similar(name, command)):
            raise UserError(
                f"`{path_of(context)}`: {name} begins with a dash that is not a hyphen; did you mean {near}?"
            )


def _as_typed(option: str, typed: Sequence[str]) -> str:
    """Return the word of which the parser has found `option` to be unknown. It takes `-max-pages` for a list of options of
    one letter each, beginning with `-m`."""
    if option.startswith("--"):
        return option
    words = (word.partition("=")[0] for word in typed if re.match("-[^-]", word))
    return next((word for word in words if option[1:] in word), option)


def _unknown_option(context: Any, command: Any, option: str) -> str:
    said = f"`{path_of(context)}` takes no {option}"
    if near := _similar(option, command, NEARLY):
        return f"{said}; did you mean {near}?"
    hint = _elsewhere("--" + _plain(option), context, command)
    near = _similar(option, command)
    if near and not hint:
        return f"{said}; did you mean {near}?"
    return f"{said}; {hint or f'`{path_of(context)} --help` lists its options'}"


def _plain(option: str) -> str:
    return _OTHER_DASH.sub("-", option).strip("-").lower().replace("_", "-")


def _similar(option: str, command: Any, least: float = SIMILAR) -> str:
    """Return the option of `command` that is most like `option`, apart from case, hyphens and underscores, or ""."""
    known = {_plain(name).replace("-", ""): name for name in options_of(command) | {"--help"} if name[:2] == "--"}
    near = closest(_plain(option).replace("-", ""), known, least=least)
    return known[near[0]] if near else ""


def _elsewhere(option: str, context: Any, command: Any) -> str:
    """Return which commands take `option` and which setting has its name, or "" if there is none."""
    from crawler.settings.reference import all_settings  # noqa: PLC0415 - slow to import, and only needed for this error

    group = command if hasattr(command, "list_commands") else context.find_root().command
    names = [name for name in group.list_commands(context) if option in options_of(group.get_command(context, name))]
    if group is command:
        return (
            f"write it after the name of the command, such as `{path_of(context)} {names[0]} {option}`" if names else ""
        )
    takers = [f"`crawler {name}`" for name in names]
    more = [f"{len(takers) - NAMED} other commands"] if len(takers) > NAMED else []
    key = option.removeprefix("--").replace("-", "_")
    settings = [
        f"the setting is {one.name}, in a file for --settings or as {one.environment}"
        for one in all_settings()
        if one.key == key
    ]
    if takers:
        *others, last = [*takers[:NAMED], *more]
        settings.insert(0, f"use {option} with " + " or ".join([", ".join(others)] * bool(others) + [last]))
    return "; ".join(settings)


def _missing(context: Any, command: Any, error: Any) -> str:
    """Return what is missing, with the first example of the command's help."""
    one = error.param
    name = one.opts[0] if one.param_type_name == "option" else one.metavar or str(one.name).upper()
    meaning = re.split(r"[;.]( |$)", one.help or "")[0]
    return f"`{path_of(context)}` needs {name}{meaning and f' ({meaning})'}{_example(command)}"


def _example(command: Any) -> str:
    found = _EXAMPLE.search(command.help or "")
    return f"; for example: {found[1]}" if found else ""


def _bad_value(context: Any, command: Any, error: typer.BadParameter, typed: Sequence[str]) -> str:
    """Return what is wrong with a value, and the order of the arguments if a number was typed in the place of another one,
    such as in `crawler delay 5 example.org`."""
    names = [one.metavar or str(one.name).upper() for one in command.params if one.param_type_name == "argument"]
    is_swapped = len(names) > 1 and error.message.endswith("must be a valid number") and any(map(_is_number, typed))
    return f"{error.message}; the order is: {path_of(context)} {' '.join(names)}" if is_swapped else error.message


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _other(context: Any, command: Any, error: Any) -> str:
    """Return the message about an unknown command, an argument too many, or an option with a missing value."""
    said = error.format_message().rstrip(".")
    if option := getattr(error, "option_name", ""):
        (one,) = (one for one in command.params if option in (*one.opts, *one.secondary_opts))
        return f"`{path_of(context)}`: {said[0].lower()}{said[1:]}: {option} {one.metavar}".rstrip()
    if (unknown := re.fullmatch(r"No such command '([^']*)'", said)) and (meant := OTHER_WORDS.get(unknown[1])):
        return f"{unknown[0]}; use `crawler {meant}`"
    if unknown := re.fullmatch(r"No such command '(.*)'", said):
        if near := closest(unknown[1], command.commands, most=2):
            return f"{said}; did you mean {' or '.join(near)}?"
        is_url = re.search(r"[/.:]", unknown[1])
        if IS_REDIS.match(unknown[1]):
            return f"{said}; {FOR_REDIS}, after the name of a command"
        hint = f"to crawl a site: crawler crawl {unknown[1]}" if is_url else f"`{path_of(context)} --help` lists them"
        return f"{said}; {hint}"
    if not (extra := re.search(r"unexpected extra argument(?:s|\(s\))? \((.*)\)", said)):
        return str(said)
    hint = _example(command)
    if IS_REDIS.match(extra[1]):
        hint = f"; {FOR_REDIS}"
    elif "--crawl" in options_of(command):
        is_url = re.search(r"[/.:]", extra[1])
        hint = (
            "; URLs are for `crawler crawl` and `crawler seed`" if is_url else f"; to name a crawl: --crawl {extra[1]}"
        )
    return f"`{path_of(context)}` takes no argument {extra[1]!r}{hint}"
