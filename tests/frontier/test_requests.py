"""Requests in entries: what is stored of them, and the mark of those that were sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.counters import Counters
from frontier.dead_letters import DeadLetters
from frontier.entries import (
    Entry,
    RequestData,
    label_of,
    parse_entry,
    payload_of,
    redirected,
    request_of,
    tag_of,
)
from frontier.lookup import UrlLookup
from frontier.queue import Frontier
from frontier.settle import SettledUrl, Settlement, retry
from frontier.store import RedisStore
from tests.frontier.crawled import Crawled
from tests.frontier.helpers import ManualTime, lease_one

POST = RequestData("POST", (("Content-Type", "text/plain"),), b"a=1&b=~!")


def posted(key: str = "POST:1", request: RequestData = POST, **more: object) -> Entry:
    tag = tag_of("label", {"x~!": "~! y"}, request)
    return Entry(f"https://a.test/x~!#{key}", "a.test", tag=tag, **more)  # type: ignore[arg-type]


@given(
    label=st.text("ab_.-", max_size=9),
    payload=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1),
    request=st.none()
    | st.builds(
        RequestData,
        st.sampled_from(["GET", "POST"]),
        st.lists(st.tuples(st.text(), st.text()), max_size=2).map(tuple),
        st.binary(max_size=99),
        st.booleans(),
        st.booleans(),
    ),
)
def test_what_a_tag_has_is_read_back(label: str, payload: dict[str, str] | None, request: RequestData | None) -> None:
    """Also from the text of an entry, and with the mark."""
    tag = tag_of(label, payload, request)
    entry = Entry("https://a.test/#k", "a.test", tag=tag)
    for made in (entry, entry.sent()) if entry.request else (entry,):
        back = parse_entry(made.raw, "a.test", 0.0)
        assert (back, back.label) == (made, label)
        assert payload_of(back.tag) == (payload or {})
        assert (back.request or RequestData()) == (request or RequestData())
        assert back.unsent().tag == tag


def test_a_plain_get_costs_nothing() -> None:
    assert tag_of("", None, RequestData()) == ""
    assert Entry("https://a.test/x", "a.test").raw == "s00000/x"


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        *((301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (303, "PUT", "GET"), (303, "HEAD", "HEAD")),
        *((301, "PUT", "PUT"), (302, "DELETE", "DELETE"), (307, "POST", "POST"), (308, "PATCH", "PATCH")),
    ],
)
@pytest.mark.parametrize("is_same_origin", [True, False])
def test_what_follows_a_redirect(status: int, method: str, expected: str, is_same_origin: bool) -> None:
    """RFC 9110 15.4. Credentials stay at their origin."""
    fields = (("content-type", "a/b"), ("Cookie", "a"), ("Authorization", "b"), ("X", "c"))
    tag = tag_of("label", {"a": 1}, RequestData(method, fields, b"body"))
    after, key = redirected(tag, "key", status, is_same_origin)
    assert (label_of(after), payload_of(after)) == ("label", {"a": 1})
    request = request_of(after)
    assert request is not None
    assert (request.method, request.body) == (expected, b"body" if method == expected else b"")
    kept = {"Cookie", "Authorization", "X"} if is_same_origin else {"X"}
    assert {name for name, _ in request.headers} == kept | ({"content-type"} if method == expected else set())
    assert key == ("key" if method == expected else "key:GET")


@pytest.mark.parametrize("status", [301, 303, 307, 308])
def test_nothing_of_a_private_request_leaves_its_origin(status: int) -> None:
    tag = tag_of("login", None, RequestData("POST", (("X-Api-Key", "a"),), b"password", is_private=True))
    assert redirected(tag, "key", status, is_same_origin=False) == ("login", "key:GET")
    kept = request_of(redirected(tag, "key", status, is_same_origin=True)[0])
    assert kept is not None
    assert kept.body == (b"password" if status in (307, 308) else b"")


async def test_a_request_that_was_sent_is_marked_for_the_next_holder(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    await frontier.push([posted("1"), posted("2")])
    lease = await lease_one(frontier)
    first, second = lease.entries
    for _ in range(2):  # a call that is repeated because its answer was lost
        assert await frontier.mark_sent(lease, first, first.sent())
    time.ms = lease.expires_ms + 1
    await frontier.lease([0], 1, "r1", 1)  # takes them back
    time.ms += 60_000
    again = await lease_one(frontier)
    assert {(one.url, one.was_sent) for one in again.entries} == {(first.url, True), (second.url, False)}
    assert not await frontier.mark_sent(lease, second, second.sent())  # the lease has ended
    assert [one.was_sent for one in again.entries if one.url == second.url] == [False]


async def test_a_marked_request_is_settled_and_sent_again_only_if_somebody_asks_for_it(
    store: RedisStore, frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    """By a retry, and by a requeue of its dead letter."""
    await frontier.push([posted()])
    lease = await lease_one(frontier)
    marked = lease.entries[0].sent()
    assert await frontier.mark_sent(lease, lease.entries[0], marked)
    await frontier.settle([Settlement(lease, time.ms, urls=[retry(marked, "http_503", time.ms, 0.0)])])
    time.ms += 1
    lease = await lease_one(frontier)
    (entry,) = lease.entries
    assert (entry.was_sent, entry.tries, entry.request) == (False, 1, POST)
    assert await frontier.mark_sent(lease, entry, entry.sent())
    await frontier.settle([Settlement(lease, time.ms, urls=[SettledUrl(entry.sent(), "dead", "maybe_sent")])])
    letters = DeadLetters(store, frontier.keys)
    found = [letter async for letter in letters.find()]
    assert [letter.url for letter in found] == [entry.url]
    assert await UrlLookup(store, frontier).url(entry.url, "a.test")
    assert await letters.requeue(found, time.ms) == 1
    lease = await lease_one(frontier)
    (entry,) = lease.entries
    assert (entry.was_sent, entry.tries, entry.request) == (False, 0, POST)
    assert (await counters.counts()).open == 1


@pytest.mark.parametrize("is_labelled_first", [True, False])
async def test_a_label_adds_one_request_to_a_url_that_was_queued_without_it(
    frontier: Frontier, is_labelled_first: bool
) -> None:
    plain, labelled, other = (Entry("https://a.test/1", "a.test", tag=label) for label in ("", "b", "c"))
    links = [labelled, plain] if is_labelled_first else [plain, labelled]
    accepted = [(await frontier.push([link])).accepted for link in (*links, labelled, plain, other, other)]
    assert accepted == [1, 0 if is_labelled_first else 1, 0, 0, 1, 0]
    lease, urls = await lease_one(frontier), ["https://a.test/1", "https://a.test/1#@b", "https://a.test/1#@c"]
    expected = {urls[0]: "b" if is_labelled_first else "", urls[1]: "b", urls[2]: "c"}
    if is_labelled_first:
        del expected[urls[1]]
    assert {entry.url: entry.label for entry in lease.entries} == expected


async def test_of_links_with_and_without_a_label_that_come_together_the_label_counts(frontier: Frontier) -> None:
    plain, labelled = Entry("https://a.test/1", "a.test"), Entry("https://a.test/1", "a.test", tag="b")
    reply = await frontier.push([plain, labelled])
    assert (reply.accepted, reply.seen) == (1, 1)
    assert list((await lease_one(frontier)).entries) == [labelled]


async def test_a_request_is_found_by_its_url_with_its_key(store: RedisStore, frontier: Frontier) -> None:
    await frontier.push([posted("1")])
    lookup = UrlLookup(store, frontier)
    assert (await lookup.url("https://a.test/x~!#1", "a.test")).where == "queued"
    assert (await lookup.url("https://a.test/x~!", "a.test")).where == "unseen"


@pytest.mark.parametrize("shards", [2, 16])
async def test_requests_move_with_their_domain(crawled: Crawled, shards: int) -> None:
    """To another number of shards: queued ones, a marked one whose holder was killed, and a dead letter. Each is still
    the only one of its key."""
    frontier = await crawled.open()
    entries = [posted(str(number)) for number in range(8)]
    await frontier.push(entries)
    shard = frontier.shard_of("a.test")
    crawled.time.ms += 100_000
    leased, _ = await frontier.lease([shard], 2, "r8", 100)
    (lease,) = [lease for reply in leased for lease in reply.leases if lease.domain == "a.test"]
    first, second = lease.entries
    assert await frontier.mark_sent(lease, first, first.sent())
    assert await frontier.mark_sent(lease, second, second.sent())
    dead = SettledUrl(second.sent(), "dead", "maybe_sent")
    await frontier.settle([Settlement(lease, crawled.time.ms, urls=[dead])])
    await crawled.reshard(shards)
    frontier = await crawled.open()
    assert (await frontier.push(entries)).seen == len(entries)
    letters = [one async for one in DeadLetters(crawled.store, frontier.keys).find(domain="a.test")]
    assert [parse_entry(one.entry, one.domain, 0.0) for one in letters] == [second.sent()]
    found: dict[str, Entry] = {}
    for _ in range(9):
        crawled.time.ms += 100_000
        leased, _ = await frontier.lease([frontier.shard_of("a.test")], 3, "r9", 100)
        for lease in (lease for reply in leased for lease in reply.leases if lease.domain == "a.test"):
            found |= {entry.url: entry for entry in lease.entries}
            urls = [SettledUrl(entry, "done", "ok") for entry in lease.entries]
            await frontier.settle([Settlement(lease, crawled.time.ms, urls=urls)])
    assert set(found) == {entry.url for entry in entries} - {second.url}
    assert {url for url, entry in found.items() if entry.was_sent} == {first.url}
    assert all(entry.request == POST for entry in found.values())
