"""Tables of text without borders, whose rows say as much as fits into the terminal."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

LEAST_CHARACTERS = 4
"""What is left of a text in the narrowest terminal."""

END, LONG_ENOUGH = 9, 16
"""Characters at the end of a shortened name, URL or other word, and the least width with room for them. The names of the
replicas on one machine differ only in their last eight."""


class _Shortened:
    """A text on one line, with an ellipsis if there is no room for all of it: in a single word before its end, in any other
    text at its end."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = cell_len(self._text.plain)
        return Measurement(min(LEAST_CHARACTERS, width), width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, width = self._text.copy(), options.max_width
        if cell_len(shown.plain) > width >= LONG_ENOUGH and " " not in shown.plain:
            end = shown[-END:]
            shown.truncate(width - cell_len(end.plain), overflow="ellipsis")
            shown.append_text(end)
        shown.truncate(width, overflow="ellipsis")
        yield shown


class TextTable:
    """A table with these columns. If there is not enough room, its widest texts are shortened first.

    A column whose name begins with ">" has numbers: it is right-aligned and never shortened. Nor is the column `keeps`, for
    a name that has to be complete. Long texts of the columns `wraps` continue in the next line."""

    def __init__(self, *columns: str, keeps: str = "", wraps: str | Collection[str] = ()) -> None:
        self._table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
        whole = {keeps, wraps} if isinstance(wraps, str) else {keeps, *wraps}
        self._is_shortened = [not (name.startswith(">") or name in whole) for name in columns]
        for name in columns:
            is_number = name.startswith(">")
            justify: Literal["left", "right"] = "right" if is_number else "left"
            is_kept = is_number or name == keeps
            self._table.add_column(name.lstrip(">"), justify=justify, no_wrap=is_kept, overflow="fold")

    def add_row(self, *cells: str | Text) -> None:
        texts = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
        self._table.add_row(
            *(_Shortened(text) if is_short else text for text, is_short in zip(texts, self._is_shortened, strict=True))
        )

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._table)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._table
