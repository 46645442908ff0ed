"""The entry point of the command line."""

from __future__ import annotations

from pathlib import Path

import typer

from crawler import __version__
from crawler.cli.command_registry import Commands
from crawler.cli.exits import run_to_exit
from crawler.errors import UserError

app = typer.Typer(
    cls=Commands,
    name="crawler",
    help="peercrawl: a polite, distributed web crawler. Start with [bold]crawler crawl https://example.com[/bold].",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"peercrawl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the command line, and print an error that a user can fix as one line."""
    run_to_exit(_run)


def _run() -> None:
    _check_folder()
    app()


def _check_folder() -> None:
    """Raises UserError if the current folder was deleted, because relative paths lead nowhere then."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UserError("the current folder was deleted; change to another one") from error
