"""Commands that control a running crawl: `pause`, `resume`, `stop`, `block`, `unblock`, `delay`, `retry`, `refresh` and
`dead`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from crawler.cli.options import (
    FILE,
    CrawlAccess,
    Number,
    Whole,
    Word,
    as_json,
    command,
    group,
    on_a_crawl,
    titled,
)
from crawler.cli.screens import TextTable, alerts
from crawler.cli.text import about_url, did_you_mean, emit, note
from crawler.errors import UserError
from crawler.observe import summary
from crawler.observe.status import HALTS, CrawlReader
from crawler.page import DEAD_REASONS, KEPT_DENIALS
from crawler.scope.seeds import BadSeedLine, url_named
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import url_rules
from crawler.wording import count_of
from frontier.clock import crawl_ms
from frontier.control import Control, DomainRules, RetryReply
from frontier.counters import Counters
from frontier.crawls import Crawl, crawl_clock
from frontier.domains import is_public_suffix, shard_of
from frontier.errors import BadInput, BadUrl
from frontier.known_pages import (
    domains_with_known_pages,
    refresh_domain,
    refresh_matching,
    refresh_page,
)
from frontier.scripts import command as redis_command
from frontier.store import RedisStore
from frontier.urls import Url, UrlPattern

SHOWN_LINES = 10
"""Quote at most this many lines of a file that are not domains, or domains that a crawl does not know."""

LONGEST_SHOWN = 80
"""The most characters of an argument or a line that a message shows of what is not a domain."""

AT_ONCE = 500
"""Domains that one call asks for."""

_HAS_CONTROLS = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))

FORGOTTEN = "{domain} was forgotten in this crawl: it stays blocked, and nothing is stored of it"

OFF = "the crawl visits no pages again: set recrawl.rules with `crawler config apply`"

NOTHING_DUE = "no known page was named that is not due or queued already; `crawler why URL` tells what becomes of a URL"

REASONS = tuple(
    sorted(
        {
            *DEAD_REASONS,
            *KEPT_DENIALS,
            *("robots", "usage", "lost_with_holder", "payment_required", "put_off", "linked"),
            *("no_https", "no_sitemap"),
            *(f"http_{status}" for status in (408, 425, 429, 500, 502, 503, 504, *range(520, 525))),
        }
    )
)
"""Why URLs are given up or denied. The kinds of failures that are left out say nothing about the URL."""


# arguments


def domain_named(text: str) -> str:
    """Return the domain of a domain name, host or URL. Raises UserError if `text` is none of them."""
    shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
    if not _HAS_CONTROLS.isdisjoint(text):  # the URL standard removes some of them, which joins what they separate
        raise UserError(f"{shown!r} has a newline or another control character; name one domain, as example.org")
    try:
        domain = url_named(text).domain
    except BadUrl as error:
        if error.reason in ("scheme", "colon"):
            raise UserError(f"{shown!r}: {about_url(BadSeedLine(0, shown, error.reason))}") from error
        raise UserError(f"{shown!r} is not a domain; write it as example.org") from error
    if domain not in text and domain.rpartition(".")[2].isdigit():
        raise UserError(
            f"{shown!r} is a number, which stands for the address {domain}; write the address if you mean it"
        )
    return domain


def site_named(text: str) -> str:
    """Return the domain of a name, host or URL. Raises UserError for others, and for a public suffix, which has many."""
    domain = domain_named(text)
    if is_public_suffix(domain) and "//" not in text:
        raise UserError(
            f"{domain} is a public suffix, under which anyone has domains: name one of these; if you mean the site of "
            f"{domain} itself, write it as https://{domain}/"
        )
    return domain


_with_reason = click.option("--reason", type=Word(REASONS), metavar="REASON", help="Only those with this reason.")
domain_argument = click.argument("domain", type=domain_named, help="Domain, or a host or URL of it.")
_of_domain = click.option("--domain", type=domain_named, metavar="DOMAIN", help="Only those of this domain.")


# pause, resume, stop


@command()
@on_a_crawl
@as_json
def pause(access: CrawlAccess, as_json: bool) -> None:
    """Pause all replicas. Requests in flight are completed, and leased domains are returned to the queue.

    Example:

        crawler pause --crawl news --redis redis://queue:6379/0
    """
    _set_state(access, "pause", "pause", as_json)


@command()
@on_a_crawl
@as_json
def resume(access: CrawlAccess, as_json: bool) -> None:
    """Undo `pause` or `stop`. After `stop`, replicas have to be started again.

    Example:

        crawler resume --crawl news
    """
    _set_state(access, "resume", "run", as_json)


@command()
@on_a_crawl
@as_json
def stop(access: CrawlAccess, as_json: bool) -> None:
    """Stop all replicas on all machines cleanly. To continue later, use `crawler resume` and start replicas again.

    Example:

        crawler stop --crawl news
    """
    _set_state(access, "stop", "stop", as_json)


def _set_state(access: CrawlAccess, action: str, state: Any, as_json: bool) -> None:
    async def change(store: RedisStore, opened: Crawl) -> str:
        await Control(store, opened.keys).set(state)
        found = await CrawlReader(store, opened.keys).complete(exact=True)
        if found.replicas:
            return ""
        word, advice = found.condition.word, alerts(found.condition, is_attended=False, place=access.place)
        lines = [] if word == "no replica" else [f"no replica runs: {word}"]
        return "; ".join([*lines, *(line for one in advice for line in one.plain.split("\n"))])

    _show_change(access, action, access.do(change), as_json)


def _show_change(
    access: CrawlAccess, action: str, warning: str, as_json: bool, domain: str = "", seconds: float | None = None
) -> None:
    if warning:
        note(warning)
    delay = f"waits {seconds:g} s between requests to" if seconds is not None else "uses its own delay for"
    sentence = {
        "pause": "is paused",
        "resume": "may go on",
        "stop": "is stopped",
        "block": f"no longer fetches from {domain}",
        "unblock": f"may fetch from {domain} again",
        "delay": f"now {delay} {domain}",
    }[action]
    done = {"crawl": access.crawl, "action": action, "domain": domain, "seconds": seconds}
    emit(done, as_json, Text(f"{titled(access.crawl, 'the crawl')} {sentence}"))


# block, unblock, delay


@command()
@click.argument("domain", type=site_named, required=False, help="Domain, or a host or URL of it.")
@on_a_crawl
@click.option("--file", "-f", type=FILE, help="File with one domain per line, and comments after #.")
@as_json
def block(domain: str | None, access: CrawlAccess, file: Path | None, as_json: bool) -> None:
    """Stop fetching from a domain, or from all in a file. Their URLs are settled as denied, with the reason `blocked`, when
    they are due.

    Replicas apply this within two seconds. If a line of the file is not a domain, nothing is blocked.

    Examples:

        crawler block example.org
        crawler block --file objections.txt
    """
    if domain is not None and file is None:
        _change_rule(access, "block", domain, as_json, lambda control, *_: control.block(domain))
    elif file is not None and domain is None:
        _block_all(access, domains_in(file), as_json)
    else:
        raise UserError("name a domain, or a file with --file")


@command()
@domain_argument
@on_a_crawl
@as_json
def unblock(domain: str, access: CrawlAccess, as_json: bool) -> None:
    """Undo `block`. To requeue the URLs that were denied in the meantime, use `crawler dead requeue --reason blocked`.

    Example:

        crawler unblock example.org
    """
    _change_rule(access, "unblock", domain, as_json, lambda control, *_: control.unblock(domain))


@command()
@domain_argument
@click.argument("seconds", type=Number(0), required=False, help="Seconds; default: reset to the crawl's own delay.")
@on_a_crawl
@as_json
def delay(domain: str, seconds: float | None, access: CrawlAccess, as_json: bool) -> None:
    """Set the delay between requests to a domain, instead of the crawl's `politeness.delay`.

    Delays in robots.txt and backoff still apply. Use 0 only for your own sites.

    Examples:

        crawler delay example.org 10
        crawler delay example.org
    """
    from crawler.app.operator import set_domain_delay  # noqa: PLC0415 - no other command here needs the policy

    async def write(control: Control, store: RedisStore, opened: Crawl) -> str:
        held_s = await set_domain_delay(store, opened, domain, seconds)
        asked = f"the robots.txt of {domain} asks for {held_s:g} s between requests, which holds"
        return asked if seconds is not None and held_s > seconds else ""

    _change_rule(access, "delay", domain, as_json, write, seconds)


def _change_rule(
    access: CrawlAccess,
    action: str,
    domain: str,
    as_json: bool,
    write: Callable[[Control, RedisStore, Crawl], Awaitable[str | None]],
    seconds: float | None = None,
) -> None:
    """Change what a crawl does with `domain` with `write`, which may return a warning."""

    async def change(store: RedisStore, opened: Crawl) -> str:
        control = Control(store, opened.keys)
        await control.refresh()
        before = control.rules
        if before.is_forgotten(domain):
            raise UserError(FORGOTTEN.format(domain=domain))
        warning = await write(control, store, opened)
        return warning or await _rule_warning(store, opened, action, domain, before, is_reset=seconds is None)

    _show_change(access, action, access.do(change), as_json, domain, seconds)


async def _rule_warning(
    store: RedisStore, crawl: Crawl, action: str, domain: str, before: DomainRules, is_reset: bool
) -> str:
    """Return why a change is probably a mistake, or "". `before`: the rules that it has changed."""
    if action == "unblock":
        return "" if domain in before.blocked else f"{domain} was not blocked{did_you_mean(domain, before.blocked)}"
    if action == "delay" and is_reset:
        missing = f"{domain} had no delay of its own{did_you_mean(domain, before.delays)}"
        return "" if domain in before.delays else missing
    unknown = await unknown_domain(store, crawl, domain)
    done = "blocked" if action == "block" else "its delay is set"
    return unknown and f"{unknown}; {done} anyway"


def _block_all(access: CrawlAccess, domains: list[str], as_json: bool) -> None:
    async def block(store: RedisStore, opened: Crawl) -> list[str]:
        control = Control(store, opened.keys)
        await control.refresh()
        known_or_not = [domain for domain in domains if not control.rules.is_forgotten(domain)]
        await control.block(*known_or_not)
        return await _unknown_domains(store, opened, known_or_not)

    if domains and (unknown := access.do(block)):
        more = f" and {count_of(len(unknown) - SHOWN_LINES, 'other')}" if len(unknown) > SHOWN_LINES else ""
        note(f"not known to this crawl, blocked anyway: {', '.join(unknown[:SHOWN_LINES])}{more}")
    done = {"crawl": access.crawl, "domains": domains}
    emit(
        done,
        as_json,
        Text(f"{titled(access.crawl, 'the crawl')} no longer fetches from {count_of(len(domains), 'domain')}"),
    )


def domains_in(file: Path) -> list[str]:
    """Return the domains in `file`, each once. Raises UserError, with the numbers of all lines that are not domains."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    domains: dict[str, None] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.lstrip("\ufeff").partition("#")[0].strip()
        try:
            if text:
                domains[site_named(text)] = None
        except UserError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        rest = len(problems) - SHOWN_LINES
        more = f"; and {count_of(rest, 'more line')}" if rest > 0 else ""
        raise UserError(f"{file}: nothing was blocked: {'; '.join(problems[:SHOWN_LINES])}{more}")
    return list(domains)


