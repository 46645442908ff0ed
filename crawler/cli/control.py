"""Commands that control a running crawl: `pause`, `resume`, `stop`, `delay`, `retry`, `dead`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from crawler.cli.completion import reasons
from crawler.cli.crawl_access import CrawlAccess, on_a_crawl, titled
from crawler.cli.seed_lists import about
from crawler.cli.shared_options import AsJson
from crawler.cli.tables import TextTable
from crawler.cli.terminal import emit
from crawler.cli.unknown_names import did_you_mean, note, unknown_domain, unknown_reason
from crawler.errors import UserError
from crawler.observe.condition import HALTS
from crawler.observe.snapshot import CrawlReader
from crawler.scope.seeds import BadSeedLine, url_named
from crawler.wording import count_of
from frontier.control import Control, DomainRules, RetryReply
from frontier.crawls import Crawl
from frontier.domains import is_public_suffix
from frontier.errors import BadUrl
from frontier.store import RedisStore

DomainArgument = Annotated[str, typer.Argument(help="Domain, or a host or URL of it.", metavar="DOMAIN")]
OfDomain = Annotated[str | None, typer.Option("--domain", help="Only those of this domain.", show_default=False)]
WithReason = Annotated[
    str | None,
    typer.Option("--reason", help="Only those with this reason.", show_default=False, autocompletion=reasons),
]


class ControlChange(msgspec.Struct, frozen=True):
    """A change that a command has made to the control state of a crawl."""

    crawl: str
    action: str
    domain: str = ""
    seconds: float | None = None


LONGEST_SHOWN = 80
"""The most characters of an argument or a line that a message shows of what is not a domain."""

_HAS_CONTROLS = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))

FORGOTTEN = "{domain} was forgotten in this crawl: it stays blocked, and nothing is stored of it"


class Letter(msgspec.Struct, frozen=True):
    """A dead letter as it is printed."""

    url: str
    domain: str
    reason: str


dead = typer.Typer(
    help="URLs that were given up, or denied by your own settings: list them, or queue them again.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def apply_change(
    access: CrawlAccess,
    change: ControlChange,
    as_json: bool,
    write: Callable[[Control, RedisStore, Crawl], Awaitable[None]],
) -> None:
    """Make `change` with `write`, and print it, with a note if it is probably a mistake."""

    async def work(store: RedisStore, opened: Crawl) -> str:
        control = Control(store, opened.keys)
        await control.refresh()
        rules, state = control.rules, control.state
        if rules.is_forgotten(change.domain):
            raise UserError(FORGOTTEN.format(domain=change.domain))
        await write(control, store, opened)
        if change.domain:
            return await _doubt(store, opened, change, rules)
        found = await CrawlReader(store, opened.keys).complete(exact=True)
        return remark(change.action, state, "" if found.replicas else found.condition.word, access.place)

    if doubt := access.do(work):
        note(doubt)
    default = " as the crawl's own" if change.action == "delay" else ""
    seconds = default if change.seconds is None else f" {change.seconds:g} s"
    emit(change, as_json, Text(f"{titled(change.crawl)}: {change.action} {change.domain}".rstrip() + seconds))


def remark(action: str, state: str, at_rest: str, place: str) -> str:
    """Return what a user who gives the command `action` should know, or "". `state`: that of the crawl before; `at_rest`:
    its condition after the command, "" if replicas run; `place`: the options that select the crawl."""
    parts = []
    if action == "resume":
        parts += ["the crawl was neither paused nor stopped"] if state == "run" else []
        parts += [_HOW_TO_GO_ON.get(at_rest, "no replica runs now; start one with `crawler run {place}`")] * bool(
            at_rest
        )
    else:
        parts += [f"the crawl was {_DONE[action]} before"] if state == action else []
        parts += [_NOTHING_RUNS.get(at_rest, "no replica runs now")] * bool(at_rest)
        parts += [_LATER[action]] * bool(at_rest)
    return "; ".join(parts).format(place=place)


_DONE = {"pause": "paused", "stop": "stopped"}

_LATER = {
    "pause": "replicas that `crawler run` starts later wait until `crawler resume {place}`",
    "stop": "`crawler run` starts no replica until `crawler resume {place}`",
}

_NOTHING_RUNS = {
    "finished": "the crawl has finished, so no replica runs",
    "page limit reached": "the crawl has reached limits.max_pages, so no replica runs",
}

_HOW_TO_GO_ON = {
    "finished": "the crawl has finished: to crawl more, give it other seeds with `crawler seed {place}`, or queue URLs "
    "again with `crawler dead requeue {place}`",
    "page limit reached": "the crawl has reached limits.max_pages: raise it with `crawler config apply FILE {place}`, "
    "and start replicas again",
    "data lost": "Redis has lost data of the crawl: see `crawler status {place}`",
}


async def _doubt(store: RedisStore, crawl: Crawl, change: ControlChange, before: DomainRules) -> str:
    """Return why `change` is probably a mistake, or "". `before`: the rules that it has changed."""
    domain, is_reset = change.domain, change.action == "delay" and change.seconds is None
    if change.action == "unblock" and domain not in before.blocked:
        return f"{domain} was not blocked{did_you_mean(domain, before.blocked)}"
    if is_reset and domain not in before.delays:
        return f"{domain} had no delay of its own{did_you_mean(domain, before.delays)}"
    if change.action == "unblock" or is_reset:
        return ""
    unknown = await unknown_domain(store, crawl, domain)
    done = "blocked" if change.action == "block" else "its delay is set"
    return unknown and f"{unknown}; {done} nevertheless"


@on_a_crawl
def pause(*, access: CrawlAccess, json: AsJson = False) -> None:
    """Pause all replicas. Requests in flight are completed, and leased domains are returned to the queue.

    [bold]Example[/bold]

        crawler pause --crawl news --redis redis://queue:6379/0
    """
    apply_change(access, ControlChange(access.crawl, "pause"), json, lambda control, *_: control.set("pause"))


@on_a_crawl
def resume(*, access: CrawlAccess, json: AsJson = False) -> None:
    """Undo `pause` or `stop`. After `stop`, replicas have to be started again.

    [bold]Example[/bold]

        crawler resume --crawl news
    """
    apply_change(access, ControlChange(access.crawl, "resume"), json, lambda control, *_: control.set("run"))


@on_a_crawl
def stop(*, access: CrawlAccess, json: AsJson = False) -> None:
    """Stop all replicas on all machines cleanly. To continue later, use `crawler resume` and start replicas again.

    [bold]Example[/bold]

        crawler stop --crawl news
    """
    apply_change(access, ControlChange(access.crawl, "stop"), json, lambda control, *_: control.set("stop"))


@on_a_crawl
def delay(
    domain: DomainArgument,
    seconds: Annotated[
        float | None, typer.Argument(min=0, help="Seconds; default: reset to the crawl's own delay.")
    ] = None,
    *,
    access: CrawlAccess,
    json: AsJson = False,
) -> None:
    """Set the delay between requests to a domain, instead of the crawl's `politeness.delay`.

    Delays in robots.txt and backoff still apply. Use 0 only for your own sites.

    [bold]Examples[/bold]

        crawler delay example.org 10

        crawler delay example.org
    """
    from crawler.app.domain_delay import set_domain_delay  # noqa: PLC0415 - no other command here needs the policy

    named = domain_named(domain)
    apply_change(
        access,
        ControlChange(access.crawl, "delay", named, seconds),
        json,
        lambda _, store, opened: set_domain_delay(store, opened, named, seconds),
    )


class Retry(msgspec.Struct, frozen=True):
    """What `crawler retry` has done. `ready`: URLs that waited and no longer do; `is_held`: the domain is being requested
    now."""

    crawl: str
    domain: str
    ready: int
    is_held: bool


@on_a_crawl
def retry(domain: DomainArgument, *, access: CrawlAccess, json: AsJson = False) -> None:
    """Request a domain again now: end its backoff, and fetch its waiting URLs and its unreachable robots.txt.

    Use it when you know that the site works again. The delay between requests stays. URLs that were given up are queued
    with `crawler dead requeue --domain DOMAIN`.

    [bold]Example[/bold]

        crawler retry example.org
    """
    from crawler.app.domain_retry import retry_domain  # noqa: PLC0415 - no other command here needs the policy

    named = domain_named(domain)

    async def work(store: RedisStore, opened: Crawl) -> tuple[RetryReply, str]:
        reply = await retry_domain(store, opened, named)
        if not (reply.ready or reply.queued or reply.is_held):
            return reply, await unknown_domain(store, opened, named)
        return reply, HALTS.get((await CrawlReader(store, opened.keys).complete(exact=True)).condition.word, "")

    reply, doubt = access.do(work)
    if doubt:
        note(doubt)
    result = Retry(access.crawl, named, reply.ready, reply.is_held)
    emit(result, json, Text(f"{titled(access.crawl)}: retry {named}: {_of_retry(reply, named)}"))


def _of_retry(reply: RetryReply, domain: str) -> str:
    if not (reply.ready or reply.queued or reply.is_held):
        return f"nothing waits; URLs that were given up: `crawler dead requeue --domain {domain}`"
    said = "it is being requested now" if reply.is_held else "it is requested when its delay has passed"
    return f"{said}, {count_of(reply.ready, 'URL')} made ready" if reply.ready else said


@dead.command("list")
@on_a_crawl
def list_dead(
    of_domain: OfDomain = None,
    with_reason: WithReason = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of URLs.")] = 50,
    *,
    access: CrawlAccess,
    json: AsJson = False,
) -> None:
    """List URLs that were given up, or denied by your own settings, with the reason.

    Denied URLs are listed if the reason is `blocked`, `crawl_delay`, `forbidden_address` or `forbidden_port`. Those that a
    robots.txt denies are only in the output.

    [bold]Example[/bold]

        crawler dead list --domain example.org --limit 20
    """
    domain = domain_named(of_domain) if of_domain else None

    from crawler.app.requeue import list_letters  # noqa: PLC0415 - no other command here needs the records of robots.txt

    async def look(store: RedisStore, opened: Crawl) -> tuple[list[Letter], list[str]]:
        letters, unread = await list_letters(store, opened, domain, with_reason, limit + 1)
        if unread:
            doubts = [f"{count_of(unread, 'shard')} cannot be read, because Redis nodes are away"]
        else:
            doubts = [] if letters else await _why_none(store, opened, domain, with_reason)
        if len(letters) > limit:
            doubts.append(f"these are the first {count_of(limit, 'URL')}; --limit shows more")
        return [Letter(letter.url, letter.domain, letter.reason) for letter in letters[:limit]], doubts

    letters, doubts = access.do(look)
    for doubt in doubts:
        note(doubt)
    table = TextTable("reason", "URL", wraps="URL")
    for letter in letters:
        table.add_row(letter.reason, letter.url)
    emit(letters, json, table if letters else Text("no dead letters"))


@dead.command()
@on_a_crawl
def requeue(
    of_domain: OfDomain = None,
    with_reason: WithReason = None,
    everything: Annotated[bool, typer.Option("--all", help="All URLs, of any domain and reason.")] = False,
    *,
    access: CrawlAccess,
    json: AsJson = False,
) -> None:
    """Requeue URLs that were given up, or denied by your own settings. Their tries start from 0 again.

    Select them with `--domain`, `--reason` or both, or use `--all`. A robots.txt that was unreachable is fetched again.
    URLs that a robots.txt denied are not kept: queue them with `crawler seed --again`.

    [bold]Examples[/bold]

        crawler dead requeue --reason robots_unreachable

        crawler dead requeue --reason forbidden_port

        crawler dead requeue --domain example.org
    """
    if not (of_domain or with_reason or everything):
        raise UserError("say which: --domain DOMAIN, --reason REASON, or --all")
    domain = domain_named(of_domain) if of_domain else None

    from crawler.app.requeue import requeue as requeue_letters  # noqa: PLC0415 - as above

    async def work(store: RedisStore, opened: Crawl) -> tuple[int, list[str]]:
        number = await requeue_letters(store, opened, domain, with_reason)
        return number, [] if number else await _why_none(store, opened, domain, with_reason)

    number, doubts = access.do(work)
    for doubt in doubts:
        note(doubt)
    counted = {"crawl": access.crawl, "requeued": number}
    said = (
        f"{count_of(number, 'URL')} queued again"
        if number
        else "nothing to queue again: `crawler dead list` has no such URL"
    )
    emit(counted, json, Text(f"{titled(access.crawl)}: {said}"))


async def _why_none(store: RedisStore, crawl: Crawl, domain: str | None, reason: str | None) -> list[str]:
    """Return what is unknown to the crawl of a domain and a reason for which nothing was found."""
    doubts = [await unknown_domain(store, crawl, domain)] if domain else []
    doubts += [await unknown_reason(store, crawl, reason)] if reason else []
    if reason == "robots":
        doubts.append("URLs that a robots.txt denied are not kept: queue them again with `crawler seed --again`")
    return [doubt for doubt in doubts if doubt]


def domain_named(text: str) -> str:
    """Return the domain of a domain name, host or URL. Raises UserError if `text` is none of them."""
    shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
    if not _HAS_CONTROLS.isdisjoint(text):  # the URL standard removes some of them, which joins what they separate
        raise UserError(f"{shown!r} has a newline or another control character; name one domain, as example.org")
    try:
        domain = url_named(text).domain
    except BadUrl as error:
        if error.reason in ("scheme", "colon"):
            raise UserError(f"{shown!r}: {about(BadSeedLine(0, shown, error.reason))}") from error
        raise UserError(f"{shown!r} is not a domain; write it as example.org") from error
    if domain not in text and domain.rpartition(".")[2].isdigit():
        raise UserError(
            f"{shown!r} is a number, which stands for the address {domain}; write the address if you mean it"
        )
    return domain


def site_named(text: str) -> str:
    """Return the domain of a domain name, host or URL. Raises UserError if `text` is none of them, or the name of a public
    suffix, which has many domains."""
    domain = domain_named(text)
    if is_public_suffix(domain) and "//" not in text:
        raise UserError(
            f"{domain} is a public suffix, under which anyone has domains: name one of these; if you mean the site of "
            f"{domain} itself, write it as https://{domain}/"
        )
    return domain
