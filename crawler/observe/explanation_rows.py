"""Shows the explanation of a URL as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawler.observe.explain import Explanation
from crawler.page import KEPT_DENIALS
from crawler.wording import count_of


def rows(found: Explanation) -> list[tuple[str, str]]:
    """Return the explanation as pairs of name and text. Pairs with an empty text are not shown."""
    # Denied URLs that can be queued again are kept with the dead ones, and counted as denied.
    state = "denied" if found.dead_reason in KEPT_DENIALS else found.where
    line = f"line {found.robots_line}: {found.robots_rule}" if found.robots_line else ""
    tries, hops = count_of(found.tries or 0, "try", "tries"), count_of(found.hops or 0, "redirect")
    tried = f"depth {found.depth}, {tries}, {hops}" if found.depth is not None else ""
    priority = "" if found.priority is None else f", priority {found.priority:g}"
    delay = "" if found.delay_s is None else f", {found.delay_s:g} s apart"
    return [
        ("URL", found.url if found.url == found.asked else f"{found.url} (asked as {found.asked})"),
        ("state", state + (f": {tried}{priority}" if tried else "")),
        (f"{state} for", found.dead_reason),
        (
            "waits for",
            found.waits_for
            and f"{found.waits_for}, {f'until {found.waits_until}' if found.waits_until else 'due now'}",
        ),
        ("next visit", found.next_visit),
        ("visits", found.visits),
        ("in scope", found.scope),
        ("trap", found.trap),
        ("robots.txt", found.robots + (f", fetched {found.robots_fetched}" if found.robots_fetched else "")),
        ("", line),
        (
            "usage",
            found.usage + (f", which refuses {found.refused}, the purpose of the crawl" if found.refused else ""),
        ),
        *(("", text) for text in found.usage_statements),
        (
            "domain",
            f"{found.domain}: {count_of(found.domain_accepted, 'URL')} so far, {found.domain_queued:,} queued{delay}",
        ),
        ("", f"blocked; `crawler unblock {found.domain}` lets it be fetched" if found.is_blocked else ""),
        ("", found.domain_leased_until and f"{found.domain_in_flight} leased until {found.domain_leased_until}"),
        ("backoff", found.backoff),
        (
            "shard",
            f"{found.shard}, last leased by {found.last_holder}"
            if found.last_holder
            else f"{found.shard}, not leased yet",
        ),
        ("last", _last(found.last)),
        ("searched", ", ".join(found.searched) if found.seen else ""),
        ("handler", str((found.last or {}).get("handler_error") or "")),
        *(("cut", reason) for reason in found.cut),
        *(("rejected", text) for text in _rejected(found.last or {})),
    ]


def _rejected(line: Mapping[str, Any]) -> list[str]:
    """The items that were rejected, and why."""
    told: list[str] = line.get("rejected") or []
    more = int(line.get("rejected_count") or 0) - len(told)
    return [*told, f"and {count_of(more, 'more item')}"] if more > 0 else told


def _last(line: dict[str, object] | None) -> str:
    if line is None:
        return ""
    place = line.get("warc")
    where = f"; {place['file']} at byte {place['offset']}" if isinstance(place, dict) else ""
    status = f", status {line['status']}" if line.get("status") else ""
    return f"{line.get('outcome')} ({line.get('reason')}){status}, {line.get('settled_at')}{where}"
