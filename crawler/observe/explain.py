"""Explains why one URL was fetched, was not fetched, or is still waiting, from the frontier and the output files: `crawler
why`.

`gather` reads the data; `explanation` is a pure function. What cannot be determined is stated as such. For example, in
a crawl limited to the seeds' domains, whether a URL is in scope depends on the page that links to it. `rows` shows an
explanation as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from crawler.observe.status import HALTS, Condition, CrawlReader, how_to_allow
from crawler.observe.summary import limit_in_words
from crawler.page import KEPT_DENIALS
from crawler.scope.next_visit import Visits, described
from crawler.scope.scope import TrapPolicy, judge_trap
from crawler.scope.seeds import has_scheme, url_named
from crawler.scope.shapes import LAST, PUT_OFF, shapes_of
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import not_allowed, politeness_policy, scope, url_rules
from crawler.sinks.lines import newest_line
from crawler.wording import count_of
from frontier.control import Control, DomainRules
from frontier.crawls import Crawl, crawl_clock
from frontier.lookup import DomainStatus, UrlLookup, UrlStatus
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import command
from frontier.store import RedisStore
from frontier.urls import Url, canonicalize, with_key
from politeness.backoff import BackoffState, is_given_up, is_parked
from politeness.delay import delay_ms, with_set_delay
from politeness.robots_cache import OriginRobots, RobotsCache
from politeness.usage import NO_USAGE, Usage

CUT = {
    "length": "its body is longer than limits.max_body",
    "time": "its response took longer than fetch.timeout",
    "disconnect": "the connection ended before its body did",
    "decoded": "its decompressed body is longer than limits.max_decoded",
    "coding": "its body could not be decompressed completely",
    "links": "it has more links than limits.max_links, longer ones than limits.max_link_bytes, or millions of tags; only "
    "the first {link_count} were kept",
    "sitemap": "the sitemap or feed breaks off, declares entities, or has too many or too long entries",
    "unread": "parsing it exceeded the time or memory limit of a document, so its links are unknown",
    "text": "extracting its text exceeded a limit",
    "budget": "texts of its domain took too long before, so that of this page was not extracted",
    "defect": "handling it raised an error, which is in the log",
    "render": "its browser failed or took longer than render.time, so what its scripts add may be missing",
}
"""Why part of a page is missing, by the words of `crawler.page.Cut`. `text` is added by the sinks."""

WHY_RENDERED: dict[str, str] = {
    "always": "render.mode is always",
    "pattern": "render.always names it",
    "shell": "without its scripts it is nearly empty",
    "sample": "as a sample of its shape",
    "shape": "pages of its shape need a browser",
}
"""Why a page was in a browser, by the words of `crawler.page.WhyRendered`."""


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
    delay_from: str
    backoff: str
    domain_queued: int
    domain_in_flight: int
    domain_accepted: int
    robots: str
    robots_line: int | None
    robots_rule: str
    robots_fetched: str
    cut: list[str]
    last: dict[str, Any] | None
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
    is to be fetched; `failed`: why its last try failed, as far as a replica still knows; `unfollowed`: links in its shard
    that say nofollow; `key`: that of its request (`frontier.entries`)."""

    asked: str
    url: Url
    now_ms: int
    settings: CrawlSettings
    status: UrlStatus
    domain: DomainStatus
    robots: OriginRobots | None
    line: dict[str, Any] | None
    rules: DomainRules = DomainRules()
    searched: tuple[str, ...] = ()
    condition: Condition | None = None
    failed: str = ""
    unfollowed: int = 0
    key: str = ""

    @property
    def backoff(self) -> BackoffState:
        return BackoffState.parse(self.domain.state)

    @property
    def halt(self) -> str:
        """Why the crawl fetches nothing now, if the URL is to be fetched."""
        return HALTS.get(self.condition.word, "") if self.condition and self.status.where in OPEN else ""

    @property
    def robots_usage(self) -> Usage:
        """What the owner says about the use of the URL, as far as it is known from the files of its site."""
        href, robots = self.url.href, self.robots
        if robots is None or (robots.rules is not None and not robots.rules.decide(href).allowed):
            return NO_USAGE
        return robots.usage(href).combined()

    @property
    def usage(self) -> Usage:
        """What the owner says about the use of the URL: as in its JSON line, otherwise as far as it is known."""
        if self.line is not None and self.line.get("usage_statements"):
            line = self.line
            return Usage.recorded(line.get("usage") or "", line["usage_statements"], line.get("tdm_policy") or "")
        return self.robots_usage

    @property
    def file_due_ms(self) -> int | None:
        """When an unreachable robots.txt or tdmrep.json of the URL is fetched again, not before its domain. None
        without one."""
        if self.robots is None or not self.robots.record.has_unreachable:
            return None
        record = self.robots.record
        retry_at_ms = record.retry_at_ms if record.access == "disallow" else record.tdm_retry_at_ms
        return max(retry_at_ms, self.backoff.until_ms, self.domain.next_ms or 0)


