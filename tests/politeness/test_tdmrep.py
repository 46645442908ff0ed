"""The examples of the TDM Reservation Protocol (Final Community Group Report of 10 May 2024), and its priorities."""

from __future__ import annotations

import time

import msgspec
import pytest

from politeness.robots_fetch import DEFAULT_POLICY, RobotsFetchResult, RobotsRecord, next_record
from politeness.robots_syntax import MAX_BODY, BadRecord
from politeness.tdmrep import MAX_RULES, Reservation, TdmFetch, TdmFile, last_statement, with_tdm
from politeness.usage import combined
from tests.fuzz.targets import RobotsResponse

POLICY = "https://provider.com/policies/policy.json"
WHOLE_SITE = b'[ { "location": "/", "tdm-reservation": 1 } ]'
DIRECTORIES = b"""[
  { "location": "/directory-a/", "tdm-reservation": 1 },
  { "location": "/directory-b/html/", "tdm-reservation": 1, "tdm-policy":"https://provider.com/policies/policy.json" },
  { "location": "/directory-b/images/*.jpg", "tdm-reservation": 0 }
]"""


def found(body: bytes, path: str) -> tuple[bool | None, str] | None:
    """The reservation and the policy for `path`, after the file was stored and loaded."""
    said = TdmFile.unpack(TdmFile.parse(body).pack()).reservation("https://provider.com" + path)
    return None if said is None else (said.is_reserved, said.policy)


@pytest.mark.parametrize(
    ("body", "path", "expected"),
    [
        (WHOLE_SITE, "/any/page", (True, "")),
        (DIRECTORIES, "/directory-a/x.pdf", (True, "")),
        (DIRECTORIES, "/directory-b/html/x", (True, POLICY)),
        (DIRECTORIES, "/directory-b/images/x/y.jpg", (False, "")),
        (DIRECTORIES, "/directory-b/images/x.png", None),
        (DIRECTORIES, "/", None),
        (b"\xef\xbb\xbf" + WHOLE_SITE, "/any/page", (True, "")),  # RFC 8259 8.1 allows to ignore a byte order mark
        # The first match is the most specific one.
        (b'[{"location":"/","tdm-reservation":0},{"location":"/a","tdm-reservation":1}]', "/a", (False, "")),
        # The special characters of robots.txt, and escapes
        (b'[{"location":"/this/path/exactly$","tdm-reservation":1}]', "/this/path/exactly", (True, "")),
        (b'[{"location":"/this/path/exactly$","tdm-reservation":1}]', "/this/path/exactly/not", None),
        (b'[{"location":"/this/*/then","tdm-reservation":1}]', "/this/and/then", (True, "")),
        (b'[{"location":"/path/foo-%24","tdm-reservation":1}]', "/path/foo-$", (True, "")),
        # Other values are protocol errors: unset
        (b'[{"location":"/","tdm-reservation":2}]', "/", (None, "")),
        (b'[{"location":"/","tdm-reservation":true}]', "/", (None, "")),
        (b'[{"location":"/","tdm-reservation":"1"}]', "/", (None, "")),
        # What cannot be parsed
        (b'{"location":"/","tdm-reservation":1}', "/", None),
        (b'[1,"x",null,{"location":1},{},{"location":"/","tdm-reservation":1}]', "/", (True, "")),
        (b"[" * 100_000, "/", None),
        (b"\xff\xfe", "/", None),
        (b"", "/", None),
    ],
)
def test_the_file(body: bytes, path: str, expected: tuple[bool | None, str] | None) -> None:
    assert found(body, path) == expected


def test_only_so_many_rules_are_read() -> None:
    body = b"[" + b'{"location":"/x"},' * MAX_RULES + b'{"location":"/a","tdm-reservation":1}]'
    assert found(body, "/a") is None
    assert len(TdmFile.parse(body)) == MAX_RULES


def test_damaged_rules_are_refused() -> None:
    with pytest.raises(BadRecord):
        TdmFile.unpack(b"\xc1")


def header(reservation: str | None, policy: str = "") -> Reservation:
    said = {b"tdm-policy": policy} | ({} if reservation is None else {b"tdm-reservation": reservation})
    return Reservation.of(said, "header")


def usage(*places: Reservation) -> tuple[str, str, str]:
    said, policy = last_statement(places)
    combination = combined([said] if said else [], policy)
    return str(combination), "".join(combination.statements), combination.tdm_policy


def test_the_examples_of_the_header() -> None:
    assert usage(header("1")) == ("train-ai=n, ai-use=n", "header: tdm-reservation: 1", "")
    assert usage(header("1", POLICY)) == ("train-ai=n, ai-use=n", "header: tdm-reservation: 1", POLICY)
    assert usage(header("0", POLICY)) == ("train-ai=y", "header: tdm-reservation: 0", "")
    for broken in (None, "", "2", "true", "1, 0"):
        assert usage(header(broken, POLICY)) == ("", "", "")


def test_later_places_supersede_earlier_ones_but_their_silence_does_not() -> None:
    """Processing priority: the file, then the header, then the page."""
    file = Reservation(True, POLICY, "tdmrep.json rule 1")
    page = Reservation.of({b"tdm-reservation": "0"}, "meta")
    assert usage(file, header("0"))[0] == "train-ai=y"
    assert usage(file, header(None))[0] == "train-ai=n, ai-use=n"
    assert usage(file, header("1", "https://a.test/p")) == (
        "train-ai=n, ai-use=n",
        "header: tdm-reservation: 1",
        "https://a.test/p",
    )
    assert usage(file, header("1"))[2] == POLICY
    assert usage(file, header("1"), page)[0] == "train-ai=y"


