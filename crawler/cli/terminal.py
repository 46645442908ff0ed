"""The output of all commands. Text from strangers, such as a robots.txt rule, cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from crawler.logs import printable, without_secrets


class Terminal(Console):
    """A console without markup, whose text is printable (see `crawler.logs.printable`). Rich itself drops BEL, BS, VT, FF
    and CR."""

    def __init__(self, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, markup=False, highlight=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with all text printable. Rich's own control sequences are not part of the text, except for the line ends
        of a full screen."""
        for segment in super().render(renderable, options):
            is_ours = segment.control or segment.text == "\n\r"
            yield segment if is_ours else segment._replace(text=printable(segment.text))

    def tell(self, message: str, lead: Text | None = None) -> None:
        """Print a message in full after `lead`, without the credentials of URLs that were typed in a wrong place: wrapped
        between words in a terminal, and as one line in a file or pipe."""
        self.print(Text.assemble(lead or "", without_secrets(message)), soft_wrap=not self.is_terminal)


def print_json(value: Any) -> None:
    """Print `value` as indented JSON."""
    typer.echo(printable(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def emit(value: object, as_json: bool, screen: RenderableType, wraps: bool = True) -> None:
    """Print `value` as JSON, or `screen`. Without `wraps`, long lines are not broken, so that URLs can be copied."""
    if as_json:
        print_json(value)
    else:
        Terminal(soft_wrap=not wraps).print(screen)


def print_error(error: Exception, details: Iterable[str]) -> None:
    """Print `details`, one per line, and `error` as one line, on standard error; a terminal wraps them between words."""
    terminal = Terminal(stderr=True)
    for detail in details:
        terminal.tell(detail)
    terminal.tell(" ".join(str(error).split()), lead=Text.assemble(("error:", "red"), " "))
