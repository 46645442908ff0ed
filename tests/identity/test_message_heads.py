"""The head of a request as a site reads it: what counts as a header field, and which heads are refused as ambiguous."""

from __future__ import annotations

import pytest

from crawler.identity.published import LONGEST_HEAD
from crawler.identity.signatures import Message, NotDecided, NotValid
from crawler.identity.web_bot_auth import RequestSigner, check_request
from tests.identity.signed_requests import DIRECTORY, NOW, rfc_key

KEY = rfc_key()


def signature(host: str = "a.test", target: str = "/x?y=1") -> str:
    """The lines that sign a GET of `target` at `host`."""
    return RequestSigner(KEY, DIRECTORY, 60)("GET", host, target, NOW).decode()


def verify(head: str) -> str:
    """Check the signature of `head`, and return its nonce."""
    (found,) = check_request(Message.from_head(head), lambda _: {KEY.thumbprint: KEY.public}, NOW)
    return found.nonce


START = "GET /x?y=1 HTTP/1.1\r\nHost: a.test\r\n"


def test_lines_of_the_body_are_not_header_fields() -> None:
    assert verify(f"{START}{signature()}\r\nHost: b.test\r\n")
    for host in ("b.test", "a.test"):
        with pytest.raises(NotDecided, match="not signed"):
            verify(f"POST / HTTP/1.1\r\nHost: {host}\r\n\r\nHost: a.test\r\n{signature()}\r\n")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (f"{START}Host: b.test\r\n{signature()}\r\n", "the field host twice"),
        (f"{START}{signature()}host: a.test\r\n\r\n", "the field host twice"),
        (f"{START}Content-Type: a/b\r\nContent-Type: c/d\r\n{signature()}\r\n", "the field content-type twice"),
        (f"{START}Host : b.test\r\n{signature()}\r\n", "not a header field: 'Host : b.test'"),
        (f"{START}nothing\r\n{signature()}\r\n", "not a header field: 'nothing'"),
        (f"{START}X: y\rHost: b.test\r\n{signature()}\r\n", "not a header field"),
        (f"Host : b.test\r\n{START}{signature()}\r\n", "not a header field"),
        (f"GET /x HTTP/1.1\r\n Host: b.test\r\nHost: a.test\r\n{signature()}\r\n", "not a header field"),
        (f"GET http://b.test/x HTTP/1.1\r\nHost: a.test\r\n{signature()}\r\n", "two hosts: b.test"),
        (f"{START}X: {'y' * LONGEST_HEAD}"[:LONGEST_HEAD], "longer than 65,536 bytes"),
    ],
)
def test_a_head_that_can_be_read_in_several_ways_is_not_decided(head: str, said: str) -> None:
    with pytest.raises(NotDecided, match=said):
        verify(head)


@pytest.mark.parametrize("target", ["http://a.test/x?y=1", "HTTPS://A.TEST/x?y=1", "http://a.test:80/x?y=1"])
def test_the_target_can_be_an_absolute_url(target: str) -> None:
    """As in a request to a proxy (RFC 9112 3.2.2)."""
    assert verify(f"GET {target} HTTP/1.1\r\nHost: a.test\r\n{signature()}\r\n")
    with pytest.raises(NotValid):
        verify(f"GET {target} HTTP/1.1\r\nHost: a.test\r\n{signature(target='/z')}\r\n")


@pytest.mark.parametrize("target", ["http://a.test", "http://a.test/"])
def test_an_absolute_url_without_a_path_has_the_path_of_the_root(target: str) -> None:
    assert verify(f"GET {target} HTTP/1.1\r\nHost: a.test\r\n{signature(target='/')}\r\n")


def test_a_field_can_be_folded() -> None:
    """Each fold counts as a space (RFC 9421 2.1)."""
    folded = signature().replace('"@method" ', '"@method"\r\n\t ').replace("Signature: ", "Signature:\r\n ")
    assert folded.count("\r\n") == 5
    assert verify(f"{START}{folded}\r\n")


def test_a_structured_field_can_have_several_lines() -> None:
    others = 'Signature-Agent: a="https://b.test"\r\nSignature-Input: a=("@path");tag="b"\r\nSignature: a=:AAAA:\r\n'
    assert verify(f"{START}{others}{signature()}\r\n")
    assert verify(f"{START}{signature()}{others}\r\n")
