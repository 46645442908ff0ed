"""Explains why one URL was fetched, was not fetched, or is still waiting, from the frontier and the output files: `crawler
why`.

`gather` reads the data; `explanation` is a pure function. What cannot be determined is stated as such. For example, in
a crawl limited to the seeds' domains, whether a URL is in scope depends on the page that links to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from crawler.observe.condition import HALTS, Condition
from crawler.observe.refusals import remedy, usage_said, why_unseen
from crawler.observe.snapshot import CrawlReader
from crawler.page import KEPT_DENIALS
from crawler.scope.next_visit import Visits
from crawler.scope.next_visit_in_words import described
from crawler.scope.seeds import has_scheme, url_named
from crawler.scope.traps import TrapPolicy, judge_trap
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import politeness_policy, scope, url_rules
from crawler.sinks.line_search import newest_line
from crawler.wording import count_of
from frontier.control import Control, DomainRules
from frontier.crawls import Crawl, crawl_clock
from frontier.lookup import DomainStatus, UrlLookup, UrlStatus
from frontier.queue import Frontier, FrontierSettings
from frontier.store import RedisStore
from frontier.urls import Url, canonicalize
from politeness.backoff import BackoffState, is_given_up, is_parked
from politeness.robots_cache import OriginRobots, RobotsCache
from politeness.robots_fetch import RobotsRecord

CUT = {
    "length": "its body is longer than limits.max_body",
    "time": "its response took longer than fetch.timeout",
    "disconnect": "the connection ended before its body did",
    "decoded": "its decompressed body is longer than limits.max_decoded",
    "coding": "its body could not be decompressed completely",
    "links": "it has more links than limits.max_links, or longer ones than limits.max_link_bytes; only the first "
    "{link_count} were kept",
    "sitemap": "the sitemap is malformed, breaks off, or has too many or too long entries",
    "unread": "parsing it exceeded the time or memory limit of a document, so its links are unknown",
    "text": "extracting its text exceeded a limit",
    "budget": "texts of its domain took too long before, so that of this page was not extracted",
    "defect": "handling it raised an error, which is in the log",
}
"""Why part of a page is missing, by the words of `crawler.page.Cut`. `text` is added by the sinks."""


TWO_LEASES = 64
"""URLs of a domain, by default. A URL does not wait long for so many."""

OPEN = ("queued", "leased", "waiting")  # where a URL is that is to be fetched


class Explanation(msgspec.Struct, frozen=True):
    """Everything known about one URL. `verdict` is the short answer; times are ISO 8601 in UTC, empty if they do not
    apply. `cut`: why parts of the page are missing. `last`: its newest JSON line, None if none was found; `searched`: the
    output folders. `is_blocked`: an operator has blocked the domain. `halt`: why the crawl fetches nothing now, if the URL
    is to be fetched. `usage`: what the owner prefers; `usage_statements`: where and in which words; `refused`: the purpose
    of the crawl that this refuses. `next_visit`: when a known page is visited again; `visits`: how that was chosen."""

    asked: str
    url: str
    domain: str
    origin: str
    shard: int
    last_holder: str
    verdict: str
    scope: str
    trap: str
    seen: bool
    where: str
    depth: int | None
    tries: int | None
    hops: int | None
    priority: float | None
    dead_reason: str
    waits_until: str
    waits_for: str
    domain_leased_until: str
    domain_due: str
    delay_s: float | None
    backoff: str
    domain_queued: int
    domain_in_flight: int
    domain_accepted: int
    robots: str
    robots_line: int | None
    robots_rule: str
    robots_fetched: str
    cut: list[str]
    last: dict[str, object] | None
    is_blocked: bool = False
    searched: tuple[str, ...] = ()
    halt: str = ""
    usage: str = ""
    usage_statements: tuple[str, ...] = ()
    refused: str = ""
    next_visit: str = ""
    visits: str = ""


class Facts(msgspec.Struct, frozen=True):
    """The input of `explanation`. `line`: the newest JSON line of the URL in the output, None if there is none.
    `rules`: those that an operator has set; `searched`: the output folders; `condition`: that of the crawl if the URL
    is to be fetched."""

    asked: str
    url: Url
    now_ms: int
    status: UrlStatus
    domain: DomainStatus
    robots: OriginRobots | None
    line: dict[str, Any] | None
    rules: DomainRules = DomainRules()
    searched: tuple[str, ...] = ()
    condition: Condition | None = None


async def explain(store: RedisStore, crawl: Crawl, asked: str, folders: Sequence[Path] = ()) -> Explanation:
    """Return the explanation of the URL `asked`. Without a scheme it is taken for the one that a seed would get, or
    for the other if the crawl has seen only that. `folders`: the output folders to search. Raises BadUrl, RedisAway."""
    settings = CrawlSettings.from_json(crawl.settings)
    first = url_named(asked, url_rules(settings)).href
    named = [asked if has_scheme(asked) else first]
    if not has_scheme(asked):
        scheme, _, rest = first.partition("://")
        named.append(f"{'https' if scheme == 'http' else 'http'}://{rest}")
    explanations = [explanation(await gather(store, crawl, url, folders), settings) for url in named]
    return next((one for one in explanations if one.seen), explanations[0])


async def gather(store: RedisStore, crawl: Crawl, asked: str, folders: Sequence[Path]) -> Facts:
    """Read the facts about the URL `asked`. `folders`: the output folders to search. Raises BadUrl, RedisAway."""
    settings = CrawlSettings.from_json(crawl.settings)
    url = canonicalize(asked, None, url_rules(settings))
    clock = await crawl_clock(store, crawl)
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    lookup, control = UrlLookup(store, frontier), Control(store, crawl.keys)
    await control.refresh()
    lines = [line for folder in folders if (line := newest_line(folder, url.href, crawl.name)) is not None]
    status = await lookup.url(url.href, url.domain)
    return Facts(
        asked=asked,
        url=url,
        now_ms=clock.now_ms(),
        status=status,
        domain=await lookup.domain(url.domain),
        robots=await RobotsCache(store, frontier, settings.fetch.user_agent).load(url.origin, url.domain),
        line=max(lines, key=lambda line: str(line.get("settled_at")), default=None),
        rules=control.rules,
        searched=tuple(map(str, folders)),
        condition=(await CrawlReader(store, crawl.keys).complete()).condition if status.where in OPEN else None,
    )


def explanation(facts: Facts, settings: CrawlSettings) -> Explanation:
    """Return the explanation of a URL from its `facts` and the crawl's `settings`."""
    status, domain, entry = facts.status, facts.domain, facts.status.entry
    until_ms, waits_for = _wait(facts)
    in_scope = _scope(facts, settings)
    trap = judge_trap(facts.url.href, TrapPolicy()) or ""
    robots, line, rule = _robots(facts)
    usage = usage_said(facts.line, facts.robots, facts.url.href)
    refusal = usage.refusal(settings.politeness.purpose)
    return Explanation(
        asked=facts.asked,
        url=facts.url.href,
        domain=facts.url.domain,
        origin=facts.url.origin,
        shard=domain.shard,
        last_holder=domain.last_holder,
        verdict="; ".join(filter(None, [_verdict(facts, settings, in_scope, trap, robots, waits_for), _halt(facts)])),
        scope=in_scope,
        trap=trap,
        seen=status.where != "unseen",
        where=status.where,
        depth=entry.depth if entry else None,
        tries=entry.tries if entry else None,
        hops=entry.hops if entry else None,
        priority=entry.priority if entry and status.where != "dead" else None,
        dead_reason=status.reason,
        waits_until=_iso(until_ms),
        waits_for=waits_for,
        domain_leased_until=_iso(domain.leased_until_ms),
        domain_due=_iso(domain.due_ms),
        delay_s=None if domain.delay_ms is None else domain.delay_ms / 1000,
        backoff=_backoff(domain, settings),
        domain_queued=domain.queued,
        domain_in_flight=domain.in_flight,
        domain_accepted=domain.accepted,
        robots=robots,
        robots_line=line,
        robots_rule=rule,
        robots_fetched=_iso((facts.robots.record.fetched_at_ms or None) if facts.robots else None),
        cut=_cut(facts.line or {}),
        last=facts.line,
        is_blocked=facts.url.domain in facts.rules.blocked,
        searched=facts.searched,
        halt=_halt(facts),
        usage=str(usage),
        usage_statements=usage.statements,
        refused=refusal.category if refusal else "",
        next_visit=_iso(status.next_ms),
        visits=described(settings.recrawl.rules, Visits.parse(entry.visit)) if entry and entry.visit else "",
    )


