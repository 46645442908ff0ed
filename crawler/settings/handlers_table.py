"""The table `[handlers]`: the functions that turn pages into items, and their limits."""

from typing import Annotated, ClassVar

from msgspec import Meta

from crawler.settings.table import LOADED, PositiveFloat, Table


class HandlersTable(Table, frozen=True, kw_only=True):
    """The handlers of a crawl, which find items on its pages."""

    restart: ClassVar[str] = LOADED

    app: Annotated[
        str,
        "Router with the handlers: `package.module:router`, or the name of an installed one. See "
        "docs/how-to/extract-data.md.",
    ] = ""
    concurrency: Annotated[
        int,
        Meta(ge=1, le=1_000),
        "Maximum number of handlers that run at the same time in a replica. Higher: handlers that wait for other services "
        "do not hold up each other; lower: less memory.",
    ] = 16
    timeout: Annotated[
        PositiveFloat,
        "Seconds after which a handler has failed. Its page is then dead, with the reason `handler_timeout`.",
    ] = 30.0