# retry


@command()
@domain_argument
@on_a_crawl
@as_json
def retry(domain: str, access: CrawlAccess, as_json: bool) -> None:
    """Request a domain again now: end its backoff, and fetch its waiting URLs and its unreachable robots.txt.

    Use it when you know that the site works again. The delay between requests stays. URLs that were given up are queued
    with `crawler dead requeue --domain DOMAIN`.

    Example:

        crawler retry example.org
    """
    from crawler.app.operator import retry_domain  # noqa: PLC0415 - no other command here needs the policy

    async def retry_now(store: RedisStore, opened: Crawl) -> tuple[RetryReply, str]:
        reply = await retry_domain(store, opened, domain)
        if not (reply.ready or reply.queued or reply.is_held):
            return reply, await unknown_domain(store, opened, domain)
        return reply, HALTS.get((await CrawlReader(store, opened.keys).complete(exact=True)).condition.word, "")

    reply, warning = access.do(retry_now)
    if warning:
        note(warning)
    if not (reply.ready or reply.queued or reply.is_held):
        text = f"has nothing of {domain} that waits; URLs that were given up: `crawler dead requeue --domain {domain}`"
    else:
        text = f"requests {domain} {'now' if reply.is_held else 'when its delay has passed'}"
        text += f", with {count_of(reply.ready, 'URL')} that waited" if reply.ready else ""
    done = {"crawl": access.crawl, "domain": domain, "ready": reply.ready, "is_held": reply.is_held}
    emit(done, as_json, Text(f"{titled(access.crawl, 'the crawl')} {text}"))


