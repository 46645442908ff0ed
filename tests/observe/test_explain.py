"""The explanation of one URL: each verdict for given facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from crawler.observe.explain import CUT, HALTS, WHY_RENDERED, Explanation, Facts, explanation, rows
from crawler.observe.status import Condition, Word
from crawler.page import Cut, WhyRendered
from crawler.scope.shapes import LAST, PUT_OFF
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import PolitenessTable, ScopeTable
from crawler.sinks.lines import newest_line
from frontier.control import DomainRules
from frontier.entries import Entry
from frontier.lookup import DomainStatus, UrlStatus
from frontier.urls import canonicalize
from politeness.robots_cache import OriginRobots
from politeness.robots_fetch import RobotsRecord
from politeness.robots_match import Rules

NOW = 1_700_000_000_000
BODY = b"User-agent: *\nDisallow: /private/\n"


DOMAIN = DomainStatus(
    domain="a.test",
    shard=3,
    last_holder="r1",
    epoch=9,
    state="",
    due_ms=NOW,
    leased_until_ms=None,
    next_ms=NOW - 1,
    delay_ms=1_000,
    accepted=5,
    queued=1,
    in_flight=0,
)


NOTHING_NEW = (
    "most pages like a.test/x bring nothing new (noindex, copies or near duplicates), or it was found on a page whose body "
    "is that of another one"
)


def domain(**changes: object) -> DomainStatus:
    return msgspec.structs.replace(DOMAIN, **changes)


def robots(access: str = "rules", body: bytes = BODY, retry_at_ms: int = NOW + 1, reason: str = "ok") -> OriginRobots:
    record = RobotsRecord(access, reason, 200, NOW - 1_000, retry_at_ms, body)  # type: ignore[arg-type]
    return OriginRobots(record, Rules.parse(body, "peercrawl") if access == "rules" else None)


def explained(
    status: UrlStatus,
    url: str = "https://a.test/x",
    settings: CrawlSettings | None = None,
    **facts: object,
) -> Explanation:
    values: dict[str, object] = {"domain": domain(), "robots": robots(), "line": None, **facts}
    found = Facts(url, canonicalize(url), NOW, settings or CrawlSettings(), status, **values)  # type: ignore[arg-type]
    return explanation(found)


ENTRY = Entry("https://a.test/x", "a.test", -2.0, depth=2, tries=1)
UNSEEN, QUEUED, SETTLED = UrlStatus("unseen"), UrlStatus("queued", ENTRY), UrlStatus("settled")
WAITING = UrlStatus("waiting", ENTRY, NOW + 1)
BLOCKED = DomainRules(frozenset({"a.test"}))
NEVER = "never queued: no page that was crawled links to it, or a limit dropped the link"
ALLOW = "to allow it, repeat the command with --port 9999 --apply-settings, then `crawler dead requeue --reason"
WAITS = "queued: its domain waits for"


def in_scope(**scope: object) -> CrawlSettings:
    return CrawlSettings(scope=ScopeTable(**scope))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "facts", "verdict"),
    [
        (UNSEEN, {}, NEVER),
        (UNSEEN, {"settings": in_scope(exclude=("/x$",))}, "never queued: out of scope (excluded)"),
        (
            UNSEEN,
            {"url": "https://b.test/", "domain": domain(accepted=0)},
            "never queued: no seed is on its domain, b.test, and links to other domains are not followed with "
            'scope.kind = "seeds"',
        ),
        (UNSEEN, {"settings": in_scope(kind="any"), "domain": domain(accepted=0)}, NEVER),
        (
            UNSEEN,
            {"settings": in_scope(kind="hosts", domains=("www.a.test",))},
            'never queued: out of scope (outside: scope.domains does not list its host, and scope.kind is "hosts")',
        ),
        (
            UNSEEN,
            {"url": "http://10.0.0.1:9999/"},
            f"{NEVER}; it would be denied, because port 9999 is not in fetch.ports, and fetch.allow does not list "
            "10.0.0.1 (private)",
        ),
        (
            UrlStatus("dead", ENTRY, reason="forbidden_port"),
            {"url": "http://a.test:9999/"},
            f"denied: forbidden_port; {ALLOW} forbidden_port`",
        ),
        (UNSEEN, {"url": "https://a.test/" + "y" * 2_000}, "never queued: looks like a trap (length)"),
        (UrlStatus("dead", ENTRY, reason="timeout"), {}, "given up: timeout"),
        (QUEUED, {}, "queued, and its domain is due"),
        (
            QUEUED,
            {"domain": domain(queued=1_485)},
            "queued, and its domain is due; it may wait for 1,484 other URLs of its domain",
        ),
        (QUEUED, {"domain": domain(next_ms=NOW + 500)}, f"{WAITS} its delay"),
        (
            QUEUED,
            {"domain": domain(state=f"2 {NOW + 9_000} 0 http_429")},
            f"{WAITS} the end of a backoff (http_429, 2 failures in a row)",
        ),
        (QUEUED, {"url": "https://a.test/private/1"}, "queued, and will be denied by robots.txt"),
        (WAITING, {}, "will be tried again: its next try, after 1 so far"),
        (
            WAITING,
            {"failed": "tls"},
            "will be tried again: its next try, after 1 so far, the last of which failed (tls)",
        ),
        (
            WAITING,
            {"domain": domain(state=f"1 {NOW + 9_000} 0 http_500")},
            "will be tried again: its next try, after 1 so far; the last failure of its domain: http_500",
        ),
        (
            WAITING,
            {"robots": robots("disallow", reason="http_503", retry_at_ms=NOW + 41_500)},
            "will be tried again: robots.txt unreachable (http_503), next try in 42 s",
        ),
        (
            QUEUED,
            {"robots": robots("disallow", reason="timeout", retry_at_ms=NOW)},
            "queued: robots.txt unreachable (timeout), next try now",
        ),
        (SETTLED, {"line": {"outcome": "done", "reason": "ok"}}, "settled: done (ok)"),
        (
            SETTLED,
            {"line": {"outcome": "denied", "reason": "put_off"}},
            f"not fetched: {NOTHING_NEW}; limits.put_off_share is used up: raise it, and seed the URL again",
        ),
        (
            UrlStatus("queued", msgspec.structs.replace(ENTRY, priority=PUT_OFF)),
            {},
            f"queued, and comes last: {NOTHING_NEW}",
        ),
        (
            UrlStatus("queued", msgspec.structs.replace(ENTRY, priority=LAST - 3)),
            {},
            "queued, and comes last: it looks as if it does something, or shows another view of a page",
        ),
        (SETTLED, {}, "settled; the output says how"),
        (
            SETTLED,
            {"searched": ("pages",)},
            "settled, but not found in pages; name its output folders with --out, once for each",
        ),
        (QUEUED, {"rules": BLOCKED}, "queued, and will be denied: its domain is blocked"),
        (WAITING, {"rules": BLOCKED}, "queued, and will be denied: its domain is blocked"),
        (UNSEEN, {"rules": BLOCKED}, "never queued, and would be denied: its domain is blocked"),
        (UNSEEN, {"rules": DomainRules(frozenset({"b.test"}))}, NEVER),
    ],
)
def test_each_state_has_its_verdict(status: UrlStatus, facts: dict[str, Any], verdict: str) -> None:
    assert explained(status, **facts).verdict == verdict


def test_a_cut_page_names_the_limit_that_cut_it() -> None:
    line = {"outcome": "done", "reason": "ok", "link_count": 1500, "cut": ["length", "links"]}
    found = explained(SETTLED, line=line)
    assert found.cut == [
        "its body is longer than limits.max_body",
        "it has more links than limits.max_links, longer ones than limits.max_link_bytes, or millions of tags; only "
        "the first 1,500 were kept",
    ]
    assert [text for name, text in rows(found) if name == "cut"] == found.cut
    assert explained(SETTLED).cut == []


def test_the_error_of_a_handler_is_shown() -> None:
    line = {"outcome": "dead", "reason": "handler_failed", "handler_error": "ValueError: no price (shop.py:5)"}
    shown = rows(explained(UrlStatus("dead"), line=line))
    assert ("handler", "ValueError: no price (shop.py:5)") in shown
    assert ("handler", "") in rows(explained(SETTLED))
    assert ("label", "members") in rows(explained(SETTLED, line={"outcome": "done", "label": "members"}))


def test_every_reason_for_a_cut_is_explained() -> None:
    assert CUT.keys() == {*get_args(Cut), "text"}


def test_it_is_said_why_a_page_was_in_a_browser() -> None:
    line = {"rendered": "done", "rendered_why": "shell", "resources": 17, "refused": 4}
    shown = rows(explained(SETTLED, line=line))
    assert ("rendered", "done (without its scripts it is nearly empty), 17 requests, 4 refused") in shown
    assert ("rendered", "") in rows(explained(SETTLED, line={"outcome": "done"}))
    assert WHY_RENDERED.keys() == {*get_args(WhyRendered)}


def test_the_line_of_robots_txt_that_decides_is_named() -> None:
    found = explained(QUEUED, "https://a.test/private/1")
    assert (found.robots_line, found.robots_rule) == (2, "Disallow: /private/")
    assert found.robots.startswith("denied: by the group of *")


def test_an_unreachable_a_missing_and_an_old_robots_txt_are_reported() -> None:
    assert explained(QUEUED, robots=robots("disallow")).robots.startswith("denied: robots.txt could not be fetched")
    assert explained(QUEUED, robots=None).robots.startswith("unknown")
    assert "the copy is old" in explained(QUEUED, robots=robots(retry_at_ms=NOW)).robots
    missing = explained(QUEUED, robots=robots("allow", reason="http_404"))
    assert missing.robots.startswith("allowed: there is no robots.txt (http_404)")


def test_a_scope_that_depends_on_the_linking_page_says_so() -> None:
    assert explained(UNSEEN).scope == "if a page of its own domain links to it, or a seed redirects to it"
    assert explained(QUEUED).scope == "yes"
    assert explained(UrlStatus("queued", Entry("https://a.test/x", "a.test", 0.0))).scope == "yes: it is a seed"
    assert explained(UNSEEN, settings=in_scope(kind="any")).scope == "yes"


@pytest.mark.parametrize("word", [word for word in get_args(Word) if word in HALTS])
def test_a_url_that_waits_for_the_crawl_says_so(word: Word) -> None:
    condition = Condition(word, "warn")
    assert explained(QUEUED, condition=condition).verdict == f"queued, and its domain is due; {HALTS[word]}"
    assert explained(SETTLED, condition=condition).halt == ""


def test_no_time_in_the_past_is_shown_as_the_end_of_a_wait() -> None:
    found = explained(QUEUED, robots=robots("disallow", reason="timeout", retry_at_ms=NOW))
    assert (found.verdict, found.waits_until) == ("queued: robots.txt unreachable (timeout), next try now", "")
    assert ("waits for", "the next try of its robots.txt, due now") in rows(found)
    found = explained(UrlStatus("waiting", ENTRY, NOW - 5_000))
    assert ("waits for", "its next try, after 1 so far, due now") in rows(found)


def test_a_domain_with_many_failures_is_reported_as_parked() -> None:
    assert explained(QUEUED, domain=domain(state=f"7 {NOW} 0 refused")).backoff.startswith("parked, 7 ")


def test_markup_in_a_rule_is_shown_unchanged() -> None:
    found = explained(QUEUED, "https://a.test/[b]x", robots=robots(body=b"User-agent: *\nDisallow: /[b]x\n"))
    assert ("", "line 2: Disallow: /[b]x") in rows(found)


def test_the_newest_line_of_a_url_is_found(tmp_path: Path) -> None:
    """Given lines in two folders, one of them still being written, then the newest whole line of the URL counts."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.pages.jsonl").write_bytes(
        b'{"url":"https://a.test/x","settled_at":"2026-01-01T00:00:00.000Z"}\n'
        b'{"url":"https://a.test/xy","settled_at":"2026-01-05T00:00:00.000Z"}\n'
    )
    (tmp_path / "b.pages.jsonl.open").write_bytes(
        b'{"url":"https://a.test/z","links":["{\\"url\\":\\"https://a.test/x\\","],"settled_at":"9"}\n'
        b'{"url":"https://a.test/x","settled_at":"2026-01-02T00:00:00.000Z"}\n'
        b'{"url":"https://a.test/x","settled_at":"2026-01-0'
    )
    found = newest_line([other, tmp_path], "https://a.test/x", "news")
    assert found is not None
    assert found["settled_at"] == "2026-01-02T00:00:00.000Z"
    assert newest_line([tmp_path], "https://b.test/", "news") is None
    assert newest_line([tmp_path / "nowhere"], "https://a.test/x", "news") is None


