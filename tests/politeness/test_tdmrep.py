"""The examples of the TDM Reservation Protocol (Final Community Group Report of 10 May 2024), and its priorities."""

from __future__ import annotations

import pytest

from politeness.errors import BadRecord
from politeness.tdmrep import MAX_RULES, Reservation, TdmFetch, TdmFile, statement
from politeness.usage_preferences import combined
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
    said, policy = statement(places)
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
    for policy in ("x" * 3_000, "a\nb", "\ud800", "a b"):
        assert header("1", policy).policy == ""


def response(
    status: int, body: bytes = WHOLE_SITE, *headers: tuple[bytes, bytes], truncated: str | None = None
) -> RobotsResponse:
    return RobotsResponse(status, headers, body, truncated)


def test_the_file_is_fetched_through_redirects_and_a_failure_means_that_there_is_none() -> None:
    fetch = TdmFetch("https://provider.com")
    assert fetch.url == "https://provider.com/.well-known/tdmrep.json"
    assert fetch.found(response(301, b"", (b"Location", b"/rules.json")), 0) is None
    assert fetch.url == "https://provider.com/rules.json"
    rules = fetch.found(response(200), 0)
    assert rules is not None
    assert len(rules) == 1
    for failed in (response(404), response(503), response(429), response(200, truncated="time")):
        nothing = TdmFetch("https://provider.com").found(failed, 0)
        assert nothing is not None
        assert len(nothing) == 0