# refresh


@command()
@click.argument("url", required=False, help="URL of one page.")
@on_a_crawl
@click.option("--domain", type=domain_named, metavar="DOMAIN", help="All known pages of this domain.")
@click.option(
    "--match",
    metavar="REGEX",
    help="Only known pages whose URL matches this regular expression; without --domain, those of all domains.",
)
@as_json
def refresh(url: str | None, access: CrawlAccess, domain: str | None, match: str | None, as_json: bool) -> None:
    """Visit a known page now, or those of a domain or of all domains, instead of when their next visits are due.

    This needs a crawl with `recrawl.rules`. Delays and limits stay. Pages that are queued are left as they are.

    Examples:

        crawler refresh https://example.org/news
        crawler refresh --domain example.org
        crawler refresh --match '/news/[0-9]+$'
    """
    if (url is None) == (domain is None and match is None):
        raise UserError("name either a URL, or pages with --domain, --match or both")
    is_wanted = _matching(match)

    async def make_due(store: RedisStore, opened: Crawl) -> tuple[int, str | None, bool]:
        settings = CrawlSettings.from_json(opened.settings)
        now_ms, keys = (await crawl_clock(store, opened)).now_ms(), opened.keys
        is_on = bool(settings.recrawl.rules)
        if url is not None:
            page = _page(url, settings)
            return await refresh_page(store, keys, page.href, page.domain, now_ms), page.domain, is_on
        if match is None:
            return await refresh_domain(store, keys, domain or "", now_ms), domain, is_on
        domains = [domain] if domain else {one async for one in domains_with_known_pages(store, keys)}
        return sum([await refresh_matching(store, keys, one, is_wanted, now_ms) for one in domains]), domain, is_on

    number, name, is_on = access.do(make_due)
    reason = "" if number else NOTHING_DUE if is_on else OFF
    if number and not is_on:
        note(OFF)
    text = f"has made {count_of(number, 'page') if number else 'no page'} due" + (f": {reason}" if reason else "")
    done = {"crawl": access.crawl, "domain": name, "refreshed": number, "reason": reason}
    emit(done, as_json, Text(f"{titled(access.crawl, 'the crawl')} {text}"))


