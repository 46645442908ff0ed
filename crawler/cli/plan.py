"""`crawler plan`: what a crawl of a given size needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import wraps
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from crawler.cli import options as option
from crawler.cli.screens import TextTable
from crawler.cli.text import emit
from crawler.errors import UserError
from crawler.plan.arithmetic import (
    LEAST,
    MOST,
    MOST_PARALLEL,
    Constants,
    Workload,
    number,
    short,
)
from crawler.plan.report import Machines, Plan, make_plan


@dataclass(frozen=True, slots=True)
class Option:
    """An option that takes a number, at least `least`. `field`: that of `Workload` or `Machines`, "" for its name."""

    meaning: str
    least: float = 0.0
    most: float = MOST
    field: str = ""


NUMBERS = {
    "pages": Option("Pages to fetch, such as 1e9, 5M or 10k.", 1),
    "days": Option("Days to fetch them in.", LEAST),
    "domains": Option("Domains that the crawl knows; some may get no page.", 1),
    "page_bytes": Option("Mean bytes of a page. Default 40k.", 1),
    "links_per_page": Option("Mean links of a page. Default 50."),
    "linked_domains": Option("Mean number of domains that a page links to. Default 5."),
    "urls": Option("URLs known at the end. Default: one in ten links, at least the pages."),
    "url_bytes": Option("Mean bytes of a URL after its host. Default 45."),
    "delay": Option("Seconds from a response to the domain's next request. Default 1.", field="delay_s"),
    "response": Option("Seconds that a response takes. Default 0.2.", LEAST, field="response_s"),
    "parallel": Option("Requests in flight to a domain, if there is no delay. Default 1.", 1, MOST_PARALLEL),
    "connections": Option("New connections per page. Default: 1 with a delay, otherwise one per domain.", most=1),
    "tls": Option("Share of the connections with TLS. Default 1.", most=1),
    "transfer": Option("Bytes received per byte of a page, because most sites compress. Default 0.3."),
    "compression": Option("Bytes archived per byte of a page. Default 0.22."),
    "largest_domain": Option("Pages of the largest domain.", field="-"),
    "replicas_per_core": Option("Replicas that share a core. Default 1.", LEAST),
    "machine_cores": Option("Cores of a machine. Default 16.", LEAST, field="cores"),
    "machine_memory": Option("Bytes of memory of a machine. Default 128G.", 1, field="memory_bytes"),
    "machine_price": Option("Price of a machine per hour.", field="price"),
    "redis_memory": Option("Most bytes of memory of one Redis process. Default 64G.", 1e6, field="redis_bytes"),
}
"""Name of the parameter -> the option."""


def _number_options(function: Callable[..., None]) -> Callable[..., Any]:
    @wraps(function)
    def collecting(**given: Any) -> None:
        numbers = {name: value for name in NUMBERS if (value := given.pop(name)) is not None}
        function(numbers=numbers, **given)

    return option.options(*(_number_option(f"--{name.replace('_', '-')}", one) for name, one in NUMBERS.items()))(
        collecting
    )


def _number_option(flag: str, about: Option) -> option.Decorator:
    def read(text: str) -> float:
        return number(flag, text, about.least, about.most)

    return click.option(flag, type=read, metavar="NUMBER", help=about.meaning)


@option.command()
@_number_options
@click.option("--archive/--no-archive", default=True, help="Write WARC files, index and lines.")
@option.as_json
def plan(numbers: dict[str, float], archive: bool, as_json: bool) -> None:
    """Plan a crawl: the machines, Redis, bandwidth, disk and time that it needs.

    Each figure is printed with its formula. --json also has the constants in it, of which most were measured.

    Examples:

        crawler plan --pages 1e9 --days 10 --domains 5M
        crawler plan --pages 1e9 --days 10 --domains 5M --delay 2 --json
    """
    used = Constants()
    work = replace(_workload(numbers), archive=archive)
    made = make_plan(work, used, _filled(Machines(), numbers), numbers.get("largest_domain", 0))
    shown = {
        "figures": [asdict(line) for line in made.lines],
        "limit": made.limit,
        "is_possible": made.is_possible,
        "workload": asdict(work),
        "constants": asdict(used),
    }
    emit(shown, as_json, _screen(made), wraps=False)


def _workload(numbers: dict[str, float]) -> Workload:
    missing = [f"--{name}" for name in ("pages", "days", "domains") if name not in numbers]
    if missing:
        raise UserError(f"give {', '.join(missing)}, for example: crawler plan --pages 1e9 --days 10 --domains 5M")
    work: Workload = _filled(Workload(numbers["pages"], numbers["days"], numbers["domains"]), numbers)
    if work.parallel > 1 and work.delay_s:
        raise UserError("--parallel: requests to a domain are parallel only without a delay: add --delay 0")
    if work.domains > work.pages:
        raise UserError(f"--domains: {short(work.domains)} are more than the --pages; give at most {short(work.pages)}")
    if "urls" in numbers and numbers["urls"] < work.pages:
        raise UserError(
            f"--urls: {short(numbers['urls'])} are fewer than the --pages; give at least {short(work.pages)}, "
            "because each page has a URL of its own"
        )
    if numbers.get("largest_domain", 0) > work.pages:
        largest = short(numbers["largest_domain"])
        raise UserError(f"--largest-domain: {largest} are more than the --pages; give at most {short(work.pages)}")
    return work


def _filled(value: Any, numbers: dict[str, float]) -> Any:
    """Return the dataclass `value` with the fields that options name."""
    names = {one.name for one in fields(value)}
    given = {NUMBERS[name].field or name: number for name, number in numbers.items()}
    return replace(value, **{name: number for name, number in given.items() if name in names})


def _screen(made: Plan) -> RenderableType:
    table = TextTable("figure", ">value", "formula", keeps="figure")
    for line in made.lines:
        table.add(line.name, line.text, Text(line.formula, style="dim"))
    style = "bold green" if made.is_possible else "bold red"
    limit = Text.assemble(("limited by ", "bold"), (made.limit, style))
    return Group(table, Text(), limit)
