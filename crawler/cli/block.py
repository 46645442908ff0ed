"""`crawler block` and `crawler unblock`: domains that a crawl does not fetch from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from crawler.cli.control import ControlChange, DomainArgument, apply_change, domain_named, site_named
from crawler.cli.crawl_access import CrawlAccess, on_a_crawl, titled
from crawler.cli.shared_options import AsJson
from crawler.cli.terminal import emit
from crawler.cli.unknown_names import note, unknown_domains
from crawler.errors import UserError
from crawler.wording import count_of
from frontier.control import Control
from frontier.crawls import Crawl
from frontier.store import RedisStore

SHOWN_LINES = 10
"""Lines of a file that are not domains, of which each is named."""


@on_a_crawl
def block(
    domain: Annotated[
        str | None, typer.Argument(help="Domain, or a host or URL of it.", metavar="DOMAIN", show_default=False)
    ] = None,
    *,
    access: CrawlAccess,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="File with one domain per line, and comments after #.", show_default=False),
    ] = None,
    json: AsJson = False,
) -> None:
    """Stop fetching from a domain, or from all in a file. Their URLs are settled as denied, with the reason `blocked`, when
    they are due.

    Replicas apply this within two seconds. If a line of the file is not a domain, nothing is blocked.

    [bold]Examples[/bold]

        crawler block example.org

        crawler block --file objections.txt
    """
    if (domain is None) == (file is None):
        raise UserError("name a domain, or a file with --file")
    if domain is None:
        _block_all(access, domains_in(file), json)  # type: ignore[arg-type]
        return
    named = site_named(domain)
    apply_change(access, ControlChange(access.crawl, "block", named), json, lambda control, *_: control.block(named))


class Blocked(msgspec.Struct, frozen=True):
    """What `crawler block --file` has done. `domains`: those in the file."""

    crawl: str
    domains: list[str]


def _block_all(access: CrawlAccess, domains: list[str], as_json: bool) -> None:
    async def work(store: RedisStore, opened: Crawl) -> list[str]:
        control = Control(store, opened.keys)
        await control.refresh()
        await control.block(*(domain for domain in domains if not control.rules.is_forgotten(domain)))

        return await unknown_domains(store, opened, domains)

    if domains and (unknown := access.do(work)):
        named = ", ".join(unknown[:SHOWN_LINES])
        more = f" and {count_of(len(unknown) - SHOWN_LINES, 'other')}" if len(unknown) > SHOWN_LINES else ""
        note(f"not known to this crawl, blocked nevertheless: {named}{more}")
    emit(
        Blocked(access.crawl, domains),
        as_json,
        Text(f"{titled(access.crawl)}: block {count_of(len(domains), 'domain')}"),
    )


def domains_in(file: Path) -> list[str]:
    """Return the domains in `file`, each once. Raises UserError, with the numbers of all lines that are not domains."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    found: dict[str, None] = {}
    bad: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.lstrip("\ufeff").partition("#")[0].strip()
        try:
            if text:
                found[site_named(text)] = None
        except UserError as error:
            bad.append(f"line {number}: {error}")
    if bad:
        more = f"; and {count_of(len(bad) - SHOWN_LINES, 'more line')}" if len(bad) > SHOWN_LINES else ""
        raise UserError(f"{file}: nothing was blocked: {'; '.join(bad[:SHOWN_LINES])}{more}")
    return list(found)


@on_a_crawl
def unblock(domain: DomainArgument, *, access: CrawlAccess, json: AsJson = False) -> None:
    """Undo `block`. To requeue the URLs that were denied in the meantime, use `crawler dead requeue --reason blocked`.

    [bold]Example[/bold]

        crawler unblock example.org
    """
    named = domain_named(domain)
    apply_change(
        access, ControlChange(access.crawl, "unblock", named), json, lambda control, *_: control.unblock(named)
    )