def _matching(pattern: str | None) -> Callable[[str], bool]:
    if pattern is None:
        return lambda url: True
    try:
        return UrlPattern(pattern).is_in
    except BadInput as error:
        raise UserError(f"--match: {error}") from error


def _page(url: str, settings: CrawlSettings) -> Url:
    try:
        return url_named(url, url_rules(settings))
    except BadUrl as error:
        raise UserError(f"{url!r}: {about_url(BadSeedLine(0, url, error.reason))}") from error


# dead letters


class Letter(msgspec.Struct, frozen=True):
    url: str
    domain: str
    reason: str
    requisite: bool


@group()
def dead() -> None:
    """URLs that were given up, or denied by your own settings: list them, or queue them again."""


@dead.command("list")
@_of_domain
@_with_reason
@click.option("--requisites", is_flag=True, help="Only what pages embed: images, style sheets and the like.")
@click.option("--limit", "-n", type=Whole(1), default=50, help="Maximum number of URLs.")
@on_a_crawl
@as_json
def list_dead(
    domain: str | None, reason: str | None, requisites: bool, limit: int, access: CrawlAccess, as_json: bool
) -> None:
    """List URLs that were given up, or denied by your own settings, with the reason; and broken requisites of pages, also
    those with an error status, such as `http_404`.

    Denied URLs are listed if the reason is `blocked`, `dropped`, `response_dropped`, `forbidden_address`,
    `forbidden_port`, or after a change of `[scope]`, `excluded`, `not_included`, `depth` or `outside`. Those
    that a robots.txt denies are only in the output.

    Example:

        crawler dead list --domain example.org --limit 20
    """
    from crawler.app.operator import list_letters  # noqa: PLC0415 - no other command here needs the records of robots.txt

    async def read(store: RedisStore, opened: Crawl) -> tuple[list[Letter], list[str]]:
        letters, unread = await list_letters(store, opened, domain, reason, limit + 1, requisites)
        if unread:
            warnings = [f"{count_of(unread, 'shard')} cannot be read, because Redis nodes are away"]
        else:
            warnings = [] if letters else await _why_none(store, opened, domain, reason)
        if len(letters) > limit:
            warnings.append(f"these are the first {count_of(limit, 'URL')}; --limit shows more")
        shown = [Letter(one.url, one.domain, one.reason, one.is_requisite) for one in letters[:limit]]
        return shown, warnings

    letters, warnings = access.do(read)
    for warning in warnings:
        note(warning)
    table = TextTable("reason", "URL")
    for letter in letters:
        table.add(letter.reason, letter.url)
    emit(letters, as_json, table if letters else Text("no dead letters"))