def _verdict(facts: Facts, settings: CrawlSettings, in_scope: str, trap: str, robots: str, waits_for: str) -> str:
    """Return the short answer as one sentence."""
    status, line = facts.status, facts.line
    if facts.rules.is_forgotten(facts.url.domain):
        is_complete = not facts.rules.is_half_forgotten(facts.url.domain)
        begun = "is being forgotten; if that was interrupted, repeat `crawler forget`"
        return f"not crawled: its domain {'was forgotten (`crawler forget`)' if is_complete else begun}"
    if _is_blocked(facts) and status.where in ("unseen", "queued", "leased", "waiting"):
        queued = "never queued, and would be" if status.where == "unseen" else "queued, and will be"
        return f"{queued} denied: its domain is blocked"
    match status.where:
        case "unseen":
            return f"never queued: {why_unseen(facts.url, facts.domain.accepted, settings, in_scope, trap)}"
        case "dead" if status.reason in KEPT_DENIALS:
            return "; ".join(filter(None, [f"denied: {status.reason}", remedy(status.reason, facts.url.origin)]))
        case "dead":
            return f"given up: {status.reason}"
        case "leased":
            return "about to be fetched: " + (f"its domain waits for {waits_for}" if waits_for else "now")
        case "waiting":
            return f"will be tried again: {_unreachable(facts) or waits_for}"
        case "queued" if robots.startswith("denied"):
            unreachable = _unreachable(facts)
            return f"queued: {unreachable}" if unreachable else "queued, and will be denied by robots.txt"
        case "queued" if refusal := usage_said(None, facts.robots, facts.url.href).refusal(settings.politeness.purpose):
            return f"queued, and will be denied: its owner refuses {refusal.category} ({refusal.by})"
        case "queued":
            others = facts.domain.queued - 1
            ahead = f"; it may wait for {count_of(others, 'other URL')} of its domain" if others > TWO_LEASES else ""
            return (
                "queued" + (f": its domain waits for {waits_for}" if waits_for else ", and its domain is due") + ahead
            )
        case _ if line is not None:
            return f"settled: {line.get('outcome')} ({line.get('reason')})"
        case where:
            return _not_found(where, facts.searched)


