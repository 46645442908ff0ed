"""The entry point of the command line: the table of commands, their help, exit codes, and errors in one line."""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click
from click.exceptions import Exit, NoArgsIsHelpError
from click.shell_completion import get_completion_class, shell_complete

from crawler import __version__
from crawler.errors import TRY_LATER, UPLOADS_LEFT, SinkFull, UserError, closest
from crawler.wording import FOR_REDIS, IS_REDIS, redis_remedy
from frontier.errors import FrontierError, RedisAway, Resharding, WrongType

GROUPS = {
    "Crawl": {"crawl": "crawl", "seed": "seeds", "run": "run", "demo": "demo", "try": "crawl", "plan": "plan"},
    "Watch": dict.fromkeys(("status", "top", "domains", "shards", "why", "types", "list"), "watch")
    | {"why": "why", "list": "crawls"},
    "Control": dict.fromkeys(
        ("pause", "resume", "stop", "block", "unblock", "delay", "retry", "refresh", "dead"), "control"
    ),
    "Data": {
        "export": "export",
        "extract": "export",
        "audit": "audit",
        "finish": "repair",
        "forget": "forget",
        "remove": "crawls",
        "repair": "repair",
        "reshard": "reshard",
    },
    "Settings": {"init": "settings", "config": "settings", "doctor": "doctor", "identity": "identity"},
}
"""Group in the help -> command -> the module of this package that defines it. A module is imported when one of its commands
is called, because importing all of them takes half a second."""

MODULES = {command: module for commands in GROUPS.values() for command, module in commands.items()}
"""Command -> its module, in the order of the help."""

INTERRUPTED = 130

EXIT_CODES = {
    0: "done",
    1: "something failed: replicas crashed again and again, `crawler crawl` ended without a page, an audit found a breach, "
    "or the doctor found a problem",
    2: "the command cannot be run as given; the message says what to change",
    UPLOADS_LEFT: "done, but finished files could not be uploaded; the next start uploads them, or `crawler finish`",
    TRY_LATER: "Redis or the output folder is unavailable, or the crawl is being resharded; the same command may succeed "
    "later",
    INTERRUPTED: "interrupted. Commands that crawl stop cleanly at the first Ctrl-C, with 0 if a replica runs; the second "
    "one does not wait for requests in flight",
    143: "ended by SIGTERM before it was done; 129 by SIGHUP",
}

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a write that say nothing about the crawler."""

COMPLETE = "_CRAWLER_COMPLETE"
"""The environment variable with which the shell asks what can follow."""

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

_EXAMPLE = re.compile(r"^\s*(crawler \S.*)$", re.MULTILINE)


# commands


class Command(click.Command):
    """A command that shows its examples, the indented lines, as they are written, and whose errors are UserErrors."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        shared = {
            "show_default": True,
            "max_content_width": 120,
            "allow_extra_args": True,
            "help_option_names": ["-h", "--help"],
        }
        super().__init__(*args, **attributes | {"context_settings": shared})
        self.help = re.sub(r"\n\n(?= )", "\n\n\b\n", inspect.cleandoc(self.help or ""))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args`. Raises UserError for words that cannot be parsed."""
        if ctx.resilient_parsing:  # for completion, which may be of a word that is not complete
            return super().parse_args(ctx, args)
        try:
            rest = super().parse_args(ctx, args)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise UserError(in_one_line(ctx, error)) from error
        if ctx.args and not isinstance(self, Group):
            raise UserError(_unexpected(ctx, " ".join(ctx.args)))
        return rest


class Group(Command, click.Group):
    command_class = Command

    @property
    def headings(self) -> dict[str, list[str]]:
        """Heading in the help -> the names of the commands below it."""
        return {"Commands": list(self.commands)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in self.headings.values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in self.headings.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(name, (one.help or "").partition("\n\n")[0]) for name, one in found if one])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command that `args` name. Raises UserError if there is none."""
        if not ctx.resilient_parsing and args[0] not in self.list_commands(ctx):
            raise UserError(_unknown_command(ctx, args[0]))
        return super().resolve_command(ctx, args)


class Commands(Group):
    """The group of all commands, which are imported when they are needed."""

    @property
    def headings(self) -> dict[str, list[str]]:
        return {heading: list(commands) for heading, commands in GROUPS.items()}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        module = import_module(f"crawler.cli.{MODULES[cmd_name]}")
        found: click.Command = getattr(module, f"{cmd_name}_" if cmd_name in ("try", "list") else cmd_name)
        return found

    def main(self, args: Sequence[str] | None = None, **_: Any) -> NoReturn:  # type: ignore[override]
        """Run a command line, or complete it for the shell, and end the process. Raises UserError for a mistake in it."""
        if instruction := os.environ.get(COMPLETE):
            sys.exit(shell_complete(self, {}, "crawler", COMPLETE, instruction))
        try:
            with self.make_context("crawler", list(sys.argv[1:] if args is None else args)) as context:
                self.invoke(context)
        except NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except Exit as end:
            sys.exit(end.exit_code)
        sys.exit()


# completion by the shell


def _show_completion(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    shell = Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell)
    if kind is None:
        raise UserError(f"SHELL is {shell!r}: completion is for bash, zsh and fish")
    click.echo(kind(context.command, {}, "crawler", COMPLETE).source())
    context.exit()


@click.group(cls=Commands)
@click.version_option(__version__, message="peercrawl %(version)s", help="Print the version.")
@click.option(
    "--show-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_completion,
    help="Show completion for the current shell, for the file that it reads when it starts.",
)
def app() -> None:
    """peercrawl: a polite, distributed web crawler. Start with `crawler crawl https://example.com`."""


