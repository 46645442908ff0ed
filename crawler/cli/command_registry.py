"""The table of commands and their modules, and a command group that imports a module only when it is needed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from crawler.cli.value_names import name_value
from crawler.errors import UserError

GROUPS = {
    "Crawl": {"crawl": "crawl", "seed": "crawl", "run": "crawl", "demo": "crawl"},
    "Look": {"status": "watch", "top": "watch", "domains": "watch", "shards": "watch", "why": "why"},
    "Steer": {
        "pause": "steer",
        "resume": "steer",
        "stop": "steer",
        "block": "steer",
        "unblock": "steer",
        "delay": "steer",
        "dead": "steer",
    },
    "Data": {"export": "export", "extract": "export", "audit": "audit", "finish": "finish", "repair": "repair"},
    "Settings": {"init": "configure", "config": "configure", "doctor": "doctor"},
}
"""Group in the help -> command -> the module of this package that defines a function or group of that name."""

MODULES = {command: module for commands in GROUPS.values() for command, module in commands.items()}
"""Command -> its module, in the order of the help."""


class Group(TyperGroup):
    """A group whose help names the values of options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the names of their values."""
        return _named(super().get_params(ctx))


class Commands(Group):
    """The group of all commands. Names come from the table; a command is loaded from its module when it is needed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: Any = dict.fromkeys(MODULES)
        self.commands = names  # for the suggestion after a misspelled name

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command `cmd_name`, or None if there is none."""
        return _load(cmd_name) if cmd_name in MODULES else None


@cache
def _load(name: str) -> Any:
    """Return the command `name` with its parameters, as a Click command."""
    found = getattr(import_module(f"crawler.cli.{MODULES[name]}"), name)
    (panel,) = (panel for panel, commands in GROUPS.items() if name in commands)
    app = typer.Typer(rich_markup_mode="rich", add_completion=False)
    if isinstance(found, typer.Typer):
        for one in found.registered_commands:
            one.cls = Command
        app.add_typer(found, name=name, cls=Group, rich_help_panel=panel)
        group: Any = typer.main.get_command(app)
        return group.commands[name]
    app.command(name, cls=Command, rich_help_panel=panel)(found)
    return typer.main.get_command(app)


def _named(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        name_value(one)
    return parameters


class Command(TyperCommand):
    """A command that says where an option belongs that it does not take, and whose help names the values of options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the names of their values."""
        return _named(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`. Raises UserError for an option that another command takes."""
        if ctx.resilient_parsing:  # for completion, which may be of an option that is not complete
            return super().parse_args(ctx, args)
        known = {"-h", "--help", *_options(self)}
        for word in args[: args.index("--") if "--" in args else None]:
            option = word.partition("=")[0]
            if option.startswith("--") and option not in known and (hint := _hint(option)):
                raise UserError(f"`crawler {_path(ctx)}` takes no {option}; {hint}")
        typed = list(args)  # Click empties the list
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            said = self._said(error, typed, _path(ctx))
            raise typer.BadParameter(said, error.ctx, error.param, error.param_hint) from error.__cause__

    def _said(self, error: typer.BadParameter, typed: list[str], path: str) -> str:
        """Return the message of `error`. If Pydantic made it, it gets the value that was typed, and the order of the
        arguments if a number was typed in the place of another one, such as in `crawler delay 5 example.org`."""
        from pydantic import ValidationError  # noqa: PLC0415 - slow to import, and only needed for this error

        if not isinstance(error.__cause__, ValidationError):
            return error.message
        first = error.__cause__.errors()[0]
        said = first["msg"].removeprefix("Value error, ").partition(", unable")[0]
        if not said.startswith("Input should be"):
            return said
        said = f"{first['input']!r} must be{said.removeprefix('Input should be')}"
        names = [one.metavar or str(one.name).upper() for one in self.params if one.param_type_name == "argument"]
        is_swapped = len(names) > 1 and not _is_number(str(first["input"])) and any(map(_is_number, typed))
        return f"{said}; the order is: crawler {path} {' '.join(names)}" if is_swapped else said


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _path(context: Any) -> str:
    """Return the name of a command after those of its groups, such as "config check"."""
    names = []
    while context.parent is not None:
        names.append(context.info_name)
        context = context.parent
    return " ".join(reversed(names))


def _options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def _hint(option: str) -> str:
    """Return which commands take `option` and which setting has its name, or "" if there is none."""
    from crawler.settings.reference import all_settings  # noqa: PLC0415 - slow to import, and only needed for this error

    takers = [f"`crawler {name}`" for name in MODULES if option in _options(_load(name))]
    key = option.removeprefix("--").replace("-", "_")
    settings = [
        f"the setting is {one.name}, in a file for --settings or as {one.environment}"
        for one in all_settings()
        if one.key == key
    ]
    return "; ".join([f"use it with {' or '.join(takers)}"] * bool(takers) + settings)
