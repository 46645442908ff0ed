"""Numbers in sentences of the documentation are those of the constants that they speak of."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.app import reshard_wait, run
from crawler.app.engine import REPEATED_S
from crawler.app.supervisor import GIVEN_UP_AFTER, HEALTHY_S
from crawler.fetch.fd_limit import IDLE_CONNECTIONS
from crawler.parse import document, extraction, offload, subprocess_client, subprocess_main, tags
from crawler.redis_retry import LONGEST_WAIT_S, PATIENCE_S, WATCH_S
from crawler.scope.traps import TrapPolicy
from crawler.settings.archive_table import ArchiveTable
from crawler.sinks import content_process, warc
from crawler.worker import delay_queue, time_slice
from frontier import blocks, field_types, outboxes, push_batches, recent_writes, url_patterns
from politeness import robots_cache, robots_syntax, tdmrep
from politeness.backoff import BackoffPolicy
from politeness.robots_fetch import MAX_REDIRECTS, RobotsPolicy

DOCS = Path(__file__).parent.parent / "docs"
KIB, MIB = 1 << 10, 1 << 20
WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 8: "eight", 10: "ten"}

HOSTILE, FAULTS, KEYS, OUTPUT, ROBOTS, USAGE = (
    *("explanation/hostile-sites.md", "explanation/faults.md"),
    *("reference/redis-keys.md", "reference/output.md", "reference/robots.md", "reference/usage-preferences.md"),
)

SAID = [
    (HOSTILE, f"takes at most {url_patterns.STEPS:,} steps"),
    (HOSTILE, f"the bodies of all layers together | {document.INLINE_INPUT // KIB} KiB |"),
    (HOSTILE, f"decompressed | {document.INLINE_OUTPUT // MIB} MiB |"),
    (HOSTILE, f"| HTML | {tags.INLINE_PAGE // MIB} MiB; {tags.INLINE_PLAIN // MIB} MiB if it is mostly text"),
    (HOSTILE, f"the last term only if it is above 6 KiB | {tags.INLINE_TAGS // KIB} KiB |"),
    (HOSTILE, f"their bytes + {tags.ENTRY} x their number + their number x length of the page's URL / {tags.BASE}"),
    (HOSTILE, f"uncommon SVG) | {tags.INLINE_TREE // KIB} KiB |"),
    (HOSTILE, f"of the sitemap's URL more | {document.INLINE_SITEMAP // KIB} KiB |"),
    (HOSTILE, f"at niceness {subprocess_main.NICENESS}. It is replaced after {subprocess_client.DOCUMENTS} documents"),
    (HOSTILE, f"A document gets {subprocess_main.CPU_S:.0f} CPU seconds"),
    (HOSTILE, f"and {subprocess_client.REPLY_TIMEOUT_S:.0f} seconds in all"),
    (HOSTILE, f"The process gets {subprocess_main.MEMORY >> 30} GiB of address space"),
    (HOSTILE, f"up to {offload.MAX_WAITING_BYTES // MIB} MiB of waiting bodies"),
    (HOSTILE, f"in bodies of up to {document.INLINE_INPUT // KIB} KiB, with at most {extraction._FEW_TAGS:,} tags"),
    (HOSTILE, f"{extraction.INLINE_S * 1000:.0f} ms of CPU time (`crawler/parse/extraction.py`)"),
    (HOSTILE, f"in parts of {subprocess_main.PART:,} links"),
    (HOSTILE, f"A page gets one CPU second, a minute in all, and {content_process.MEMORY >> 30} GiB"),
    (HOSTILE, f"A replica keeps {IDLE_CONNECTIONS:,} idle connections"),
    (HOSTILE, f"{delay_queue.WOKEN} at a time"),
    (HOSTILE, f"then {WORDS[time_slice.WOKEN]} per iteration"),
    (HOSTILE, f"| {push_batches.PUSH_BATCH} at a time"),
    (HOSTILE, f"| {robots_syntax.MAX_BODY // KIB} KiB; RFC 9309 2.5 asks for at least 500 |"),
    (HOSTILE, f"in Redis, {robots_cache.DOMAIN_BYTES // KIB} KiB per domain"),
    (FAULTS, f"with growing pauses (at most {1.5 * LONGEST_WAIT_S} s)"),
    (FAULTS, f"stop all after {WORDS[GIVEN_UP_AFTER]} such ends in a row within {HEALTHY_S:.0f} s each"),
    (FAULTS, f"waits for Redis to sync it (exit code {run.INTERRUPTED})"),
    (FAULTS, f"requests of more than {WORDS[int(reshard_wait.GRACE_S)]} seconds"),
    (FAULTS, f"A full outbox ({outboxes.OUTBOX_LINKS:,} links)"),
    (FAULTS, f"what it pushed and settled in the last {WORDS[recent_writes.KEPT_MS // 1000]} seconds"),
    (FAULTS, f"until its last write is {WORDS[recent_writes.SYNCED_MS // 1000]} seconds old"),
    (FAULTS, f"it keeps the last {recent_writes.KEPT_ENTRIES:,}"),
    (FAULTS, f"finds the end of the crawl within {WORDS[int(REPEATED_S)]} seconds of a restart"),
    (KEYS, f"at most {field_types.MOST_FIELDS:,}; only if there are items"),
    (KEYS, f"up to {blocks.LARGEST:,} packed entries"),
    (KEYS, f"at most {outboxes.OUTBOX_LINKS:,}, and up to 500 more"),
    (KEYS, f"At most {robots_cache.DOMAIN_BYTES // KIB} KiB and the record saved last"),
    (OUTPUT, f"archived the same body of {warc.REVISIT_MIN_BYTES // KIB} KiB or more"),
    (OUTPUT, f"or the data exceed {content_process.DATA_BYTES // KIB} KiB"),
    (OUTPUT, f"the first {extraction.TOLD}, such as `products.price: type 'free'`"),
    (OUTPUT, f"more than {TrapPolicy().max_segments} path segments"),
    (OUTPUT, f"more than {TrapPolicy().max_params} parameters"),
    (OUTPUT, f"its domain has failed {BackoffPolicy().give_up_after} times in a row"),
    (ROBOTS, f"up to {robots_syntax.MAX_SITEMAPS} sitemaps, and up to {robots_syntax.MAX_LICENSES} licence offers"),
    (ROBOTS, f"The records of a domain share {robots_cache.DOMAIN_BYTES // KIB} KiB"),
    (ROBOTS, f"{robots_syntax.MAX_BODY // KIB} KiB, cut at the end of a line"),
    (ROBOTS, f"| {WORDS[MAX_REDIRECTS]}, then unavailable"),
    (ROBOTS, f"allowed after {(RobotsPolicy().assume_unavailable_after_s or 0) / 86_400:.0f} days"),
    (USAGE, f"Up to {robots_syntax.MAX_BODY // KIB} KiB and {tdmrep.MAX_RULES:,} rules are read"),
    ("explanation/speed.md", f"the digests of the last {ArchiveTable().revisits:,} bodies"),
]


@pytest.mark.parametrize(("page", "said"), SAID)
def test_a_page_gives_a_constant_the_value_that_it_has(page: str, said: str) -> None:
    assert said in " ".join((DOCS / page).read_text().split())


def test_a_second_without_an_answer_and_a_quarter_of_one() -> None:
    text = " ".join((DOCS / FAULTS).read_text().split())
    assert (
        "gets no answer for a second counts its node as away; from then on, the replica asks it every quarter" in text
    )
    assert (PATIENCE_S, WATCH_S) == (1.0, 0.25)