def _not_found(where: str, searched: Sequence[str]) -> str:
    """Return the short answer for a URL that is in no queue, and not in the output folders `searched`."""
    if where == "outbox":
        return "found, and not queued yet: the Redis node of its shard was away"
    if where == "queued_or_settled":
        place = f" in {' or '.join(searched)}" if searched else ""
        return f"queued or settled: the queue of its domain is too long to search, and no output was found{place}"
    if not searched:
        return "settled; the output says how"
    return f"settled, but not found in {' or '.join(searched)}; name its output folders with --out, once for each"


def _unreachable(facts: Facts) -> str:
    """Return that the URL needs a robots.txt or tdmrep.json that is unreachable, and when this is fetched again; "" if it
    does not."""
    record = facts.robots.record if facts.robots else None
    if record is None or not record.has_unreachable:
        return ""
    wait_s = ceil((_robots_due_ms(facts, record) - facts.now_ms) / 1000)
    file = f"robots.txt unreachable ({record.reason})" if record.access == "disallow" else "tdmrep.json unreachable"
    return f"{file}, next try {f'in {wait_s} s' if wait_s > 0 else 'now'}"


def _robots_due_ms(facts: Facts, record: RobotsRecord) -> int:
    """Return when the unreachable file is fetched again: not before its domain may be requested."""
    backoff_ms = BackoffState.parse(facts.domain.state).until_ms
    retry_at_ms = record.retry_at_ms if record.access == "disallow" else record.tdm_retry_at_ms
    return max(retry_at_ms, backoff_ms, facts.domain.next_ms or 0)