async def explain(store: RedisStore, crawl: Crawl, asked: str, folders: Sequence[Path] = ()) -> Explanation:
    """Return the explanation of the URL `asked`. Without a scheme it is taken for the one that a seed would get, or
    for the other if the crawl has seen only that. `folders`: the output folders to search. Raises BadUrl, RedisAway."""
    first = url_named(asked, url_rules(CrawlSettings.from_json(crawl.settings))).href
    urls = [asked if has_scheme(asked) else first]
    if not has_scheme(asked):
        scheme, _, rest = first.partition("://")
        urls.append(f"{'https' if scheme == 'http' else 'http'}://{rest}")
    explanations = [explanation(await gather(store, crawl, url, folders)) for url in urls]
    return next((one for one in explanations if one.seen), explanations[0])


async def gather(store: RedisStore, crawl: Crawl, asked: str, folders: Sequence[Path]) -> Facts:
    """Read the facts about the URL `asked`. `folders`: the output folders to search. Raises BadUrl, RedisAway."""
    settings = CrawlSettings.from_json(crawl.settings)
    url = canonicalize(asked, None, url_rules(settings))
    keyed = with_key(url, asked.partition("#")[2])  # of a request, or the place in a page
    clock = await crawl_clock(store, crawl)
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    lookup, control = UrlLookup(store, frontier), Control(store, crawl.keys)
    await control.refresh()
    status = await lookup.url(keyed.href, url.domain)
    if status.where == "unseen":
        status, keyed = await lookup.url(url.href, url.domain), url
    now = await CrawlReader(store, crawl.keys).complete() if status.where in OPEN else None
    replicas = now.replicas if now else ()
    tries = [failure for record in replicas for failure in record.recent_failures if failure.url == keyed.href]
    stats = crawl.keys.of(url.domain).stats
    (unfollowed,) = await store.send([command("HGET", stats, "drop:nofollow")])
    return Facts(
        asked=asked,
        url=url,
        key=keyed.href.partition("#")[2],
        now_ms=clock.now_ms(),
        settings=settings,
        status=status,
        domain=await lookup.domain(url.domain),
        robots=await RobotsCache(store, frontier, settings.fetch.user_agent).load(url.origin, url.domain),
        line=newest_line(folders, keyed.href, crawl.name),
        rules=control.rules,
        searched=tuple(map(str, folders)),
        unfollowed=int(unfollowed or 0),
        condition=now.condition if now else None,
        failed=max(tries, key=attrgetter("at_ms")).reason if tries else "",
    )


def explanation(facts: Facts) -> Explanation:
    status, domain, entry, url = facts.status, facts.domain, facts.status.entry, facts.url
    until_ms, waits_for = _wait(facts)
    in_scope, trap = _scope(facts), judge_trap(url.href, TrapPolicy()) or ""
    robots, line, rule = _robots(facts)
    usage, purpose = facts.usage, facts.settings.politeness.purpose
    refusal = usage.refusal(purpose)
    return Explanation(
        asked=facts.asked,
        url=with_key(url, facts.key).href,
        domain=url.domain,
        origin=url.origin,
        shard=domain.shard,
        last_holder=domain.last_holder,
        verdict="; ".join(filter(None, [_verdict(facts, in_scope, trap, robots, waits_for), facts.halt])),
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
        delay_from=_delay_from(facts),
        backoff=_backoff(facts),
        domain_queued=domain.queued,
        domain_in_flight=domain.in_flight,
        domain_accepted=domain.accepted,
        robots=robots,
        robots_line=line,
        robots_rule=rule,
        robots_fetched=_iso((facts.robots.record.fetched_at_ms or None) if facts.robots else None),
        cut=_cut(facts.line or {}),
        last=facts.line,
        is_blocked=url.domain in facts.rules.blocked,
        searched=facts.searched,
        halt=facts.halt,
        usage=str(usage),
        usage_statements=usage.statements,
        refused=refusal.category if refusal else "",
        next_visit=_iso(status.next_ms),
        visits=described(facts.settings.recrawl.rules, Visits.parse(entry.visit)) if entry and entry.visit else "",
    )


