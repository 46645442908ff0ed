"""Heads of responses: what is read from lines as they come, and which values other readers might still find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.http_head import Head, parse_head, redacted, renamed

OK = b"HTTP/1.1 200 OK\r\n"
LAST = b"Content-Type: text/html"


@pytest.mark.parametrize(
    ("data", "status", "fields", "is_regular"),
    [
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 200, ((b"A", b"b"),), True),
        (b"HTTP/1.1 404\nA:b\nC:  d \n\n", 404, ((b"A", b"b"), (b"C", b"d")), True),
        (b"HTTP/2 200\r\nA: b\r\n\r\n", 200, ((b"A", b"b"),), False),
        (b"HTTP/1.1 200 OK\r\nA: b", 200, ((b"A", b"b"),), False),
        (b"nonsense", 0, (), False),
        (b"", 0, (), False),
    ],
)
def test_heads(data: bytes, status: int, fields: tuple[tuple[bytes, bytes], ...], is_regular: bool) -> None:
    head = parse_head(data)
    assert (head.status, head.fields, head.is_regular) == (status, fields, is_regular)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (b"X-XSS-Protection=1;", []),
        (b'"X-XSS-Protection: 0"', []),
        (b"nosniff", []),
        (b"<br />", []),
        (b"PHP Warning:  Module already loaded", []),
        (b"X Powered By: PHP", []),
        (b"X-(Name): x", []),
        ("\u2018x\u2019: *".encode(), []),
        (b": value", []),
        (b":", []),
        (b"\r", []),
        (b"X-Frame-Options : DENY", [(b"X-Frame-Options", b"DENY")]),
        (b"X-Frame-Options\t:DENY", [(b"X-Frame-Options", b"DENY")]),
        (b"\rX-A: 1", [(b"X-A", b"1")]),
        (b"X-Note: one\rtwo\r", [(b"X-Note", b"one two")]),
        (b"X-Session: ab\0cd\0", [(b"X-Session", b"ab cd")]),
        (b"X-Long: first\r\n\t second\r\n \r\n  third", [(b"X-Long", b"first second third")]),
        (b"no field\r\n X-A: 1", []),
        (b"default-src *;\r\nimg-src 'self'\r\nX-A: 1", [(b"X-A", b"1")]),
        (b"Pragma: no-cache\x01", [(b"Pragma", b"no-cache\x01")]),
    ],
)
def test_an_odd_line_is_repaired_or_dropped_and_the_rest_is_read(
    line: bytes, fields: list[tuple[bytes, bytes]]
) -> None:
    head = parse_head(OK + b"A: 1\r\n" + line + b"\r\n" + LAST + b"\r\n\r\n")
    assert head.fields == ((b"A", b"1"), *fields, (b"Content-Type", b"text/html"))
    assert not head.is_regular


def test_what_is_folded_into_the_status_line_is_dropped() -> None:
    head = parse_head(OK + b" X-A: 1\r\n\tX-B: 2\r\n" + LAST + b"\r\n\r\n")
    assert (head.fields, head.is_regular) == (((b"Content-Type", b"text/html"),), False)


def test_the_reason_and_the_version() -> None:
    head = parse_head(b"HTTP/1.0 404 Not\0 Found \r\n\r\n")
    assert (head.reason, head.version, head.is_regular) == ("Not  Found", "1.0", False)
    assert [parse_head(b"HTTP/%b 200\r\n\r\n" % number).version for number in (b"0.9", b"1", b"1.11", b"2", b"3.0")] == [
        "1.0", "1.0", "1.1", "1.1", "1.1"
    ]  # fmt: skip


def test_fields_of_a_list_may_come_in_several_lines() -> None:
    head = parse_head(b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\nContent-Encoding: gzip\r\n\r\n")
    assert (head.get(b"content-encoding"), head.get_list(b"content-encoding")) == ("br", "br, gzip")
    assert (head.get(b"location"), head.get_list(b"location")) == (None, "")


COOKIES = (
    b"Set-Cookie: SECRET",
    b"set-cookie:SECRET; Path=/",
    b"Set-Cookie\t: SECRET",
    b"Set-Cookie : a=1;\r\n b=SECRET\r\n\tc=SECRET",
    b"Set-Cookie:\r\n SECRET",
    b" Set-Cookie: SECRET",
    b" Set-Cookie: a=1;\r\n b=SECRET",
    b"Set-Cookie=SECRET",
    b"Set Cookie: SECRET",
    b'"Set-Cookie: SECRET"',
    b"Set-\0Cookie: SECRET",
    b"\rSet-Cookie: SECRET",
    b"\0Set-Cookie: SECRET",
    b"X-A: 1\rSet-Cookie: SECRET",
    b"X-A: 1\r\n Set-Cookie: SECRET",
    b"Set-Cookie: a=1;\r\nSECRET; Path=/",
    b": Set-Cookie: SECRET",
)


@pytest.mark.parametrize("cookie", COOKIES)
@pytest.mark.parametrize("before", [b"", b"A: 1\r\n"], ids=["first", "later"])
def test_no_form_of_a_hidden_field_is_shown(cookie: bytes, before: bytes) -> None:
    head = OK + before + cookie + b"\r\n" + LAST + b"\r\nVary: Cookie\r\n\r\n"
    shown = redacted(head, {b"set-cookie"}, b"[redacted]")
    assert b"SECRET" not in shown
    assert b"[redacted]" in shown
    assert shown.startswith(OK + before[:2])
    assert shown.endswith(b"\r\n" + LAST + b"\r\nVary: Cookie\r\n\r\n")


def test_what_a_bare_cr_hides_in_the_status_line_is_not_shown() -> None:
    shown = redacted(b"HTTP/1.1 200 OK\rSet-Cookie: SECRET\r\nA: 1\r\n\r\n", {b"set-cookie"}, b"[redacted]")
    assert shown == b"HTTP/1.1 200 OK\r[redacted]\nA: 1\r\n\r\n"


def test_other_lines_are_shown_as_they_came() -> None:
    head = OK + b"Cookie-Policy: a\r\nX-Long: b\r\n c\r\nX-A : 1\n" + LAST + b"\r\n\r\n"
    assert redacted(head, {b"set-cookie"}, b"[redacted]") == head
    request = b"GET /cookie HTTP/1.1\r\nHost: a.test\r\nCookie: SECRET\r\n\r\n"
    assert redacted(request, {b"cookie"}, b"[redacted]") == request.replace(b"SECRET", b"[redacted]")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"transfer-encoding: chunked", b"X-Crawler-transfer-encoding: chunked"),
        (b"Transfer-Encoding\t: chunked", b"X-Crawler-Transfer-Encoding\t: chunked"),
        (b" Transfer-Encoding: chunked", b" X-Crawler-Transfer-Encoding: chunked"),
        (b'"Transfer-Encoding": chunked', b'"X-Crawler-Transfer-Encoding": chunked'),
        (b"X-A: 1\rTransfer-Encoding: chunked", b"X-A: 1\rX-Crawler-Transfer-Encoding: chunked"),
        (b"X-Transfer-Encoding: chunked", b"X-Transfer-Encoding: chunked"),
        (b"X-A: Transfer-Encoding: chunked", b"X-A: Transfer-Encoding: chunked"),
    ],
)
def test_a_field_is_renamed_wherever_a_reader_may_find_it(line: bytes, shown: bytes) -> None:
    assert renamed(OK + line + b"\r\n\r\n", (b"transfer-encoding",), b"X-Crawler-") == OK + shown + b"\r\n\r\n"


@given(
    st.lists(
        st.sampled_from(
            [b"Set-Cookie", b":", b" ", b"\t", b"\r", b"\n", b"\r\n", b"\0", b"X", b"a=SECRET", b'"', b";"]
        ),
        max_size=20,
    )
)
def test_a_head_without_hidden_values_has_no_field_that_shows_one(parts: list[bytes]) -> None:
    """The redacted head is read as the original one, but for the values."""
    head = OK + b"".join(parts) + b"\r\n\r\n"
    before = parse_head(head)
    after = parse_head(redacted(head, {b"set-cookie"}, b"[redacted]"))
    assert [name for name, _ in after.fields] == [name for name, _ in before.fields]
    assert {value for name, value in after.fields if name == b"Set-Cookie"} <= {b"[redacted]"}


def test_a_head_needs_a_status_line() -> None:
    assert parse_head(b"\r\nHTTP/1.1 200 OK\r\n\r\n") == Head(0, (), is_regular=False)