def _halt(facts: Facts) -> str:
    """Return why the crawl fetches nothing now, if the URL is to be fetched."""
    return HALTS.get(facts.condition.word, "") if facts.condition and facts.status.where in OPEN else ""


def _is_blocked(facts: Facts) -> bool:
    return facts.rules.is_blocked(facts.url.domain)


def _scope(facts: Facts, settings: CrawlSettings) -> str:
    entry = facts.status.entry
    judge = scope(settings)
    reason = judge.judge(facts.url, entry.depth if entry else 0, entry.hops if entry else 0, facts.url.domain)
    if reason is not None:
        return f"no: {reason}"
    if facts.rules.is_forgotten(facts.url.domain):
        return "no: its domain was forgotten"
    if entry is not None and not entry.depth and not entry.hops:
        return "yes: it is a seed"
    if facts.status.where != "unseen":
        return "yes"
    if settings.scope.kind == "seeds":
        return "if a page of its own domain links to it, or a seed redirects to it"
    return "yes"


def _wait(facts: Facts) -> tuple[int | None, str]:
    """Return until when the URL waits (server ms), and for what."""
    status, domain = facts.status, facts.domain
    if status.where in ("waiting", "queued") and facts.robots and facts.robots.record.access == "disallow":
        due_ms = _robots_due_ms(facts, facts.robots.record)
        return (due_ms if due_ms > facts.now_ms else None), "the next try of its robots.txt"
    if status.where == "waiting":
        ready_ms = status.ready_ms or 0
        until_ms = ready_ms if ready_ms > facts.now_ms else None
        return until_ms, f"its next try, after {status.entry.tries if status.entry else 0} so far"
    if status.where not in ("queued", "leased"):
        return None, ""
    backoff = BackoffState.parse(domain.state)
    if backoff.until_ms > facts.now_ms:
        return (
            backoff.until_ms,
            f"the end of a backoff ({backoff.reason}, {count_of(backoff.failures, 'failure')} in a row)",
        )
    if backoff.limited_until_ms > facts.now_ms:
        return (
            backoff.limited_until_ms,
            "the rate limit of its network address, or a replica whose DNS or machine failed",
        )
    if domain.next_ms is not None and domain.next_ms > facts.now_ms:
        return domain.next_ms, "its delay"
    if status.where == "queued" and domain.leased_until_ms is not None:
        return domain.leased_until_ms, f"the {count_of(domain.in_flight, 'URL')} of its domain leased now"
    return None, ""


def _robots(facts: Facts) -> tuple[str, int | None, str]:
    """Return what robots.txt says: the answer, the number of the deciding line, and its text."""
    known = facts.robots
    if known is None:
        return "unknown: robots.txt of this origin was not fetched yet", None, ""
    record = known.record
    stale = "" if record.is_fresh(facts.now_ms) else "; the copy is old and will be fetched again"
    if known.rules is None:
        answer = "allowed" if record.access == "allow" else "denied"
        is_missing = record.reason in ("http_404", "http_410")
        what = "there is no robots.txt" if is_missing else "robots.txt could not be fetched"
        return f"{answer}: {what} ({record.reason}){stale}", None, ""
    decision = known.rules.decide(facts.url.href)
    answer = "allowed" if decision.allowed else "denied"
    by = f"by the group of {decision.group}" if decision.group else "no group applies to this crawler"
    return f"{answer}: {by}{stale}", decision.line, decision.rule or ""


def _backoff(domain: DomainStatus, settings: CrawlSettings) -> str:
    state, policy = BackoffState.parse(domain.state), politeness_policy(settings).throttle.backoff
    if not state.failures:
        return ""
    grade = "given up, " if is_given_up(state, policy) else "parked, " if is_parked(state, policy) else ""
    failed = count_of(state.failures, "failure")
    return f"{grade}{failed} in a row, the last for {state.reason}, until {_iso(state.until_ms)}"


def _cut(line: dict[str, Any]) -> list[str]:
    return [CUT.get(word, word).format(link_count=f"{line.get('link_count', 0):,}") for word in line.get("cut", ())]


def _iso(at_ms: int | None) -> str:
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
