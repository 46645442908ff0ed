"""Page hooks and a sink for the tests of hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crawler.page import Exchange, Page
from crawler.sinks import SinkContext


def words(page: Page) -> dict[str, Any]:
    return {"words": len(page.title.split())}


def nothing(page: Page) -> None:
    """Says nothing."""


def no_body(page: Page) -> bool:
    return False


def broken(page: Page) -> None:
    raise RuntimeError("out of order")


def unspeakable(page: Page) -> dict[str, Any]:
    return {"page": object()}


def talkative(page: Page) -> str:
    return "three"


class Listing:
    """A sink that lists URLs in a file."""

    def __init__(self, context: SinkContext) -> None:
        self._path = context.folder / "listing.txt"

    async def start(self) -> None:
        """Nothing to make ready."""

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{page.url}\n" for page in pages)

    async def stop(self) -> None:
        """Nothing to finish."""