# the end of a command


def main() -> None:
    """Run the command line, and print an error that a user can fix as one line."""
    run_to_exit(app)


def run_to_exit(command: Callable[[], object]) -> None:
    """Call `command`. A user's mistake is one line on standard error, after the settings that it is about."""
    try:
        command()
    except (UserError, FrontierError, SinkFull) as error:
        _print(error, error.details if isinstance(error, UserError) else (), _advice(error))
        passes = isinstance(error, (RedisAway, Resharding, SinkFull)) and not isinstance(error, WrongType)
        sys.exit(TRY_LATER if passes else 2)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        sys.exit(1)
    except OSError as error:
        if error.errno not in FULL:
            raise
        _cannot_write(error)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            _cannot_write(error)


def _cannot_write(error: OSError) -> NoReturn:
    """End the command because a disk or the device of its output is full."""
    # What is buffered would be tried again, and reported with a traceback, when the interpreter exits.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _print(UserError(f"cannot write the output: {error.strerror}"))
    sys.exit(1)


def _advice(error: Exception) -> str:
    """What to check if the server that the user named does not answer. The embedded one has a socket and no address."""
    if not isinstance(error, RedisAway) or isinstance(error, WrongType):
        return ""
    if remedy := redis_remedy(str(error)):
        return f"; {remedy}"
    return "; check that it is running, and the host and port in the Redis URL" * ("Redis at redis" in str(error))


def _print(error: Exception, details: Iterable[str] = (), advice: str = "") -> None:
    from crawler.cli.text import print_error  # noqa: PLC0415 - few commands fail, and replicas need no terminal

    with contextlib.suppress(OSError):  # the exit code says it all the same
        print_error(UserError(f"{error}{advice}"), details)


# errors of a command line


def in_one_line(context: click.Context, error: click.UsageError) -> str:
    """Return what is wrong with a command line that cannot be parsed, and what to type instead."""
    path, said = context.command_path, error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        typed = "--" + error.option_name.strip("-").lower().replace("_", "-")
        near = closest(typed, (name for name in options_of(context.command) | {"--help"} if name[:2] == "--"))
        hint = f"did you mean {near[0]}?" if near else _setting(typed) or f"`{path} --help` lists its options"
        return f"`{path}` takes no {error.option_name}; {hint}"
    if isinstance(error, click.BadOptionUsage):
        (option,) = (one for one in context.command.params if error.option_name in (*one.opts, *one.secondary_opts))
        return f"`{path}`: {said[0].lower()}{said[1:]}: {error.option_name} {option.make_metavar(context)}"
    if not isinstance(error, click.BadParameter) or error.param is None:
        return said
    parameter = error.param
    if isinstance(error, click.MissingParameter):
        meaning = re.split(r"[;.]( |$)", parameter.help or "")[0]
        return f"`{path}` needs {_name(parameter)} ({meaning}){_example(context)}"
    return f"Invalid value for '{_name(parameter)}': {error.message.rstrip('.')}"


def _name(parameter: click.Parameter) -> str:
    return (parameter.name or "").upper() if isinstance(parameter, click.Argument) else parameter.opts[0]


def _example(context: click.Context) -> str:
    found = _EXAMPLE.search(context.command.help or "")
    return f"; for example: {found[1]}" if found else ""


def options_of(command: click.Command) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts) if name[0] == "-"}


def _setting(option: str) -> str:
    """Return which setting has the name of `option`, or "" if there is none."""
    from crawler.settings.reference import all_settings  # noqa: PLC0415 - slow to import, and only needed for this error

    key = option.removeprefix("--").replace("-", "_")
    named = (one for one in all_settings() if one.key == key)
    return "; ".join(f"the setting is {one.name}, in a file for --settings or as {one.environment}" for one in named)


def _unknown_command(context: click.Context, name: str) -> str:
    said = f"No such command {name!r}"
    assert isinstance(context.command, click.Group)
    if meant := OTHER_WORDS.get(name):
        return f"{said}; use `crawler {meant}`"
    if near := closest(name, context.command.list_commands(context), most=2):
        return f"{said}; did you mean {' or '.join(near)}?"
    if IS_REDIS.match(name):
        return f"{said}; {FOR_REDIS}, after the name of a command"
    is_url = re.search(r"[/.:]", name)
    return f"{said}; " + (
        f"to crawl a site: crawler crawl {name}" if is_url else f"`{context.command_path} --help` lists them"
    )


def _unexpected(context: click.Context, words: str) -> str:
    hint = _example(context)
    if IS_REDIS.match(words):
        hint = f"; {FOR_REDIS}"
    elif "--crawl" in options_of(context.command):
        is_url = re.search(r"[/.:]", words)
        hint = "; URLs are for `crawler crawl` and `crawler seed`" if is_url else f"; to name a crawl: --crawl {words}"
    return f"`{context.command_path}` takes no argument {words!r}{hint}"
