"""Whether a crawl makes progress, and if not, why: one short answer, the same on all screens."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal

import msgspec

from crawler.observe.health_record import HealthRecord
from crawler.observe.summary import DomainLine, Summary
from crawler.wording import count_of
from frontier.cluster import UNSERVED

SHOWN = 3
"""Failing domains that are named."""

Word = Literal[
    "starting",
    "running",
    "ending",
    "blocked",
    "paused",
    "stopping",
    "stopped",
    "data lost",
    "resharding",
    "finished",
    "page limit reached",
    "no replica",
    "Redis away",
]


HALTS: dict[Word, str] = {
    "paused": "the crawl is paused; `crawler resume` lets it go on",
    "stopping": "the crawl was stopped; `crawler resume` lets replicas start again",
    "stopped": "the crawl was stopped; `crawler resume` lets replicas start again",
    "page limit reached": "limits.max_pages is reached; a higher limit lets the crawl go on",
    "no replica": "no replica runs",
    "finished": "no replica runs",
}
"""Why nothing is fetched now, by the condition of the crawl. For a URL that waits, "finished" is out of date."""


NOTHING_LEFT = "nothing is left to fetch; without --until-empty, replicas wait for more URLs until `crawler stop`"


class Condition(msgspec.Struct, frozen=True):
    """`level`: whether someone should look at it. `obstacles`: what keeps replicas from crawling, a sentence each."""

    word: Word
    level: Literal["good", "warn", "bad"]
    obstacles: list[str] = []


STARTING = Condition("starting", "good")
"""For a command that starts the replicas itself: none has reported yet."""

ENDING = Condition("ending", "good")
"""For the same command: those that reported have ended, or are about to."""

AWAY = Condition("Redis away", "bad")
"""Redis cannot be read, so the other data are old."""


def condition_of(state: str, records: Sequence[HealthRecord], summary: Summary | None, max_pages: int) -> Condition:
    """Return the condition of a crawl. `state`: the operator's command, "run", "pause" or "stop"; `records`: of the live
    replicas; `summary`: None if there is none yet; `max_pages`: 0 for no limit."""
    hindered = [*obstacles(records), *_unread(summary)]
    if summary is not None and summary.shards_lost:
        lost = (
            f"data lost in Redis: {summary.shards_lost:,} of {count_of(summary.shards, 'shard')}; run `crawler repair`"
        )
        return Condition("data lost", "bad", [lost, *hindered])
    if not records:
        return _at_rest(state, summary, max_pages)
    if state == "stop":
        return Condition("stopping", "warn", hindered)
    if state == "pause":
        return Condition("paused", "warn", hindered)
    if all(record.blocked or record.redis_away for record in records):
        return Condition("blocked", "bad", hindered)
    if summary is not None and summary.outbox:
        hindered.append(f"{count_of(summary.outbox, 'link')} kept until Redis nodes are back")
    if summary is not None and summary.shards_unowned:
        hindered.append(f"{count_of(summary.shards_unowned, 'shard')} with work but without a replica so far")
    if summary is not None:
        hindered += failing(summary)
    hindered += waiting(records)
    level: Literal["good", "warn"] = "warn" if hindered else "good"
    if summary is not None and summary.accepted and not (summary.open or summary.outbox or summary.shards_away):
        hindered.append(NOTHING_LEFT)
    return Condition("running", level, hindered)


def _unread(summary: Summary | None) -> list[str]:
    """Return that numbers are incomplete because nodes of a Redis Cluster are away, or slots have no node."""
    if summary is None or not summary.shards_away:
        return []
    return [
        f"{summary.shards_away:,} of {count_of(summary.shards, 'shard')} cannot be read, so the numbers are incomplete"
    ]


def failing(summary: Summary) -> list[str]:
    """Return why the domains of a crawl that has nothing to fetch now have failed, and when they are tried again. A crawl
    with other work has none: some of its sites always fail."""
    lines = summary.hindered
    told = [f"{_failure(one)}, next try in {ceil((one.at_ms - summary.at_ms) / 1000):,} s" for one in lines[:SHOWN]]
    told += [f"and {count_of(len(lines) - SHOWN, 'more domain')}"] * (len(lines) > SHOWN)
    return told + [f"if it works again: `crawler retry {line.domain}`" for line in lines[:1]]


def waiting(records: Sequence[HealthRecord]) -> list[str]:
    """Return which domains have not sent a complete response for a while, if no page comes meanwhile."""
    names = list(dict.fromkeys(name for record in records for name in record.waits_for))
    if not names or any(record.pages_per_s for record in records):
        return []
    more = " and others" if len(names) > SHOWN else ""  # records have the first ones only
    return [f"no complete response yet from {', '.join(names[:SHOWN])}{more}"]


def _failure(line: DomainLine) -> str:
    reason = line.robots or line.reason
    if reason == "no_such_host":
        return f"{line.domain}: no such host"
    if line.robots:
        return f"robots.txt of {line.domain} is unreachable ({reason})"
    return f"{line.domain} has failed ({reason}, {line.failures:,} in a row)"


def _at_rest(state: str, summary: Summary | None, max_pages: int) -> Condition:
    """Return the condition of a crawl without replicas. One that has nothing to do is not called paused or stopped, because
    `crawler resume` would change nothing."""
    halted = _HALTED.get(state)
    also = [f"the crawl is also {halted}: `crawler resume` undoes that"] if halted else []
    if summary is not None and summary.accepted and not (summary.open or summary.outbox or summary.shards_away):
        return Condition("finished", "good", also)
    if summary is not None and 0 < max_pages <= summary.done:
        return Condition("page limit reached", "good", also)
    return Condition(halted or "no replica", "warn", _unread(summary))


_HALTED: dict[str, Word] = {"pause": "paused", "stop": "stopped"}


def obstacles(records: Sequence[HealthRecord]) -> list[str]:
    """Return what keeps replicas from crawling. Replicas with the same obstacle share a sentence."""
    having: dict[str, list[str]] = {}
    for record in records:
        away = [f"{'' if node == UNSERVED else 'Redis node '}{node} away" for node in record.nodes_away]
        for obstacle in ["Redis away"] if record.redis_away else filter(None, [record.blocked, *away]):
            having.setdefault(obstacle, []).append(str(record.index or record.replica))
    return [
        f"{'replica' if len(names) == 1 else 'replicas'} {', '.join(names)}: {what}" for what, names in having.items()
    ]
