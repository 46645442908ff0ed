"""The table of commands is complete, and a misspelled one is answered with the right one."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from keyword import iskeyword
from types import ModuleType

import pytest
import typer

from crawler.cli.command_registry import MODULES


def commands_of(module: ModuleType) -> set[str]:
    """Return the commands in `module`: functions with an example in their docstring, and groups. Commands in a group are
    represented by the group."""
    groups = {name: one for name, one in vars(module).items() if isinstance(one, typer.Typer)}
    grouped = {info.callback for group in groups.values() for info in group.registered_commands}
    own = {name for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__}
    alone = {name for name in own if "[bold]Example" in (vars(module)[name].__doc__ or "")}
    return groups.keys() | {name for name in alone if vars(module)[name] not in grouped}


@pytest.mark.parametrize("name", sorted(set(MODULES.values())))
def test_the_table_names_all_commands_of_a_module(name: str) -> None:
    named = {f"{one}_" if iskeyword(one) else one for one, module in MODULES.items() if module == name}
    assert commands_of(import_module(f"crawler.cli.{name}")) == named


def test_the_error_for_a_misspelled_command_suggests_the_right_one() -> None:
    ended = subprocess.run([sys.executable, "-m", "crawler", "statsu"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "status" in ended.stderr
