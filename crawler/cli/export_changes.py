"""`crawler export --changes`: writes which pages have changed since a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from crawler.cli.terminal import Terminal
from crawler.errors import UserError
from crawler.sinks import changes
from crawler.sinks.time_formats import iso_time
from crawler.wording import count_of

Changes = Annotated[
    bool, typer.Option("--changes", help="Write which pages are new, changed, gone or back; needs --since.")
]
Since = Annotated[
    str | None,
    typer.Option(help="Changes from this time on: 2026-03-01, 2026-03-01T12:00:00Z, or 24h ago.", show_default=False),
]


def export_changes(paths: Sequence[Path], since: str | None, to: tuple[Path, str], has_items: bool) -> None:
    """Write the changes `since` a time to a file in a folder, in a format (`to`). Raises UserError."""
    out, form = to
    if since is None:
        raise UserError("--changes and --since TIME need each other, such as --changes --since 24h")
    if has_items:
        raise UserError("--items and --changes are two exports: use one at a time")
    match form:
        case "jsonl" | "csv" | "parquet":
            begin = changes.since_time(since, datetime.now(UTC))
            done = changes.export_changes(list(paths), begin, out, form)
        case _:
            raise UserError("changes have the formats jsonl, csv and parquet")
    Terminal().tell(f"{count_of(done.changes, 'change')} since {iso_time(begin)} in {done.file}")
