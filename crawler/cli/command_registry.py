"""The table of commands and their modules, and a command group that imports a module only when it is needed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from keyword import iskeyword
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from crawler.cli.command_errors import check_dashes, in_one_line
from crawler.cli.value_names import name_value

GROUPS = {
    "Crawl": {"crawl": "crawl", "seed": "crawl", "run": "crawl", "demo": "crawl", "try": "trial", "plan": "plan"},
    "Watch": {
        "status": "watch",
        "top": "watch",
        "domains": "watch",
        "shards": "watch",
        "why": "why",
        "types": "field_types",
    },
    "Control": {
        "pause": "control",
        "resume": "control",
        "stop": "control",
        "block": "block",
        "unblock": "block",
        "delay": "control",
        "retry": "control",
        "refresh": "refresh",
        "dead": "control",
    },
    "Data": {
        "export": "export",
        "extract": "export",
        "audit": "audit",
        "finish": "finish",
        "forget": "forget",
        "repair": "repair",
        "reshard": "reshard",
    },
    "Settings": {"init": "configure", "config": "configure", "doctor": "doctor", "identity": "identity"},
}
"""Group in the help -> command -> the module of this package that defines a function or group of that name."""

MODULES = {command: module for commands in GROUPS.values() for command, module in commands.items()}
"""Command -> its module, in the order of the help."""


class Group(TyperGroup):
    """A group whose help names the values of options, and whose errors are one line each."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            **settings | {"suggest_commands": False}
        )  # `command_errors` suggests, and fewer unrelated ones

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the names of their values."""
        return _named(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`. Raises UserError for words that cannot be parsed."""
        if ctx.resilient_parsing:  # for completion, which may be of a word that is not complete
            return super().parse_args(ctx, args)
        with in_one_line(ctx, self, list(args)):  # a copy, because the list gets emptied
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that `args` name. Raises UserError if there is none."""
        if ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        with in_one_line(ctx, self, list(args)):
            return super().resolve_command(ctx, args)


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
        return load_command(cmd_name) if cmd_name in MODULES else None


@cache
def load_command(name: str) -> Any:
    """Return the command `name` with its parameters, as a Click command."""
    found = getattr(import_module(f"crawler.cli.{MODULES[name]}"), f"{name}_" if iskeyword(name) else name)
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


def unwrapped(text: str) -> str:
    """Return `text` with each paragraph in one line. Examples, which are indented, stay as they are."""
    return "\n\n".join(
        part if part.startswith(" ") else part.replace("\n", " ") for part in text.strip("\n").split("\n\n")
    )


def _named(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        name_value(one)
    return parameters


class Command(TyperCommand):
    """A command whose help names the values of options, and whose errors are one line each."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the names of their values."""
        return _named(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with paragraphs that are as wide as the terminal."""
        written, self.help = self.help, unwrapped(self.help or "")
        try:
            super().format_help(ctx, formatter)
        finally:
            self.help = written

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`. Raises UserError for words that cannot be parsed."""
        if ctx.resilient_parsing:  # for completion, which may be of a word that is not complete
            return super().parse_args(ctx, args)
        check_dashes(ctx, self, args)
        with in_one_line(ctx, self, list(args)):  # a copy, because the list gets emptied
            return super().parse_args(ctx, args)
