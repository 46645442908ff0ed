"""The output and messages of all commands. Text from strangers, such as a robots.txt rule, cannot control the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import click
import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from crawler.errors import closest
from crawler.logs import printable, without_secrets
from crawler.scope.seeds import BadSeedLine
from crawler.wording import FOR_REDIS, IS_REDIS


class Terminal(Console):
    """A console without markup, whose text is printable (`crawler.logs.printable`). Rich drops BEL, BS, VT, FF and CR."""

    def __init__(self, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, markup=False, highlight=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with all text printable, except rich's own control sequences and the line ends of a full screen."""
        for segment in super().render(renderable, options):
            is_ours = segment.control or segment.text == "\n\r"
            yield segment if is_ours else segment._replace(text=printable(segment.text))

    def tell(self, message: str, lead: Text | None = None) -> None:
        """Print a message without credentials: wrapped in a terminal, and as one line in a file or pipe."""
        self.print(Text.assemble(lead or "", without_secrets(message)), soft_wrap=not self.is_terminal)


def print_json(value: Any) -> None:
    click.echo(printable(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def emit(value: object, as_json: bool, screen: RenderableType, wraps: bool = True) -> None:
    """Print `value` as JSON, or `screen`. Without `wraps`, long lines are not broken, so that URLs can be copied."""
    if as_json:
        print_json(value)
    else:
        Terminal(soft_wrap=not wraps).print(screen)


def note(text: str) -> None:
    Terminal(stderr=True).tell(f"note: {text}")


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """Return a question in parentheses for the closest of `known`, or "" if none is close to what was typed."""
    near = closest(typed, (name for name in known if name != typed))
    return f" (did you mean {near[0]}?)" if near else ""


_REASONS = {
    "scheme": "only http and https can be crawled; write {url}",
    "host": "the host is missing or not valid; write {url}",
    "length": "a URL can have 2,048 characters; shorten it or leave it out",
    "syntax": "this is not a URL; write {url}",
    "priority": "the priority is not a number, or beyond 1e11; write it as priority=5",
    "encoding": "the file changes its encoding here; save it as UTF-8",
    "option": "only priority=NUMBER can follow a URL, after a space; give each URL {place}",
    "comma": "no host has a comma; give each URL {place}, and nothing else",
    "port": "the port is not a number from 1 to 65535; write it as https://HOST:PORT/PATH",
    "email": "this is an e-mail address, not a URL; write {url}",
    "colon": "the colon is missing; write {url}",
}
"""Reason of a `BadSeedLine` -> what is wrong, and what to do."""

_WITH_SCHEME = re.compile(r"([a-z]+)[;:]?//?(?=[^/\s])(\S+)", re.IGNORECASE)


def about_url(error: BadSeedLine, place: str = "as an argument of its own") -> str:
    """Return what is wrong with a URL that was typed, and what to do about it. `place`: where seeds are given."""
    if IS_REDIS.match(error.text):
        return FOR_REDIS
    url = "it as https://HOST/PATH"
    if error.reason in ("scheme", "colon") and (parts := _WITH_SCHEME.fullmatch(error.text)):
        scheme = "http" if parts[1].lower() in ("http", "htp", "htt", "ttp", "hhtp", "htttp") else "https"
        url = f"it as {scheme}://{parts[2]}"
    return _REASONS[error.reason].format(url=url, place=place)


def print_error(error: Exception, details: Iterable[str]) -> None:
    """Print `details`, one per line, and `error` as one line, on standard error; a terminal wraps them between words."""
    terminal = Terminal(stderr=True)
    for detail in details:
        terminal.tell(detail)
    terminal.tell(" ".join(str(error).split()), lead=Text.assemble(("error:", "red"), " "))
