"""`crawler refresh` makes known pages due now: one, those of a domain, those that match, and says what was typed wrong."""

from __future__ import annotations

import pytest

from crawler.errors import UserError
from frontier.counters import Counters
from frontier.crawls import Crawl, crawl_clock
from frontier.queue import Frontier, FrontierSettings, SettledUrl, Settlement
from frontier.settlements import revisit
from frontier.store import RedisStore
from tests.cli.conftest import Hand

LATER_MS = 10**9


@pytest.fixture
def known(hand: Hand) -> Hand:
    """All four seeds are known pages, which are due much later."""

    async def know(store: RedisStore, crawl: Crawl) -> None:
        clock = await crawl_clock(store, crawl)
        frontier = Frontier(store, crawl.keys, clock, FrontierSettings(known_share=0.5), crawl.fingerprint_key)
        leased, _ = await frontier.lease(range(crawl.shards), 1, "r1", 8)
        due_ms = clock.now_ms() + LATER_MS
        for lease in (lease for reply in leased for lease in reply.leases):
            urls = [revisit(SettledUrl(one, "done", "ok"), "new", due_ms, "00") for one in lease.entries]
            await frontier.settle([Settlement(lease, 0, urls=urls)])
        assert (await Counters(store, crawl.keys).counts()).known == 4

    hand.with_store(know)
    return hand


@pytest.mark.parametrize(
    ("words", "refreshed", "domain"),
    [
        (["https://a.test/2"], 1, "a.test"),
        (["https://a.test/2#part"], 1, "a.test"),
        (["https://a.test/3"], 0, "a.test"),
        (["--domain", "a.test"], 2, "a.test"),
        (["--domain", "d.test"], 0, "d.test"),
        (["--domain", "a.test", "--match", "/2$"], 1, "a.test"),
        (["--match", "test/$"], 2, None),
        (["--match", ""], 4, None),
        (["--match", "/3$"], 0, None),
    ],
)
def test_pages_are_made_due_once(known: Hand, words: list[str], refreshed: int, domain: str | None) -> None:
    told = {"crawl": known.crawl, "domain": domain}
    assert known.json("refresh", *words) == {**told, "refreshed": refreshed}
    assert known.json("refresh", *words) == {**told, "refreshed": 0}


def test_it_says_what_was_done_and_what_is_missing(known: Hand) -> None:
    assert known.type("refresh", "https://a.test/2").strip() == f"crawl {known.crawl}: refresh: 1 page made due"
    assert "2 pages made due" in known.type("refresh", "--match", "test/$")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "name either a URL, or pages"),
        (["https://a.test/1", "--domain", "a.test"], "name either a URL, or pages"),
        (["https://a.test/1", "--match", "1"], "name either a URL, or pages"),
        (["ftp://a.test/1"], "ftp://a.test/1"),
        (["--domain", "no domain"], "no domain"),
        (["--match", "("], "--match '(' is not a regular expression: missing"),
    ],
)
def test_a_mistake_changes_nothing_and_is_named_in_one_line(known: Hand, words: list[str], error: str) -> None:
    with pytest.raises(UserError) as raised:
        known.type("refresh", *words)
    assert error in str(raised.value) and "\n" not in str(raised.value)
    assert known.json("refresh", "--match", "")["refreshed"] == 4
