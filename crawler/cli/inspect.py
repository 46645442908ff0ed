"""The command `status`."""

from __future__ import annotations

from crawler.cli.options import AsJson
from crawler.cli.output import Where, emit, on_a_crawl
from crawler.observe import overview


@on_a_crawl
def status(
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """Show the state of a crawl: its replicas and counters.

    [bold]Example[/bold]

        crawler status --crawl news --redis redis://queue:6379/0
    """
    found = where.do(overview.read)
    emit(found, json, overview.render(found))
