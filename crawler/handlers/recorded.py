"""Pages in folders, for tests of handlers: `crawler try --record` saves them, and `crawler.testing.page` loads them.

The body is in a file of its own, without its content coding, so that people can read and change it. What the page has
loaded, or its handler has fetched, is in folders of the same kind below.
"""

from __future__ import annotations

import mimetypes
import shutil
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import UserError, reason_of
from crawler.handlers.parsed_page import ParsedPage
from crawler.page import Outcome

NAME = "page.json"


class RecordedPage(msgspec.Struct, frozen=True):
    """What is saved of a page. `status`: 0 without a response, and then `reason` says why; `is_denied`: it was not
    requested; `file`: the name of the file with the body; `headers`: names in lower case. `items`: those that were found,
    by data set. `kind`: why another page has loaded it (`crawler.page.Extra`), empty for a page that was visited."""

    url: str
    status: int
    file: str
    headers: dict[str, str]
    label: str = ""
    payload: dict[str, Any] = {}
    reason: str = ""
    is_denied: bool = False
    items: dict[str, list[dict[str, Any]]] = {}
    kind: str = ""


_LEFT_OUT = ("content-encoding", "content-length", "set-cookie", "transfer-encoding")
"""Headers that do not describe the body in the file, or are nobody else's business."""


def save(page: ParsedPage, folder: Path, kind: str = "") -> None:
    """Save `page` in `folder`, in place of an earlier one, and what it has loaded in numbered folders there. Raises
    UserError, also if something else is there."""
    raw = page.exchange.headers if page.exchange is not None else ()
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
    items: dict[str, list[dict[str, Any]]] = {}
    for item in page.items:
        items.setdefault(item.name, []).append(item.fields)
    recorded = RecordedPage(
        page.url,
        page.status,
        f"body{mimetypes.guess_extension(page.content_type) or ''}",
        {name: value for name, value in headers.items() if name not in _LEFT_OUT},
        page.label,
        page.payload,
        "" if page.status else page.reason,
        page.outcome is Outcome.DENIED,
        items,
        kind,
    )
    if any((folder / name).exists() for name in (NAME, recorded.file)):
        load(folder)
    try:
        for earlier in extra_folders(folder):
            shutil.rmtree(earlier)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / recorded.file).write_bytes(page.body)
        (folder / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(recorded)) + b"\n")
    except OSError as error:
        raise UserError(f"{folder}: {reason_of(error, folder)}") from error
    for number, (extra, loaded) in enumerate(zip(page.extras, page.resources(), strict=True), 1):
        save(loaded, folder / str(number), extra.kind)


def extra_folders(folder: Path) -> list[Path]:
    """The folders with what the page in `folder` has loaded, in the order in which it did."""
    found = [path.parent for path in folder.glob(f"*/{NAME}") if path.parent.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name))


def load(folder: Path) -> tuple[RecordedPage, bytes]:
    """Return the page that is saved in `folder`, and its body. Raises UserError if there is none."""
    try:
        recorded = msgspec.json.decode((folder / NAME).read_bytes(), type=RecordedPage)
        return recorded, (folder / Path(recorded.file).name).read_bytes()
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UserError(f"{folder} has no page that `crawler try --record` has saved: {error}") from error
