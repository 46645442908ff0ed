"""`crawler audit`: checks from its archive whether a crawl was polite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crawler.app.kept_settings import kept_settings
from crawler.audit.check import SHOWN, Report, Rules
from crawler.audit.check import audit as judge
from crawler.audit.records import read_archive
from crawler.cli.crawl_access import CrawlAccess
from crawler.cli.output_folders import crawl_of, not_named, one_crawl
from crawler.cli.shared_options import AsJson, OfCrawl, SettingsFile, Use, flags
from crawler.cli.terminal import emit
from crawler.cli.unknown_names import note
from crawler.settings.load import CrawlSettings, Settings, load
from crawler.settings.policies import politeness_policy, rate_limit_policy
from crawler.wording import count_of
from frontier.crawls import Crawl
from frontier.store import RedisStore

_CLOSEST = 10


def audit(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders with WARC files and JSON lines, of one crawl.", metavar="FOLDER")
    ],
    delay: Annotated[
        float | None, typer.Option(min=0, help="Seconds between requests to a domain.", show_default=False)
    ] = None,
    user_agent: Annotated[
        str | None, typer.Option(help="Product token; default: the one in the files.", show_default=False)
    ] = None,
    purpose: Annotated[
        list[Use] | None,
        typer.Option(
            help="Use that the pages were fetched for, once for each; default: politeness.purpose.", show_default=False
        ),
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Seconds by which clocks may differ.")] = 0.01,
    crawl: OfCrawl = None,
    settings: SettingsFile = None,
    json: AsJson = False,
) -> None:
    """Check an archive against the settings of its crawl: was the crawl polite? Exit code 1 if a rule was broken.

    Rules: the delay of each domain, the rate of each address, robots.txt as archived, Retry-After, the signatures of a
    crawl that signs its requests, and nothing of domains that were forgotten (`crawler forget`); with a purpose, also what
    owners say about the use of their pages. Name all folders of a crawl: a domain that moved from one replica to another is
    then judged across them.

    If the crawl is in the data folder here, its settings apply, unless a settings file or an option says otherwise; if not,
    those that its replicas have written down in one of the folders (`CRAWL.settings.toml`). Delays that
    `crawler delay` has set, and those before a change of the settings, are not known.

    [bold]Examples[/bold]

        crawler audit crawl-out

        crawler audit /mnt/node-1/crawl-out /mnt/node-2/crawl-out --settings crawler.toml
    """
    options = flags(politeness={"delay": delay}, fetch={"user_agent": user_agent})
    given, only = load(settings, options), one_crawl(folders, crawl)
    crawl_here = "" if settings else crawl_of(given.replica, folders, only)
    if not (settings or crawl_here) and (settings := kept_settings(folders, only or "*")):
        given = load(settings, options)
    opened = _opened(crawl_here, given) if crawl_here else None
    loaded = given.onto(CrawlSettings.from_json(opened.settings)) if opened else given.crawl
    uses = frozenset(map(str, purpose or loaded.politeness.purpose))
    archive = read_archive(*folders, usage=bool(uses), crawl=only)
    token = user_agent or next((agent.partition("/")[0] for agent in sorted(archive.user_agents)), "")
    throttle = politeness_policy(loaded).throttle
    rate_limit, agent = rate_limit_policy(loaded), token or loaded.fetch.user_agent
    rules = Rules(throttle.delay, rate_limit, agent, tolerance, throttle.parallel, uses, throttle.backoff.max_s)
    found = judge(archive, rules)
    if missing := not_named(given.replica, folders, only):
        note(missing)
    origin = f"crawl {crawl_here!r} here" if crawl_here else settings
    source = f", as {origin} has it" if origin and delay is None else ""
    revision = opened.revision if opened else 1
    emit(found, json, _render(found, f"{throttle.delay.min_delay_s:g} s{source}", bool(origin), revision))
    if not found.ok:
        raise typer.Exit(1)


def _opened(crawl: str, given: Settings) -> Crawl:
    async def work(store: RedisStore, opened: Crawl) -> Crawl:
        return opened

    return CrawlAccess(crawl, None, given.replica.data_dir, None).do(work)


def _render(found: Report, delay: str, is_own: bool = True, revision: int = 1) -> RenderableType:
    """`is_own`: the settings are those of the crawl, or were given. `revision`: of the crawl's settings."""
    table = Table.grid(padding=(0, 3))
    for rule, count in found.counts.items():
        table.add_row(rule.replace("_", " "), Text(f"{count:,}", style="bold red" if count else "green"))
    examples = [
        Text(f"{breach.rule}: {breach.url}: {breach.detail}; required: {breach.needed:.3f}")
        for breach in found.breaches[:SHOWN]
    ]
    seen = (
        f"{count_of(found.requests, 'request')} ({found.robots:,} for robots.txt) to "
        f"{count_of(found.domains, 'domain')} at {count_of(found.addresses, 'address')}, in {count_of(found.files, 'file')}"
    )
    if found.unasked:
        seen += f"; the robots.txt of {count_of(found.unasked, 'origin')} is missing or was unreachable; "
        seen += "requests there were not checked against it"
    if found.signed:
        seen += f"; {count_of(found.signed, 'signature')} checked"
        if (others := found.requests - found.signed) > 0:
            seen += f", {count_of(others, 'request')} without one (not signed, or not in a WARC file)"
    if found.unread:
        seen += f"; {count_of(found.unread, 'record')} could not be read"
    seen += f". Checked against a delay of {delay}; change it with --delay or --settings."
    if not is_own:
        seen += " For the settings of a crawl on a Redis server: `crawler config show > FILE`, then --settings FILE."
    seen += " Delays of `crawler delay`, and those before a change of the settings, are not known here."
    closest = sorted(found.closest.items(), key=lambda item: item[1])[:_CLOSEST]
    shortest = Text("shortest gaps: " + ", ".join(f"{domain} {gap:.3f} s" for domain, gap in closest))
    verdict = "polite" if found.ok else "NOT polite"
    if revision > 1:
        changes = count_of(revision - 1, "time")
        verdict += f", judged by the settings of today; those of this crawl were changed {changes} after it was created"
    return Group(Text(verdict, style="bold"), Text(seen), table, *examples, shortest)