@dead.command()
@_of_domain
@_with_reason
@click.option("--all", "everything", is_flag=True, help="All URLs, of any domain and reason.")
@on_a_crawl
@as_json
def requeue(domain: str | None, reason: str | None, everything: bool, access: CrawlAccess, as_json: bool) -> None:
    """Requeue URLs that were given up, or denied by your own settings. Their tries start from 0 again.

    Select them with `--domain`, `--reason` or both, or use `--all`. A robots.txt that was unreachable is fetched again.
    URLs that a robots.txt denied are not kept: queue them with `crawler seed --again`.

    Examples:

        crawler dead requeue --reason robots_unreachable
        crawler dead requeue --reason forbidden_port
        crawler dead requeue --domain example.org
    """
    from crawler.app.operator import requeue as requeue_letters  # noqa: PLC0415 - as above

    if not (domain or reason or everything):
        raise UserError("say which: --domain DOMAIN, --reason REASON, or --all")

    async def queue(store: RedisStore, opened: Crawl) -> tuple[int, list[str]]:
        number = await requeue_letters(store, opened, domain, reason)
        return number, [] if number else await _why_none(store, opened, domain, reason)

    number, warnings = access.do(queue)
    for warning in warnings:
        note(warning)
    nothing = "has nothing to queue again: `crawler dead list` has no such URL"
    text = f"has queued {count_of(number, 'URL')} again" if number else nothing
    emit({"crawl": access.crawl, "requeued": number}, as_json, Text(f"{titled(access.crawl, 'the crawl')} {text}"))


async def _why_none(store: RedisStore, crawl: Crawl, domain: str | None, reason: str | None) -> list[str]:
    """Return what is unknown to the crawl of a domain and a reason for which nothing was found."""
    warnings = [await unknown_domain(store, crawl, domain)] if domain else []
    warnings += [await _unknown_reason(store, crawl, reason)] if reason else []
    if reason in ("robots", "put_off"):
        warnings.append(
            f"URLs with the reason {reason} are not kept, as there may be very many: queue them with `crawler seed --again`"
        )
    return list(filter(None, warnings))


# what a crawl does not know


async def unknown_domain(store: RedisStore, crawl: Crawl, domain: str) -> str:
    """Return that `crawl` has no URL of `domain`, with a similar one that it has; "" if it has one. Raises RedisAway."""
    if not await _unknown_domains(store, crawl, [domain]):
        return ""
    found = await summary.take(store, crawl.keys, int(await crawl_ms(store, crawl.keys.peers)()), "", ())
    known = [line.domain for lines in (found.busiest, found.overdue, found.resting) for line in lines]
    return f"{domain} is not known to this crawl{did_you_mean(domain, known)}"


async def _unknown_domains(store: RedisStore, crawl: Crawl, domains: Collection[str]) -> list[str]:
    shards = crawl.keys.shards
    keys = [shards[shard_of(domain, len(shards))].domain(domain) for domain in domains]
    counts: list[list[object]] = []
    for at in range(0, len(keys), AT_ONCE):
        words = "accepted", "requisites"
        counts += await store.send([redis_command("HMGET", key, *words) for key in keys[at : at + AT_ONCE]])
    return [domain for domain, found in zip(domains, counts, strict=True) if not any(found)]


async def _unknown_reason(store: RedisStore, crawl: Crawl, reason: str) -> str:
    """Return that no URL of `crawl` has failed for `reason`, with a similar one; "" if one has. Raises RedisAway."""
    counts = await Counters(store, crawl.keys).counts()
    seen = {name.partition(":")[2] for name in counts.reasons if name.startswith(("dead:", "denied:"))}
    if reason in seen:
        return ""
    known: Iterable[str] = seen if reason in REASONS else [*seen, *REASONS]
    return f"no URL has the reason {reason!r}{did_you_mean(reason, known)}"