def _verdict(facts: Facts, in_scope: str, trap: str, robots: str, waits_for: str) -> str:
    status, line, rules, url = facts.status, facts.line, facts.rules, facts.url
    if rules.is_forgotten(url.domain):
        is_complete = not rules.is_half_forgotten(url.domain)
        begun = "is being forgotten; if that was interrupted, repeat `crawler forget`"
        return f"not crawled: its domain {'was forgotten (`crawler forget`)' if is_complete else begun}"
    if rules.is_blocked(url.domain) and status.where in ("unseen", *OPEN):
        queued = "never queued, and would be" if status.where == "unseen" else "queued, and will be"
        return f"{queued} denied: its domain is blocked"
    match status.where:
        case "unseen":
            return f"never queued: {_why_unseen(facts, in_scope, trap)}"
        case "dead" if status.reason in KEPT_DENIALS:
            return "; ".join(filter(None, [f"denied: {status.reason}", how_to_allow(status.reason, url.origin)]))
        case "dead":
            return f"given up: {_reason(line) if line and line.get('reason') == status.reason else status.reason}"
        case "queued" | "waiting" | "leased" if in_scope.startswith("no: "):
            return f"{status.where}, and will be denied: it is no longer in scope ({in_scope.removeprefix('no: ')})"
        case "leased":
            return "about to be fetched: " + (f"its domain waits for {waits_for}" if waits_for else "now")
        case "waiting":
            return f"will be tried again: {_unreachable(facts) or waits_for}"
        case "queued" if robots.startswith("denied"):
            unreachable = _unreachable(facts)
            return f"queued: {unreachable}" if unreachable else "queued, and will be denied by robots.txt"
        case "queued" if refusal := facts.robots_usage.refusal(facts.settings.politeness.purpose):
            return f"queued, and will be denied: its owner refuses {refusal.category} ({refusal.by})"
        case "queued" if status.entry is not None and status.entry.priority <= LAST / 2:
            return f"queued, and comes last: {_why_last(status.entry.priority, url)}"
        case "queued":
            others = facts.domain.queued - 1
            ahead = f"; it may wait for {count_of(others, 'other URL')} of its domain" if others > TWO_LEASES else ""
            due = f": its domain waits for {waits_for}" if waits_for else ", and its domain is due"
            return f"queued{due}{ahead}"
        case _ if line is not None and line.get("reason") == "put_off":
            why, advice = _why_last(PUT_OFF, url), "raise it, and seed the URL again"
            return f"not fetched: {why}; limits.put_off_share is used up: {advice}"
        case _ if line is not None:
            return f"settled: {line.get('outcome')} ({_reason(line)})"
    folders = " or ".join(facts.searched)
    match status.where:
        case "outbox":
            return "found, and not queued yet: the Redis node of its shard was away"
        case "queued_or_settled":
            place = f" in {folders}" if folders else ""
            return f"queued or settled: the queue of its domain is too long to search, and no output was found{place}"
        case _ if folders:
            return f"settled, but not found in {folders}; name its output folders with --out, once for each"
        case _:
            return "settled; the output says how"


def _why_last(priority: float, url: Url) -> str:
    if priority <= PUT_OFF:
        shape = shapes_of(url.href)[0]
        useless = f"most pages like {shape} bring nothing new (noindex, copies or near duplicates)"
        return f"{useless}, or it was found on a page whose body is that of another one"
    return "it looks as if it does something, or shows another view of a page"


def _why_unseen(facts: Facts, in_scope: str, trap: str) -> str:
    """Return why the URL was never queued. `in_scope`: whether it is in scope; `trap`: why it looks like a trap, or ""."""
    settings, url, accepted = facts.settings, facts.url, facts.domain.accepted
    answer, _, reason = in_scope.partition(": ")
    if answer == "no":
        if reason == "outside":
            reason += f': scope.domains does not list its host, and scope.kind is "{settings.scope.kind}"'
        return f"out of scope ({reason})"
    if trap:
        return f"looks like a trap ({trap})"
    forbidden = not_allowed(url.origin, settings)
    also = f"; it would be denied, because {', and '.join(forbidden)}" if forbidden else ""
    if settings.scope.kind == "seeds" and not accepted:
        return (
            f"no seed is on its domain, {url.domain}, and links to other domains are not followed with "
            f'scope.kind = "seeds"{also}'
        )
    if 0 < settings.limits.domain_cap <= accepted:
        return f"{url.domain} has as many URLs as limits.domain_cap allows; links to others are dropped{also}"
    if facts.unfollowed and settings.scope.nofollow:
        also = f", or the link says nofollow, as {count_of(facts.unfollowed, 'link')} of its site or others do{also}"
    return f"no page that was crawled links to it, or a limit dropped the link{also}"