@pytest.mark.parametrize(("crawl", "day"), [("news", "1"), ("news-eu", "2"), ("eu", None)])
def test_lines_of_other_crawls_in_the_folder_are_left_out(tmp_path: Path, crawl: str, day: str | None) -> None:
    for day_of, name in (("1", "news-host-1_a-20260101-00001"), ("2", "news-eu-host-1_a-20260102-00001.pages")):
        line = {"url": "https://a.test/x", "settled_at": f"2026-01-0{day_of}", "replica": "host-1:a"}
        (tmp_path / f"{name}.pages.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    found = newest_line([tmp_path], "https://a.test/x", crawl)
    assert (found and found["settled_at"]) == (day and f"2026-01-0{day}")


def test_a_denied_url_that_is_kept_is_not_called_dead() -> None:
    shown = dict(rows(explained(UrlStatus("dead", ENTRY, reason="blocked"))))
    assert shown["state"].startswith("denied: ")
    assert shown["denied for"] == "blocked"
    assert dict(rows(explained(UrlStatus("dead", ENTRY, reason="timeout"))))["dead for"] == "timeout"


def test_an_unreachable_robots_txt_is_not_asked_during_a_backoff() -> None:
    found = explained(
        UrlStatus("waiting", ENTRY, NOW + 5_000),
        robots=robots("disallow", reason="http_503", retry_at_ms=NOW + 5_000),
        domain=domain(state=f"2 {NOW + 9_000} 0 http_429"),
    )
    assert found.verdict == "will be tried again: robots.txt unreachable (http_503), next try in 9 s"
    assert (found.waits_for, found.waits_until) == ("the next try of its robots.txt", "2023-11-14T22:13:29+00:00")


WISHES = b"User-agent: *\nDisallow: /no\nContent-Usage: search=n\n"


def wanted(**changes: object) -> CrawlSettings:
    return CrawlSettings(politeness=PolitenessTable(**changes))  # type: ignore[arg-type]


def test_the_line_that_refuses_the_purpose_is_named() -> None:
    found = explained(QUEUED, settings=wanted(purpose=("search",)), robots=robots(body=WISHES))
    assert found.verdict == (
        "queued, and will be denied: its owner refuses search (robots.txt line 3: Content-Usage: search=n)"
    )
    assert (found.usage, found.refused) == ("search=n", "search")
    shown = rows(found)
    assert ("usage", "search=n, which refuses search, the purpose of the crawl") in shown
    assert ("", "robots.txt line 3: Content-Usage: search=n") in shown


def test_what_an_owner_says_is_shown_without_a_purpose_too() -> None:
    found = explained(QUEUED, robots=robots(body=WISHES))
    assert found.verdict == "queued, and its domain is due"
    assert ("usage", "search=n") in rows(found)
    denied = explained(QUEUED, "https://a.test/no", robots=robots(body=WISHES))
    assert ("usage", "") in rows(denied)


def test_the_output_says_what_the_response_said() -> None:
    line = {
        "outcome": "denied",
        "reason": "usage",
        "settled_at": "2026-09-21T14:13:21.123Z",
        "usage": "train-ai=n",
        "usage_statements": ["meta robots: noai"],
        "tdm_policy": None,
        "warc": None,
        "cut": [],
    }
    found = explained(SETTLED, settings=wanted(purpose=("train-ai",)), line=line)
    assert found.verdict == "settled: denied (usage)"
    assert (found.refused, found.usage_statements) == ("train-ai", ("meta robots: noai",))


@pytest.mark.parametrize(
    ("delay_ms", "set_s", "body", "whose"),
    [
        (1_000, None, BODY, "politeness.delay"),
        (4_000, 4.0, BODY, "set with `crawler delay`"),
        (9_000, 4.0, b"User-agent: *\nCrawl-delay: 9\n", "robots.txt asks for it"),
        (7_000, None, BODY, "its last response took long, or the robots.txt of another host asks for it"),
    ],
)
def test_whose_delay_holds_is_said(delay_ms: int, set_s: float | None, body: bytes, whose: str) -> None:
    rules = DomainRules(delays={} if set_s is None else {"a.test": set_s})
    found = explained(QUEUED, domain=domain(delay_ms=delay_ms), rules=rules, robots=robots(body=body))
    assert f"{delay_ms // 1000} s apart ({whose})" in dict(rows(found))["domain"]
