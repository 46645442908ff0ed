"""`crawler types`: the types of the fields of data sets, which a crawl has kept."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from crawler.cli.crawl_access import CrawlAccess, on_a_crawl, titled
from crawler.cli.shared_options import AsJson
from crawler.cli.tables import TextTable
from crawler.cli.terminal import emit
from crawler.errors import UserError
from crawler.wording import count_of
from frontier.crawls import Crawl, FieldTypes
from frontier.store import RedisStore


class FieldLine(msgspec.Struct, frozen=True):
    """A field and its type."""

    data_set: str
    field: str
    type: str


class Forgotten(msgspec.Struct, frozen=True):
    """What `crawler types --forget` has done. `forgotten`: the number of fields."""

    crawl: str
    data_set: str
    forgotten: int


@on_a_crawl
def types(
    data_set: Annotated[str | None, typer.Argument(help="Only this data set.", show_default=False)] = None,
    *,
    access: CrawlAccess,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget the types of this data set, so that the next items decide.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show the types of the fields of data sets, with which new items are compared.

    Types that `extract` tables declare are in the settings, count more than these, and are not shown. With `--forget`,
    replicas use other types within ten seconds. Items that are written keep their types, so an export leaves out those
    that do not fit.

    [bold]Examples[/bold]

        crawler types products

        crawler types products --forget
    """
    if not forget:
        found = [line for line in access.do(_lines) if data_set in (None, line.data_set)]
        table = TextTable("data set", "field", "type")
        for line in found:
            table.add_row(line.data_set, line.field, line.type)
        emit(found, json, table if found else Text(_nothing(data_set)))
        return
    if data_set is None:
        raise UserError("name the data set: crawler types DATA_SET --forget")
    name = data_set

    async def work(store: RedisStore, opened: Crawl) -> int:
        return await FieldTypes(store, opened.keys).forget(name)

    number = access.do(work)
    said = f"{count_of(number, 'type')} forgotten" if number else f"no types of a data set {name} are kept"
    emit(Forgotten(access.crawl, name, number), json, Text(f"{titled(access.crawl)}: {said}"))


def _nothing(data_set: str | None) -> str:
    of = "" if data_set is None else f" of a data set {data_set}"
    return f"no types{of} are kept: no item was found yet"


async def _lines(store: RedisStore, opened: Crawl) -> list[FieldLine]:
    kept = await FieldTypes(store, opened.keys).read()
    return [FieldLine(*name, kind) for name, kind in sorted(kept.items())]
