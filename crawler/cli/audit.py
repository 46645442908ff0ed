"""`crawler audit`: checks from its archive whether a crawl was polite."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crawler.app.crawl_settings import kept_settings
from crawler.audit.check import SHOWN, Report, Rules
from crawler.audit.check import audit as judge
from crawler.audit.records import read_archive
from crawler.cli.options import FILE, FOLDER, USES, Number, as_json, command, of_crawl
from crawler.cli.output_folders import not_named, one_crawl
from crawler.cli.text import Terminal, emit, note
from crawler.errors import UserError
from crawler.settings.load import load
from crawler.settings.policies import politeness_policy, rate_limit_policy
from crawler.sinks.lines import crawls_in
from crawler.wording import count_of

_CLOSEST = 10


@command()
@click.argument(
    "folders", type=FOLDER, nargs=-1, required=True, help="Folders with WARC files and JSON lines, of one crawl."
)
@click.option("--delay", type=Number(0), metavar="SECONDS", help="Seconds between requests to a domain.")
@click.option("--user-agent", metavar="NAME", help="Product token; default: the one in the files.")
@click.option(
    "--purpose",
    type=USES,
    multiple=True,
    help="Use that the pages were fetched for, once for each; default: politeness.purpose.",
)
@click.option(
    "--tolerance", type=Number(0), default=0.01, metavar="SECONDS", help="Seconds by which clocks may differ."
)
@of_crawl
@click.option("--settings", "-s", type=FILE, help="Settings file (TOML).")
@as_json
def audit(
    folders: tuple[Path, ...],
    delay: float | None,
    user_agent: str | None,
    purpose: tuple[str, ...],
    tolerance: float,
    crawl: str | None,
    settings: Path | None,
    as_json: bool,
) -> None:
    """Check an archive against the settings of its crawl: was the crawl polite? Exit code 1 if a rule was broken, and 2 if
    a file could not be read to its end, or has pages without a JSON line.

    Rules: the delay of each domain, the rate of each address, robots.txt as archived, Retry-After, and nothing of domains
    that were forgotten (`crawler forget`); with a purpose, also what owners say about the use of their pages. Name all
    folders of a crawl: a domain that moved from one replica to another is then judged across them.

    The settings are those that the replicas of the crawl have written down in one of the folders (`CRAWL.settings.toml`),
    unless a settings file or an option says otherwise. Delays that `crawler delay` has set, and those before a change of
    the settings, are not known.

    Examples:

        crawler audit crawl-out
        crawler audit /mnt/node-1/crawl-out /mnt/node-2/crawl-out --settings crawler.toml
    """
    options: dict[str, dict[str, Any]] = {} if delay is None else {"politeness": {"delay": delay}}
    options |= {"fetch": {"user_agent": user_agent}} if user_agent else {}
    only = one_crawl(folders, crawl)
    if not settings:
        crawls = set[str]().union(*map(crawls_in, folders))
        settings = kept_settings(folders, only or next(iter(crawls), "*"))
    given = load(settings, options)
    applied = given.crawl
    uses = frozenset(purpose or map(str, applied.politeness.purpose))
    archive = read_archive(*folders, usage=bool(uses), crawl=only)
    token = user_agent or next((agent.partition("/")[0] for agent in sorted(archive.user_agents)), "")
    throttle = politeness_policy(applied).throttle
    rate_limit, agent = rate_limit_policy(applied), token or applied.fetch.user_agent
    rules = Rules(
        throttle.delay,
        rate_limit,
        agent,
        tolerance,
        throttle.parallel,
        uses,
        throttle.backoff.max_s,
        applied.render.parallel,
        applied.render.robots == "all",
    )
    report = judge(archive, rules)
    if missing := not_named(given.replica, folders, only):
        note(missing)
    source = f", as {settings} has it" if settings and delay is None else ""
    emit(report, as_json, _render(report, f"{throttle.delay.min_delay_s:g} s{source}", bool(settings)))
    for path, reason in sorted([*report.with_unread.items(), *report.broken.items()]):
        Terminal(stderr=True).tell(f"{path}: {reason}")
    if not report.ok:
        sys.exit(1)
    if report.broken:
        broken = count_of(len(report.broken), "WARC file")
        raise UserError(f"{broken} could not be read to the end, or lack JSON lines, so not all was checked")
    if report.unread and not report.requests:
        raise UserError(f"nothing was checked: {count_of(report.unread, 'record')} could not be read")


def _render(found: Report, delay: str, is_own: bool = True) -> RenderableType:
    """`is_own`: the settings are those of the crawl, or were given."""
    table = Table.grid(padding=(0, 3))
    for rule, count in found.counts.items():
        table.add_row(rule.replace("_", " "), Text(f"{count:,}", style="bold red" if count else "green"))
    examples = [Text(f"{breach.rule}: {breach.url}: {breach.detail}") for breach in found.breaches[:SHOWN]]
    seen = (
        f"{count_of(found.requests, 'request')} ({found.robots:,} for robots.txt) to "
        f"{count_of(found.domains, 'domain')} at {count_of(found.addresses, 'address')}, in {count_of(found.files, 'file')}"
    )
    if found.unasked:
        seen += f"; the robots.txt of {count_of(found.unasked, 'origin')} is missing or was unreachable; "
        seen += "requests there were not checked against it"
    if found.unread:
        seen += f"; {count_of(found.unread, 'record')} could not be read"
    seen += f". Checked against a delay of {delay}; change it with --delay or --settings."
    if not is_own:
        seen += " No CRAWL.settings.toml is in these folders: for the settings of the crawl, `crawler "
        seen += "config show > FILE`, then --settings FILE."
    seen += " Delays of `crawler delay`, and those before a change of the settings, are not known here."
    closest = sorted(found.closest.items(), key=lambda item: item[1])[:_CLOSEST]
    shortest = Text("shortest gaps: " + ", ".join(f"{domain} {gap:.3f} s" for domain, gap in closest))
    verdict = "polite" if found.ok else "NOT polite"
    return Group(Text(verdict, style="bold"), Text(seen), table, *examples, shortest)
