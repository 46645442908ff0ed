"""The reader of responses: what it takes from the bytes, wherever they are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.response import MAX_CHUNK_OVERHEAD, MAX_INTERIM_RESPONSES, MOST_LINES, ResponseReader

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

RESPONSES = {  # bytes, head, body, whether another response may follow
    "length": (OK + b"Content-Length: 3\r\n\r\nabc", OK + b"Content-Length: 3\r\n\r\n", b"abc", True),
    "bare-lf": (b"HTTP/1.1 200 OK\nContent-Length: 1\n\na", b"HTTP/1.1 200 OK\nContent-Length: 1\n\n", b"a", True),
    "blank-lines": (b"\n\r\n\r\n" + CHUNKED + b"0\r\n\r\n", CHUNKED, b"", True),
    "bom": (b"\xef\xbb\xbf" + CHUNKED + b"0\r\n\r\n", CHUNKED, b"", False),
    "space": (b"\r\n " + CHUNKED + b"0\r\n\r\n", CHUNKED, b"", False),
    "interim": (EARLY + b"\r\n" + EARLY + CHUNKED + b"0\r\n\r\n", CHUNKED, b"", True),
    "chunks": (CHUNKED + b"1\r\na\r\n00A;x=\"y;z\"\r\n0123456789\r\n0\r\n\r\n", CHUNKED, b"a0123456789", True),
    "bare-lf-chunks": (CHUNKED + b"2 \t\n\r\n\n0;x\n\n", CHUNKED, b"\r\n", True),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\nA: b\r\nC: d\r\n\r\n", CHUNKED, b"a", True),
    "no-content": (b"HTTP/1.1 204\r\n\r\n", b"HTTP/1.1 204\r\n\r\n", b"", True),
    "not-modified": (
        b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n", b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n", b"", True
    ),
    "not-modified-chunked": (
        b"HTTP/1.1 304 X\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 304 X\r\nTransfer-Encoding: chunked\r\n\r\n", b"", True
    ),
    "close": (OK + b"Content-Length: 1\r\nConnection: close\r\n\r\na", None, b"a", False),
}  # fmt: skip


def _read(*pieces: bytes, max_head_bytes: int = 1000, max_body_bytes: int = 1000) -> tuple[ResponseReader, bool]:
    reader = ResponseReader(max_head_bytes, max_body_bytes)
    is_over = [reader.feed(piece) for piece in pieces][-1]
    while reader.is_resting:
        is_over = reader.feed(b"")
    return reader, is_over


@given(case=st.sampled_from(sorted(RESPONSES)), cuts=st.sets(st.integers(1, 120)))
def test_the_cuts_between_segments_change_nothing(case: str, cuts: set[int]) -> None:
    data, head, body, is_clean = RESPONSES[case]
    at = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(at)]
    reader, is_over = _read(*pieces)
    assert (is_over, reader.is_whole, reader.is_clean) == (True, True, is_clean)
    assert (reader.head, reader.body) == (data[: len(data) - len(body)] if head is None else head, body)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    reader, is_over = _read(OK + b"\r\n", b"ab", b"c")
    assert (is_over, reader.is_whole) == (False, False)
    reader.close()
    assert (reader.is_whole, reader.is_clean, reader.body) == (True, False, b"abc")


def test_a_body_in_one_piece_is_not_copied() -> None:
    body = b"x" * 500
    reader, _ = _read(OK + b"Content-Length: 500\r\n\r\n", body)
    assert reader.body is body


@pytest.mark.parametrize("data", [OK, OK + b"Content-Length: 2\r\n\r\na", CHUNKED + b"1\r\na\r\n"])
def test_an_incomplete_response_stays_incomplete(data: bytes) -> None:
    reader, is_over = _read(data)
    reader.close()
    assert (is_over, reader.is_whole, reader.is_clean) == (False, False, False)


@pytest.mark.parametrize(
    "data", [OK + b"Content-Length: 1\r\n\r\nab", CHUNKED + b"1\r\na\r\n0\r\n\r\nx"], ids=["length", "chunked"]
)
def test_a_byte_behind_the_response_makes_the_connection_unclean(data: bytes) -> None:
    reader, is_over = _read(data)
    assert (is_over, reader.is_whole, reader.is_clean) == (True, True, False)


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 4\r\n\r\nabcd", b"\r\nabcd", b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd"]
)
def test_a_body_is_cut_at_the_limit(framing: bytes) -> None:
    reader, is_over = _read(OK + framing, max_body_bytes=3)
    assert (is_over, reader.is_too_long, reader.is_clean, reader.body) == (True, True, False, b"abc")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\r\n" * 501, FailureKind.HEADER_TOO_LARGE),
        (OK + b"a: " + b"b" * 1000, FailureKind.HEADER_TOO_LARGE),
        (EARLY * 2 + OK + b"a: " + b"b" * (1000 - 2 * len(EARLY)), FailureKind.HEADER_TOO_LARGE),
        (EARLY * (MAX_INTERIM_RESPONSES + 1), FailureKind.PROTOCOL),
        (b"HTTX", FailureKind.PROTOCOL),
        (b"HTTP/1.1 099\r\n\r\n", FailureKind.PROTOCOL),
        (b"HTTP/1.1 OK\r\n\r\n", FailureKind.PROTOCOL),
        (b"HTTP/1.1 2000 OK\r\n\r\n", FailureKind.PROTOCOL),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", FailureKind.PROTOCOL),
        (OK + b"Content-Length: 1, 2\r\n\r\n", FailureKind.PROTOCOL),
    ],
)  # fmt: skip
def test_a_head_that_breaks_a_rule_is_refused(data: bytes, kind: FailureKind) -> None:
    with pytest.raises(FetchFailed) as caught:
        _read(data)
    assert caught.value.kind is kind
    assert caught.value.request_sent


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (b"Content-Length: 3\r\nContent-Length: 3", b"abc"),
        (b"Content-Length: 3, 3", b"abc"),
        (b"Content-Length: +3", b"abc"),
        (b"Content-Length : 3", b"abc"),
        (b"Content-Length:\r\n 3", b"abc"),
        (b"Content-Length: 3\0", b"abc"),
        (b"Content-Length: abc\r\nContent-Length: 3", b"abc"),
        (b"Content-Length: 9\r\nTransfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\nContent-Length: 2", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: identity, Chunked,", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"Transfer-Encoding\t: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: identity\r\nContent-Length: 3", b"abc"),
        (b"Transfer-Encoding: none\r\nContent-Length: 3", b"abc"),
        (b"X-XSS-Protection=1;\r\nContent-Length: 3", b"abc"),
        (b" Transfer-Encoding: chunked\r\nContent-Length: 3", b"abc"),
        (b"X-Long: a\r\n b\r\nContent-Length: 3", b"abc"),
        (b"X-Control: a\x01\r\nContent-Length: 3", b"abc"),
    ],
)
def test_odd_framing_is_read_and_ends_the_connection(fields: bytes, body: bytes) -> None:
    reader, is_over = _read(OK + fields + b"\r\n\r\n" + body)
    assert (is_over, reader.is_whole, reader.is_clean, reader.body) == (True, True, False, b"abc")


@pytest.mark.parametrize("value", [b"-1", b"", b"x", b"3 bytes", b"0x3", b"9" * 19, b"9" * 900])
def test_a_length_that_is_no_number_does_not_count(value: bytes) -> None:
    reader, _ = _read(OK + b"Content-Length: " + value + b"\r\n\r\nabc")
    reader.close()
    assert (reader.is_whole, reader.is_clean, reader.body) == (True, False, b"abc")


def test_an_odd_interim_response_ends_the_connection() -> None:
    reader, is_over = _read(b"HTTP/1.1 103 Early\r\nno field\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na")
    assert (is_over, reader.is_whole, reader.is_clean) == (True, True, False)


@pytest.mark.parametrize(
    ("start", "is_clean"),
    [
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\n", False),
        (b"HTTP/2 200 OK\r\n", False),
        (b"http/1.1 200 OK\r\n", False),
        (b"HTTP/1.1\t200  OK\r\n", False),
        (b"HTTP/1.1 200OK\r\n", False),
    ],
)
def test_only_a_regular_status_line_keeps_the_connection(start: bytes, is_clean: bool) -> None:
    reader, is_over = _read(start + b"Content-Length: 1\r\n\r\na")
    assert reader.message is not None
    assert (is_over, reader.message.status, reader.is_clean) == (True, 200, is_clean)


@pytest.mark.parametrize(
    "chunk",
    [
        b"\r\n", b"Z\r\n", b"-1\r\n", b"0x1\r\n", b"1 1\r\n", b"0" * 17 + b"\r\n", b"1\r\nab\r\n",
        b"0" * (MAX_CHUNK_OVERHEAD + 1),
        b"1;" + b"x" * MAX_CHUNK_OVERHEAD,
        *[(b"1;" + b"x" * 1000 + b"\r\na\r\n") * 20],
    ],
)  # fmt: skip
def test_a_chunk_that_breaks_a_rule_ends_the_body(chunk: bytes) -> None:
    reader = ResponseReader(1000, 1000)
    with pytest.raises(FetchFailed):
        reader.feed(CHUNKED + b"4\r\ngood\r\n" + chunk)
    assert reader.message is not None
    assert reader.body.startswith(b"good")
    assert not reader.is_whole


def test_small_chunks_with_short_extensions_are_no_overhead() -> None:
    reader, _ = _read(CHUNKED + b"1;a=b\r\nx\r\n" * 100_000 + b"0\r\n\r\n", max_body_bytes=1 << 20)
    assert (reader.is_clean, len(reader.body)) == (True, 100_000)


@pytest.mark.parametrize("piece", [1 << 20, 65_536, 1_400])
def test_a_body_of_short_lines_rests_and_is_whole(piece: int) -> None:
    """A million of its bytes took 1.4 s at once."""
    data = CHUNKED + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"
    reader, rests = ResponseReader(1000, 1 << 20), 0
    for at in range(0, len(data), piece):
        before = len(reader.body)
        is_over = reader.feed(data[at : at + piece])
        while reader.is_resting:
            assert len(reader.body) - before < MOST_LINES
            before, rests = len(reader.body), rests + 1
            is_over = reader.feed(b"")
    assert (is_over, reader.is_clean, reader.body) == (True, True, b"x" * 20_000)
    assert 15 <= rests <= 20


def test_a_body_of_ordinary_chunks_does_not_rest() -> None:
    reader, is_over = ResponseReader(1000, 1 << 20), False
    for piece in (CHUNKED, *[(b"80\r\n" + b"x" * 128 + b"\r\n") * 100] * 80, b"0\r\n\r\n"):
        is_over = reader.feed(piece)
        assert not reader.is_resting
    assert is_over


def test_too_many_trailer_fields_end_the_response_and_cost_nothing_of_the_body() -> None:
    reader, is_over = _read(CHUNKED + b"1\r\na\r\n0\r\n" + b"a: b\r\n" * 200)
    assert (is_over, reader.is_whole, reader.is_clean, reader.body) == (True, True, False, b"a")


@pytest.mark.parametrize("pieces", [1, 2, 64])
def test_the_reason_does_not_depend_on_how_the_bytes_arrive(pieces: int) -> None:
    data = b"\r\n" + b"<p>no head" * 20_000
    reader = ResponseReader(65_536, 1_000)
    step = len(data) // pieces
    with pytest.raises(FetchFailed) as raised:
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
    assert raised.value.kind == FailureKind.PROTOCOL