def test_a_policy_that_is_no_url_is_left_out() -> None:
    for policy in ("x" * 3_000, "a\nb", "\ud800", "a b", "https://a.test/\x85b", "ftp://a.test/"):
        assert header("1", policy).policy == ""


def test_a_policy_is_in_canonical_form() -> None:
    assert (
        header("1", "HTTPS://München.Example:443/p?sid=1#part").policy == "https://xn--mnchen-3ya.example/p?sid=1#part"
    )


def response(
    status: int, body: bytes = WHOLE_SITE, *headers: tuple[bytes, bytes], truncated: str | None = None
) -> RobotsResponse:
    return RobotsResponse(status, headers, body, truncated)


def test_the_file_is_fetched_through_redirects_within_the_origin() -> None:
    fetch = TdmFetch("https://provider.com")
    assert fetch.url == "https://provider.com/.well-known/tdmrep.json"
    assert repr(fetch).startswith("<TdmFetch https://provider.com ")
    assert fetch.received(response(301, b"", (b"Location", b"/rules.json")), 0) is None
    assert fetch.url == "https://provider.com/rules.json"
    assert tdm_after(fetch.received(response(200), 0)) == (TdmFile.parse(WHOLE_SITE).pack(), 0)
    for target in (b"https://other.com/rules.json", b"http://provider.com/rules.json", b"https://provider.com:444/"):
        elsewhere = TdmFetch("https://provider.com").received(response(302, b"", (b"Location", target)), 0)
        assert tdm_after(elsewhere) == (b"", 0)


KNOWN = TdmFile.parse(DIRECTORIES).pack()


def tdm_after(result: RobotsFetchResult | None, known: bytes | None = None) -> tuple[bytes | None, int]:
    """What is known of the file after `result`, if it was `known` before, and how often it has failed."""
    assert result is not None
    after = with_tdm(RobotsRecord("rules", "ok", 200, 0, 100, tdm=known), result, 50, 0.5, DEFAULT_POLICY)
    assert after.tdm_retry_at_ms > 50
    return after.tdm, after.tdm_failures


def test_a_file_that_is_missing_is_none_and_one_that_is_unreachable_unknown() -> None:
    def received(answer: RobotsResponse) -> RobotsFetchResult | None:
        return TdmFetch("https://provider.com").received(answer, 0)

    for missing in (404, 410, 403, 401):
        assert tdm_after(received(response(missing)), KNOWN) == (b"", 0)
    long = response(200, WHOLE_SITE + b" " * MAX_BODY)
    for failed in (response(503), response(429), response(200, truncated="time"), long):
        assert tdm_after(received(failed)) == (None, 1)
        assert tdm_after(received(failed), KNOWN) == (KNOWN, 1)
        assert tdm_after(received(failed), b"") == (None, 1)  # an earlier 404 is not a copy of the file
    assert tdm_after(TdmFetch("https://provider.com").failed("timeout"), KNOWN) == (KNOWN, 1)


def test_what_is_known_of_the_file_outlasts_the_record_of_robots_txt() -> None:
    before = RobotsRecord("rules", "ok", 200, 0, 100, tdm=KNOWN, tdm_failures=2, tdm_retry_at_ms=90)
    for result in (RobotsFetchResult("allow", "http_404", 404), RobotsFetchResult("disallow", "timeout")):
        after = next_record(before, result, 100, 0.5)
        assert (after.tdm, after.tdm_failures, after.tdm_retry_at_ms) == (KNOWN, 2, 90)


def test_the_time_of_a_search_is_bounded_for_any_file_and_url() -> None:
    """A thousand rules of 260 characters that nearly match, which are not tried one by one: they count as a match."""
    places = ["a" * place + "b" + "a" * (257 - place) for place in range(100)] * 10
    listed = [{"location": f"/*{one}*z", "tdm-reservation": 1} for one in places]
    file = TdmFile.parse(msgspec.json.encode(listed))
    assert file.reservation("https://a.test/" + "a" * 2_000) == Reservation(True, "", "tdmrep.json rule 1")
    assert file.reservation("https://a.test/" + "a" * 100) is None
    assert cpu_s(file, "https://a.test/" + "a" * 2_000) < 0.015


def test_a_search_that_takes_too_long_assumes_a_reservation() -> None:
    """Only one of an earlier rule than the plain one that matches, because the first match counts."""
    hard = [{"location": "/*" + "a" * 120 + f"b{'a' * 60}c*{number}", "tdm-reservation": 1} for number in range(900)]
    url = "https://a.test/" + ("a" * 120 + "b" + "a" * 60 + "c") * 10 + "!"
    free = {"location": "/", "tdm-reservation": 0}
    after = TdmFile.parse(msgspec.json.encode([*hard, free])).reservation(url)
    assert after is not None
    assert after.is_reserved
    before = TdmFile.parse(msgspec.json.encode([free, *hard])).reservation(url)
    assert before is not None
    assert before.is_reserved is False


def cpu_s(file: TdmFile, url: str) -> float:
    """The least CPU time of three searches, in seconds."""
    times = []
    for _ in range(3):
        began = time.process_time()
        file.reservation(url)
        times.append(time.process_time() - began)
    return min(times)