def _unreachable(facts: Facts) -> str:
    """Return that a robots.txt or tdmrep.json is unreachable, and when it is fetched again; "" otherwise."""
    if facts.robots is None or facts.file_due_ms is None:
        return ""
    record, wait_s = facts.robots.record, ceil((facts.file_due_ms - facts.now_ms) / 1000)
    file = f"robots.txt unreachable ({record.in_words})" if record.access == "disallow" else "tdmrep.json unreachable"
    return f"{file}, next try {f'in {wait_s} s' if wait_s > 0 else 'now'}"


def _scope(facts: Facts) -> str:
    entry = facts.status.entry
    judged = scope(facts.settings)
    reason = judged.judge_queued(entry) if entry else judged.judge(facts.url, 0, 0, facts.url.domain)
    if reason is not None:
        return f"no: {reason}"
    if facts.rules.is_forgotten(facts.url.domain):
        return "no: its domain was forgotten"
    if entry is not None and not entry.depth and not entry.hops:
        return "yes: it is a seed"
    if facts.status.where == "unseen" and facts.settings.scope.kind == "seeds":
        return "if a page of its own domain links to it, or a seed redirects to it"
    return "yes"


def _wait(facts: Facts) -> tuple[int | None, str]:
    """Return until when the URL waits (server ms), and for what."""
    status, domain, now_ms, backoff = facts.status, facts.domain, facts.now_ms, facts.backoff

    def later(at_ms: int | None) -> int | None:
        return at_ms if at_ms is not None and at_ms > now_ms else None

    if status.where in ("waiting", "queued") and facts.robots and facts.robots.record.access == "disallow":
        return later(facts.file_due_ms), "the next try of its robots.txt"
    if status.where == "waiting":
        others = f"; the last failure of its domain: {backoff.reason}" if backoff.failures else ""
        failed = f", the last of which failed ({facts.failed})" if facts.failed else others
        return later(status.ready_ms), f"its next try, after {status.entry.tries if status.entry else 0} so far{failed}"
    if status.where not in ("queued", "leased"):
        return None, ""
    if later(backoff.until_ms):
        failures = count_of(backoff.failures, "failure")
        return backoff.until_ms, f"the end of a backoff ({backoff.reason}, {failures} in a row)"
    if later(backoff.limited_until_ms):
        return backoff.limited_until_ms, limit_in_words(backoff)
    if later(domain.next_ms):
        return domain.next_ms, "its delay"
    if status.where == "queued" and domain.leased_until_ms is not None:
        return domain.leased_until_ms, f"the {count_of(domain.in_flight, 'URL')} of its domain leased now"
    return None, ""


def _robots(facts: Facts) -> tuple[str, int | None, str]:
    """Return what robots.txt says: the answer, the number of the deciding line, and its text."""
    if facts.robots is None:
        return "unknown: robots.txt of this origin was not fetched yet", None, ""
    record, rules = facts.robots.record, facts.robots.rules
    stale = "" if record.is_fresh(facts.now_ms) else "; the copy is old and will be fetched again"
    if rules is None:
        answer = "allowed" if record.access == "allow" else "denied"
        is_missing = record.reason in ("http_404", "http_410")
        what = "there is no robots.txt" if is_missing else "robots.txt could not be fetched"
        return f"{answer}: {what} ({record.in_words}){stale}", None, ""
    decision = rules.decide(facts.url.href)
    answer = "allowed" if decision.allowed else "denied"
    by = f"by the group of {decision.group}" if decision.group else "no group applies to this crawler"
    return f"{answer}: {by}{stale}", decision.line, decision.rule or ""


def _delay_from(facts: Facts) -> str:
    set_s = facts.rules.delays.get(facts.url.domain)
    policy = with_set_delay(politeness_policy(facts.settings).throttle.delay, set_s)
    own_ms, rules = delay_ms(policy, None, None, 0.0), facts.robots.rules if facts.robots else None
    asked_ms = 0 if rules is None else delay_ms(policy, rules.crawl_delay, rules.request_rate, 0.0)
    if (facts.domain.delay_ms or 0) == asked_ms > own_ms:
        return "robots.txt asks for it"
    if (facts.domain.delay_ms or 0) > own_ms:
        return "its last response took long, or the robots.txt of another host asks for it"
    return "politeness.delay" if set_s is None else "set with `crawler delay`"


