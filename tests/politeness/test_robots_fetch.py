"""How robots.txt is fetched, what each answer means, and how long that stands: RFC 9309 2.3.1 and 2.4."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politeness.robots_fetch import (
    MAX_REDIRECTS,
    HttpResponse,
    RobotsFetch,
    RobotsFetchResult,
    RobotsPolicy,
    RobotsRecord,
    next_record,
)
from politeness.robots_syntax import BadRecord

NOW = 1_800_000_000_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    truncated: str | None = None


def verdict_on(reply: HttpResponse, body: bytes | None = None) -> RobotsFetchResult:
    result = RobotsFetch("https://h").received(reply, NOW, body)
    assert result is not None
    return result


def redirect(location: bytes, status: int = 301) -> Reply:
    return Reply(status, headers=((b"Location", location),))


RULES = RobotsFetchResult("rules", "ok", 200, excerpt=b"as packed")
DOWN = RobotsFetchResult("disallow", "http_503", 503)
GONE = RobotsFetchResult("allow", "http_404", 404)


# what is requested, and what an answer means


@pytest.mark.parametrize("origin", ["http://h", "https://h:8443", "http://[::1]:8080"])
def test_robots_txt_lies_at_the_root_of_the_origin(origin: str) -> None:
    assert RobotsFetch(origin).url == f"{origin}/robots.txt"


@pytest.mark.parametrize(
    ("status", "access"),
    [
        (200, "rules"),
        (204, "rules"),
        (206, "rules"),
        (304, "allow"),
        (300, "allow"),
        (400, "allow"),
        (401, "allow"),
        (403, "allow"),
        (404, "allow"),
        (410, "allow"),
        (418, "allow"),
        (429, "disallow"),
        (499, "allow"),
        (500, "disallow"),
        (502, "disallow"),
        (503, "disallow"),
        (599, "disallow"),
        (999, "disallow"),
        (101, "disallow"),
    ],
)
def test_the_class_of_the_status_decides_the_access(status: int, access: str) -> None:
    result = verdict_on(Reply(status))
    assert (result.access, result.status) == (access, status)


@pytest.mark.parametrize("kind", ["timeout", "dns", "refused", "tls", "disconnected"])
def test_a_network_error_means_disallow(kind: str) -> None:
    assert RobotsFetch("http://h").failed(kind) == RobotsFetchResult("disallow", kind)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_across_hosts_for_the_first_origin(status: int) -> None:
    fetch = RobotsFetch("http://h")
    assert fetch.received(redirect(b"https://www.h/robots.txt", status), NOW) is None
    assert fetch.url == "https://www.h/robots.txt"
    assert fetch.received(redirect(b"../other/r.txt?sid=1#f", status), NOW) is None
    assert fetch.url == "https://www.h/other/r.txt?sid=1"
    assert fetch.received(Reply(200, b"x"), NOW) == RobotsFetchResult("rules", "ok", 200, b"x")
    assert fetch.origin == "http://h"


def test_five_redirects_in_a_row_are_followed_and_the_sixth_means_unavailable() -> None:
    fetch = RobotsFetch("http://h")
    for hop in range(MAX_REDIRECTS):
        assert fetch.received(redirect(b"/%d" % hop), NOW) is None
    assert fetch.url == "http://h/4"
    assert fetch.received(redirect(b"/5"), NOW) == RobotsFetchResult("allow", "too_many_redirects", 301)


@pytest.mark.parametrize("location", [b"ftp://h/robots.txt", b"http://", b"data:,x", b"http://[/"])
def test_a_redirect_to_what_cannot_be_requested_means_unavailable(location: bytes) -> None:
    assert verdict_on(redirect(location)) == RobotsFetchResult("allow", "bad_redirect", 301)


def test_a_redirect_without_a_location_means_unavailable() -> None:
    assert verdict_on(Reply(302)) == RobotsFetchResult("allow", "http_302", 302)


def test_an_error_at_the_end_of_redirects_counts_as_if_it_came_at_once() -> None:
    fetch = RobotsFetch("http://h")
    fetch.received(redirect(b"/other"), NOW)
    assert fetch.received(Reply(503), NOW) == DOWN


@pytest.mark.parametrize("truncated", ["time", "disconnect"])
def test_half_a_file_is_no_file(truncated: str) -> None:
    """The missing half may hold the rule that matters: RFC 9309 2.3.1.4, a network error."""
    assert verdict_on(Reply(200, b"User-agent: *\n", truncated=truncated)).access == "disallow"


def test_a_file_beyond_the_limit_is_used_as_far_as_it_was_read() -> None:
    result = RobotsFetch("http://h", max_bytes=8).received(Reply(200, b"a\nb\nc\nd\ne", truncated="length"), NOW)
    assert result == RobotsFetchResult("rules", "ok", 200, b"a\nb\nc\nd\n")


def test_a_coded_body_is_taken_decoded_or_not_at_all() -> None:
    reply = Reply(200, b"\x1f\x8b", headers=((b"Content-Encoding", b"gzip"),))
    assert verdict_on(reply) == RobotsFetchResult("disallow", "content_coding", 200)
    assert verdict_on(reply, b"plain").body == b"plain"
    assert verdict_on(Reply(200, b"plain", headers=((b"content-encoding", b"Identity"),))).body == b"plain"
    in_two_lines = ((b"Content-Encoding", b"identity"), (b"content-encoding", b"gzip"))
    assert verdict_on(Reply(200, b"\x1f\x8b", headers=in_two_lines)).access == "disallow"


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_read_where_the_server_asks_for_patience(status: int) -> None:
    assert verdict_on(Reply(status, headers=((b"retry-after", b"120"),))).retry_after_ms == 120_000
    assert verdict_on(Reply(status, headers=((b"retry-after", b"later"),))).retry_after_ms is None


@pytest.mark.parametrize(
    ("cache_control", "max_age"),
    [
        (b"max-age=60", 60.0),
        (b"public, Max-Age=7200, immutable", 7200.0),
        (b'max-age="60"', 60.0),
        (b"s-maxage=60", None),
        (b"no-store", None),
        (b"max-age=-1", None),
        (b"max-age=9999999999", None),
    ],
)
def test_max_age_is_read(cache_control: bytes, max_age: float | None) -> None:
    assert verdict_on(Reply(200, headers=((b"Cache-Control", cache_control),))).max_age_s == max_age


# how long a record stands


@pytest.mark.parametrize("result", [RULES, GONE])
def test_an_answer_stands_for_a_day(result: RobotsFetchResult) -> None:
    record = next_record(None, result, NOW, 0.5)
    assert record.access == result.access
    assert record.is_fresh(NOW + DAY - 1)
    assert not record.is_fresh(NOW + DAY)


@pytest.mark.parametrize(
    ("max_age_s", "stands_ms"), [(0, HOUR), (60, HOUR), (7200, 2 * HOUR), (10**8, DAY), (None, DAY)]
)
def test_the_servers_max_age_shortens_that_to_an_hour_at_least(max_age_s: float | None, stands_ms: int) -> None:
    result = RobotsFetchResult("rules", "ok", 200, max_age_s=max_age_s)
    assert next_record(None, result, NOW, 0.5).retry_at_ms == NOW + stands_ms


def test_unreachable_means_disallow_and_is_tried_again_after_a_minute_doubling_to_a_day() -> None:
    record, now, rests = None, NOW, []
    for _ in range(14):
        record = next_record(record, DOWN, now, 0.5)
        assert record.access == "disallow"
        assert record.is_fresh(record.retry_at_ms - 1)
        rests.append((record.retry_at_ms - now) / MINUTE)
        now = record.retry_at_ms
    assert rests == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440, 1440, 1440]


@pytest.mark.parametrize(("retry_after_ms", "rest_ms"), [(0, MINUTE), (5_000, MINUTE), (HOUR, HOUR)])
def test_retry_after_lengthens_the_rest(retry_after_ms: int, rest_ms: int) -> None:
    result = RobotsFetchResult("disallow", "http_429", 429, retry_after_ms=retry_after_ms)
    assert next_record(None, result, NOW, 0.5).retry_at_ms == NOW + rest_ms


def test_rules_from_before_are_used_as_long_as_the_file_is_unreachable() -> None:
    """RFC 9309 2.4: a cached copy longer than a day, and 2.3.1.4: even after 30 days."""
    known = next_record(None, RULES, NOW, 0.5)
    record = known
    for day in range(1, 41):
        record = next_record(record, DOWN, NOW + day * DAY, 0.5)
        assert (record.access, record.excerpt, record.fetched_at_ms) == ("rules", RULES.excerpt, NOW)
    assert record.failures == 40
    assert record.unreachable_since_ms == NOW + DAY
    assert record.reason == "http_503"


def test_an_absence_from_before_is_no_copy() -> None:
    known = next_record(None, GONE, NOW, 0.5)
    assert next_record(known, DOWN, NOW + DAY, 0.5).access == "disallow"


def test_after_30_days_unreachable_is_taken_as_unavailable() -> None:
    record = next_record(None, DOWN, NOW, 0.5)
    assert next_record(record, DOWN, NOW + 30 * DAY - 1, 0.5).access == "disallow"
    record = next_record(record, DOWN, NOW + 30 * DAY, 0.5)
    assert record.access == "allow"
    assert next_record(record, DOWN, NOW + 31 * DAY, 0.5).access == "allow"


def test_a_crawl_may_refuse_to_assume_that() -> None:
    policy = RobotsPolicy(assume_unavailable_after_s=None)
    record = next_record(None, DOWN, NOW, 0.5, policy)
    assert next_record(record, DOWN, NOW + 300 * DAY, 0.5, policy).access == "disallow"


@pytest.mark.parametrize("result", [RULES, GONE])
def test_any_answer_ends_the_count_of_failures(result: RobotsFetchResult) -> None:
    record = next_record(next_record(None, DOWN, NOW, 0.5), result, NOW + MINUTE, 0.5)
    assert (record.access, record.failures, record.unreachable_since_ms) == (result.access, 0, None)


attempts = st.tuples(st.sampled_from([RULES, GONE, DOWN]), st.integers(0, 3 * DAY), st.floats(0, 1))


@given(st.lists(attempts, min_size=1, max_size=30))
def test_through_any_history_access_follows_from_what_was_seen(
    history: list[tuple[RobotsFetchResult, int, float]],
) -> None:
    record, now, copy = None, NOW, b""
    for result, pause_ms, rand in history:
        now += pause_ms
        record = next_record(record, result, now, rand)
        copy = result.excerpt if result is RULES else b"" if result is GONE else copy
        assert now < record.retry_at_ms <= now + DAY
        assert record.excerpt == copy
        assert (record.access == "rules") == bool(copy)
        if result.access == "disallow" and record.access == "allow":
            assert now - (record.unreachable_since_ms or now) >= 30 * DAY
        assert RobotsRecord.unpack(record.pack()) == record


# storing


def test_a_record_survives_packing_and_stays_small() -> None:
    record = next_record(None, DOWN, NOW, 0.5)
    assert RobotsRecord.unpack(record.pack()) == record
    assert len(next_record(None, GONE, NOW, 0.5).pack()) < 60


@pytest.mark.parametrize("packed", [b"", b"\x00", b"\x02abc", b"\x01", b"\x01\x90", b"\x01abc"])
def test_bytes_of_another_make_are_refused(packed: bytes) -> None:
    with pytest.raises(BadRecord):
        RobotsRecord.unpack(packed)


@given(st.binary(max_size=60))
def test_unpack_raises_nothing_but_bad_record(data: bytes) -> None:
    for packed in (data, next_record(None, GONE, NOW, 0.5).pack()[:1] + data):
        try:
            RobotsRecord.unpack(packed)
        except BadRecord:
            continue
