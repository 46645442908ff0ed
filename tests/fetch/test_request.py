"""The bytes of a request."""

from __future__ import annotations

import pytest

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.request_rules import Origin, header_lines

FIELDS = b"User-Agent: t/1\r\n"


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://a.test", b"a.test"),
        ("http://a.test:80", b"a.test"),
        ("https://a.test:443", b"a.test"),
        ("https://a.test:8443", b"a.test:8443"),
        ("http://a.test.", b"a.test"),
        ("http://[2001:db8::1]:8080", b"[2001:db8::1]:8080"),
        ("http://name:secret@a.test", b"a.test"),
    ],
)
def test_the_host_field_names_the_host_and_an_unusual_port(origin: str, host: bytes) -> None:
    head = Origin.parse(origin).request_head("/x?y", FIELDS)
    assert head == b"GET /x?y HTTP/1.1\r\nHost: " + host + b"\r\n" + FIELDS + b"\r\n"


def test_connections_are_kept_apart_by_host_port_and_tls() -> None:
    origins = ["http://a.test", "https://a.test", "http://a.test:8080", "http://b.test", "http://[::1]"]
    assert len({Origin.parse(origin).key for origin in origins}) == len(origins)
    assert Origin.parse("http://a.test:80").key == Origin.parse("http://a.test").key


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/a\0", "/a\x7f", "/\ud800"])
def test_a_target_that_would_break_the_request_line_is_refused(target: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        Origin.parse("http://a.test").request_head(target, FIELDS)
    assert caught.value.kind is FailureKind.BAD_URL


@pytest.mark.parametrize("field", [("If-None-Match", '"\r\nX: y"'), ("A\nB", "c"), ("A", "\0"), ("A", "\x7f")])
def test_a_field_that_would_break_its_line_is_refused(field: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="control character"):
        header_lines([field])
    with pytest.raises(FetchFailed) as caught:
        Origin.parse("http://a.test").request_head("/", FIELDS, [field])
    assert caught.value.kind is FailureKind.BAD_URL


def test_a_tab_belongs_in_a_field() -> None:
    assert header_lines([("A", "b\tc")]) == b"A: b\tc\r\n"