def _backoff(facts: Facts) -> str:
    state, policy = facts.backoff, politeness_policy(facts.settings).throttle.backoff
    if not state.failures:
        return ""
    grade = "given up, " if is_given_up(state, policy) else "parked, " if is_parked(state, policy) else ""
    failures = count_of(state.failures, "failure")
    return f"{grade}{failures} in a row, the last for {state.reason}, until {_iso(state.until_ms)}"


def _cut(line: dict[str, Any]) -> list[str]:
    return [CUT.get(word, word).format(link_count=f"{line.get('link_count', 0):,}") for word in line.get("cut", ())]


def _iso(at_ms: int | None) -> str:
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def rows(found: Explanation) -> list[tuple[str, str]]:
    """Return the explanation as pairs of name and text. Pairs with an empty text are not shown."""
    # Denied URLs that can be queued again are kept with the dead ones, and counted as denied.
    state = "denied" if found.dead_reason in KEPT_DENIALS else found.where
    tries, hops = count_of(found.tries or 0, "try", "tries"), count_of(found.hops or 0, "redirect")
    tried = f": depth {found.depth}, {tries}, {hops}" if found.depth is not None else ""
    if tried and found.priority is not None:
        tried += f", priority {found.priority:g}"
    delay = "" if found.delay_s is None else f", {found.delay_s:g} s apart ({found.delay_from})"
    wait = f"{found.waits_for}, {f'until {found.waits_until}' if found.waits_until else 'due now'}"
    refused = f", which refuses {found.refused}, the purpose of the crawl" if found.refused else ""
    leased = f"last leased by {found.last_holder}" if found.last_holder else "not leased yet"
    last = found.last or {}
    rejected: list[str] = last.get("rejected") or []
    if (more := int(last.get("rejected_count") or 0) - len(rejected)) > 0:
        rejected = [*rejected, f"and {count_of(more, 'more item')}"]
    return [
        ("URL", found.url if found.url == found.asked else f"{found.url} (asked as {found.asked})"),
        ("state", state + tried),
        (f"{state} for", found.dead_reason),
        ("waits for", wait if found.waits_for else ""),
        ("next visit", found.next_visit),
        ("visits", found.visits),
        ("in scope", found.scope),
        ("trap", found.trap),
        ("robots.txt", found.robots + (f", fetched {found.robots_fetched}" if found.robots_fetched else "")),
        ("", f"line {found.robots_line}: {found.robots_rule}" if found.robots_line else ""),
        ("usage", found.usage + refused),
        *(("", text) for text in found.usage_statements),
        (
            "domain",
            f"{found.domain}: {count_of(found.domain_accepted, 'URL')} so far, {found.domain_queued:,} queued{delay}",
        ),
        ("", f"blocked; `crawler unblock {found.domain}` lets it be fetched" if found.is_blocked else ""),
        ("", found.domain_leased_until and f"{found.domain_in_flight} leased until {found.domain_leased_until}"),
        ("backoff", found.backoff),
        ("shard", f"{found.shard}, {leased}"),
        ("last", _last(found.last)),
        ("label", str(last.get("label") or "")),
        ("found on", str(last.get("via") or "")),
        ("links", f"{last.get('link_count') or 0:,}" if last.get("outcome") == "done" else ""),
        ("noindex", "yes: it asks not to be listed by search engines" if last.get("noindex") else ""),
        ("canonical", canonical if (canonical := str(last.get("canonical") or "")) != found.url else ""),
        ("near of", str(last.get("near_of") or "")),
        ("searched", ", ".join(found.searched) if found.seen else ""),
        ("handler", str(last.get("handler_error") or "")),
        ("rendered", _rendered(last)),
        *(("cut", reason) for reason in found.cut),
        ("repaired", ", ".join(last.get("repaired") or ())),
        *(("rejected", text) for text in rejected),
    ]


def _last(line: dict[str, Any] | None) -> str:
    if line is None:
        return ""
    place = line.get("warc")
    where = f"; {place['file']} at byte {place['offset']}" if isinstance(place, dict) else ""
    status = f", status {line['status']}" if line.get("status") else ""
    return f"{line.get('outcome')} ({_reason(line)}){status}, {line.get('settled_at')}{where}"


def _rendered(line: dict[str, Any]) -> str:
    if not (outcome := line.get("rendered")):
        return ""
    why = WHY_RENDERED.get(str(line.get("rendered_why")), "")
    requests, refused = count_of(line.get("resources") or 0, "request"), line.get("refused") or 0
    return f"{outcome}{f' ({why})' if why else ''}, {requests}, {refused:,} refused"


def _reason(line: dict[str, Any]) -> str:
    """The reason in `line`, and what it says about it in words."""
    return f"{line.get('reason')}: {line['detail']}" if line.get("detail") else str(line.get("reason"))
