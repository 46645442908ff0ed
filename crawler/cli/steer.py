"""Commands that steer a running crawl: `pause`, `resume`, `stop`, `block`, `unblock`, `delay`, `dead`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from crawler.cli import render
from crawler.cli.options import AsJson
from crawler.cli.output import Where, emit, on_a_crawl
from crawler.errors import UserError
from frontier.control import Control
from frontier.crawls import Crawl
from frontier.dead_letters import DeadLetter, DeadLetters
from frontier.errors import BadUrl
from frontier.store import RedisStore
from frontier.urls import canonicalize

DomainArgument = Annotated[str, typer.Argument(help="Domain; a host or URL of it will do.", metavar="DOMAIN")]
OfDomain = Annotated[str | None, typer.Option("--domain", help="Only those of this domain.", show_default=False)]
WithReason = Annotated[str | None, typer.Option("--reason", help="Only those with this reason.", show_default=False)]

REQUEUED_AT_ONCE = 5_000


class ControlChange(msgspec.Struct, frozen=True):
    """What a command has told the replicas of a crawl."""

    crawl: str
    action: str
    domain: str = ""
    seconds: float | None = None


class Letter(msgspec.Struct, frozen=True):
    """A dead letter as it is printed."""

    url: str
    domain: str
    reason: str


class Requeued(msgspec.Struct, frozen=True):
    """How many dead letters are queued again."""

    crawl: str
    requeued: int


dead = typer.Typer(
    help="URLs that were given up: list them, or queue them again.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def _apply(where: Where, said: ControlChange, as_json: bool, write: Callable[[Control], Awaitable[None]]) -> None:
    async def work(store: RedisStore, opened: Crawl) -> None:
        await write(Control(store, opened.keys))

    where.do(work)
    seconds = "" if said.seconds is None else f" {said.seconds:g} s"
    emit(said, as_json, Text(f"crawl {said.crawl}: {said.action} {said.domain}".rstrip() + seconds))


@on_a_crawl
def pause(
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """Let all replicas give their domains back and wait. Requests in flight end; nothing is lost.

    [bold]Example[/bold]

        crawler pause --crawl news --redis redis://queue:6379/0
    """
    _apply(where, ControlChange(where.crawl, "pause"), json, lambda control: control.set("pause"))


@on_a_crawl
def resume(
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """Take `pause` or `stop` back. After `stop`, replicas have to be started again.

    [bold]Example[/bold]

        crawler resume --crawl news
    """
    _apply(where, ControlChange(where.crawl, "resume"), json, lambda control: control.set("run"))


@on_a_crawl
def stop(
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """Let all replicas, wherever they run, stop in good order. The crawl can go on after `crawler resume`.

    [bold]Example[/bold]

        crawler stop --crawl news
    """
    _apply(where, ControlChange(where.crawl, "stop"), json, lambda control: control.set("stop"))


@on_a_crawl
def block(
    domain: DomainArgument,
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """Fetch nothing more from a domain. Its URLs are settled as denied, reason `blocked`, as their turn comes.

    Replicas heed it within a second or two.

    [bold]Example[/bold]

        crawler block example.org
    """
    named = _domain_named(domain)
    _apply(where, ControlChange(where.crawl, "block", named), json, lambda control: control.block(named))


@on_a_crawl
def unblock(
    domain: DomainArgument,
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """Take `block` back. URLs that were settled meanwhile stay settled.

    [bold]Example[/bold]

        crawler unblock example.org
    """
    named = _domain_named(domain)
    _apply(where, ControlChange(where.crawl, "unblock", named), json, lambda control: control.unblock(named))


@on_a_crawl
def delay(
    domain: DomainArgument,
    seconds: Annotated[float | None, typer.Argument(min=0, help="Seconds; without, the crawl's own again.")] = None,
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """Let a domain rest so long between requests, in place of the crawl's `politeness.delay`.

    What its robots.txt asks for still counts, and so does backoff. 0 is for your own sites only.

    [bold]Examples[/bold]

        crawler delay example.org 10

        crawler delay example.org
    """
    named = _domain_named(domain)
    _apply(
        where,
        ControlChange(where.crawl, "delay", named, seconds),
        json,
        lambda control: control.set_delay(named, seconds),
    )


@dead.command("list")
@on_a_crawl
def list_dead(
    of_domain: OfDomain = None,
    with_reason: WithReason = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Letters at most.")] = 50,
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """List URLs that were given up, with the reason.

    [bold]Example[/bold]

        crawler dead list --domain example.org --limit 20
    """
    domain = _domain_named(of_domain) if of_domain else None

    async def look(store: RedisStore, opened: Crawl) -> list[Letter]:
        letters = await _find(store, opened, domain, with_reason, limit)
        return [Letter(letter.url, letter.domain, letter.reason) for letter in letters]

    letters = where.do(look)
    table = render.table("reason", "URL")
    for letter in letters:
        table.add_row(letter.reason, Text(letter.url, overflow="fold", no_wrap=False))
    emit(letters, json, table if letters else Text("no dead letters"))


async def _find(
    store: RedisStore, crawl: Crawl, domain: str | None, reason: str | None, limit: int
) -> list[DeadLetter]:
    found = []
    async for letter in DeadLetters(store, crawl.keys).find(domain, reason):
        found.append(letter)
        if len(found) >= limit:
            break
    return found


@dead.command()
@on_a_crawl
def requeue(
    of_domain: OfDomain = None,
    with_reason: WithReason = None,
    everything: Annotated[bool, typer.Option("--all", help="Whatever the domain and the reason.")] = False,
    *,
    where: Where,
    json: AsJson = False,
) -> None:
    """Queue URLs that were given up again, with their tries counted anew.

    Choose by `--domain`, by `--reason`, by both, or say `--all`.

    [bold]Examples[/bold]

        crawler dead requeue --reason robots_unreachable

        crawler dead requeue --domain example.org
    """
    if not (of_domain or with_reason or everything):
        raise UserError("say which: --domain DOMAIN, --reason REASON, or --all")
    domain = _domain_named(of_domain) if of_domain else None

    async def work(store: RedisStore, opened: Crawl) -> int:
        number, letters = 0, DeadLetters(store, opened.keys)
        now_ms = int(await store.time_ms())
        while found := await _find(store, opened, domain, with_reason, REQUEUED_AT_ONCE):
            number += await letters.requeue(found, now_ms)
            if len(found) < REQUEUED_AT_ONCE:
                break  # what dies again meanwhile is not this command's
        return number

    number = where.do(work)
    emit(Requeued(where.crawl, number), json, Text(f"crawl {where.crawl}: {number:,} URLs queued again"))


def _domain_named(text: str) -> str:
    """The domain that an operator means by a domain, a host or a URL. Raises UserError."""
    try:
        return canonicalize(text if "://" in text else f"https://{text}/").domain
    except BadUrl as error:
        raise UserError(f"{text!r} is no domain; write it as example.org") from error
