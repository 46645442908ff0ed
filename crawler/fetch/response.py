"""Reads one response from bytes, without I/O, and accounts for every byte of it.

A server chooses how much it sends, so each part of a response has a bound, and no byte is kept before it is counted:

1. Blank lines before a head, interim responses, the head and the trailer fields share one budget, `max_head_bytes`.
   The number of interim responses is limited as well.
2. Chunk sizes and chunk extensions may exceed the content that they describe by `MAX_CHUNK_OVERHEAD` bytes. They and the
   trailer fields are read line by line, and no line may be longer than that.
3. The content is limited to `max_body_bytes`.
4. Nothing is read after the end of the response. If there is more, the connection must not be used again.

aiohttp's parser in C reads the head. It gets the head alone: given more, it would lose a valid head when the bytes behind
it are malformed, keep all trailer fields, and parse any number of further responses.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from io import SEEK_END, BytesIO
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser, RawResponseMessage

from crawler.errors import FailureKind, FetchFailed

MAX_INTERIM_RESPONSES = 5
"""Go's net/http accepts as many (`max1xxResponses` in transport.go)."""

MAX_CHUNK_OVERHEAD = 16 * 1024
"""Bytes. The rule and the number are Go's (`excess` in net/http/internal/chunked.go)."""

_HEAD_END = re.compile(rb"\n\r?\n")
"""RFC 9112 2.2: a recipient may take a bare LF for a line end."""

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?\r?\n")
"""RFC 9112 7.1. Some servers put spaces after the size; extensions are ignored (7.1.1)."""

_EMPTY_LINES = (b"\r\n", b"\n")

# Looking up a member of an enumeration takes 0.4 us in Python 3.11, so each is looked up once.
_OK = HTTPStatus.OK
_SWITCHING_PROTOCOLS = HTTPStatus.SWITCHING_PROTOCOLS
_NO_CONTENT = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class ResponseReader:
    """Reads the final response to one request. `parser` is that of its connection (`head_parser`).

    `feed` raises FetchFailed for what is malformed or too large. If that comes after the head, `message` and what was read
    of the body remain valid.
    """

    def __init__(self, parser: HttpResponseParser, max_head_bytes: int, max_body_bytes: int) -> None:
        self.message: RawResponseMessage | None = None  # None: the head is not complete
        self.head = b""  # as received
        self.is_whole = False  # the body is complete
        self.is_too_long = False  # the body is longer than `max_body_bytes`
        self.is_clean = False  # nothing came after the response, and the server keeps the connection open
        self._parser = parser
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._head_room = max_head_bytes
        self._interim_responses = 0
        self._held = b""  # the start of an incomplete head or line
        self._body = BytesIO()
        self._size = 0  # bytes in `_body`
        self._left: int | None = None  # bytes of the body or the chunk; None: the body ends with the connection
        self._is_chunked = False
        self._is_in_chunk = False  # up to the line end behind it
        self._chunk_overhead = 0
        self._is_over = False

    @property
    def body(self) -> bytes:
        """What was read of the content."""
        return self._body.getvalue()

    def feed(self, data: bytes) -> bool:
        """Read the bytes that were received next. Returns whether the response is over, so that no more are wanted."""
        if self.message is None:
            data = self._read_head(data)
        if self.message is None:
            return False
        data = self._read_chunks(data) if self._is_chunked else self._read_content(data)
        if self._is_over:
            self.is_clean = not (self.message.should_close or data or self.is_too_long or self._head_room < 0)
        return self._is_over

    def close(self) -> None:
        """The server has closed the connection, which ends a body without a length (RFC 9112 6.3)."""
        self.is_whole |= self.message is not None and self._left is None

    def _read_head(self, data: bytes) -> bytes:
        """Read up to the end of the final head. Returns what follows it."""
        searched = max(0, len(self._held) - 2)
        data, self._held = self._held + data, b""
        while True:
            head = data.lstrip(b"\r\n")
            self._head_room -= len(data) - len(head)
            end = _HEAD_END.search(head, searched)
            size = end.end() if end else len(head)
            if not b"HTTP/".startswith(head[:5]):
                raise _failed(FailureKind.PROTOCOL, "the response does not begin with HTTP/")
            if size > self._head_room:
                raise _failed(FailureKind.HEADER_TOO_LARGE, f"more than {self._max_head_bytes} bytes of header")
            if end is None:
                self._held = head
                return b""
            self._head_room -= size
            data, searched = head[size:], 0
            message = self._parse(head[:size])
            if message.code >= _OK:
                self.head, self.message = head[:size], message
                self._begin_body(message)
                return data
            self._interim_responses += 1  # RFC 9110 15.2: another head follows
            if self._interim_responses > MAX_INTERIM_RESPONSES:
                raise _failed(FailureKind.PROTOCOL, f"more than {MAX_INTERIM_RESPONSES} interim responses")

    def _parse(self, head: bytes) -> RawResponseMessage:
        try:
            messages, _, _ = self._parser.feed_data(head)
        except HttpProcessingError as error:
            raise _failed(FailureKind.PROTOCOL, describe(error)) from error
        message: RawResponseMessage = messages[0][0]
        # Nobody asked for another protocol (RFC 9110 7.8).
        if message.code < 100 or message.code == _SWITCHING_PROTOCOLS:
            raise _failed(FailureKind.PROTOCOL, f"status {message.code:03}")
        return message

    def _begin_body(self, message: RawResponseMessage) -> None:
        """RFC 9112 6.3. The parser has refused a malformed length, several of them, and one beside a transfer coding."""
        length = message.headers.get("Content-Length")
        self._is_chunked = message.chunked and message.code not in _NO_CONTENT
        if self._is_chunked or message.code in _NO_CONTENT:
            self._left = 0
        elif length is not None:
            self._left = int(length)

    def _read_content(self, data: bytes) -> bytes:
        """Read a body that is not chunked. Returns what follows it."""
        content = data[: self._left]
        if self._left is not None:
            self._left -= len(content)
        self._keep(content)
        self.is_whole = self._left == 0
        self._is_over = self.is_whole or self.is_too_long
        return data[len(content) :]

    def _keep(self, content: bytes) -> None:
        kept = content[: self._max_body_bytes - self._size]
        if self._size:
            self._body.write(kept)
        else:  # a body that comes in one piece is not copied
            self._body = BytesIO(kept)
            self._body.seek(0, SEEK_END)
        self._size += len(kept)
        self.is_too_long = self._is_over = len(kept) < len(content)

    def _read_chunks(self, data: bytes) -> bytes:
        """Read a chunked body and the trailer fields. Returns what follows them."""
        data, self._held, at = self._held + data, b"", 0
        while not self._is_over:
            if self._left:
                content = data[at : at + self._left]
                at += len(content)
                self._left -= len(content)
                self._keep(content)
                if self._left or self._is_over:
                    break
            end = data.find(b"\n", at) + 1
            if (end or len(data)) - at > MAX_CHUNK_OVERHEAD:
                raise _failed(FailureKind.PROTOCOL, f"a line of more than {MAX_CHUNK_OVERHEAD} bytes in a chunked body")
            if not end:
                self._held = data[at:]
                return b""
            self._read_line(data[at:end])
            at = end
        return data[at:]

    def _read_line(self, line: bytes) -> None:
        if self.is_whole:  # trailer fields, up to an empty line
            self._head_room -= len(line)
            self._is_over = line in _EMPTY_LINES or self._head_room < 0
        elif self._is_in_chunk:
            if line not in _EMPTY_LINES:
                raise _failed(FailureKind.PROTOCOL, "a chunk is longer than its size")
            self._is_in_chunk = False
        else:
            size_line = _CHUNK_SIZE.fullmatch(line)
            if size_line is None:
                raise _failed(FailureKind.PROTOCOL, "a malformed chunk size")
            size = self._left = int(size_line[1], 16)
            self._chunk_overhead = max(0, self._chunk_overhead + len(line) - 16 - 2 * size)
            if self._chunk_overhead > MAX_CHUNK_OVERHEAD:
                raise _failed(FailureKind.PROTOCOL, "too many chunk extensions")
            self._is_in_chunk = size > 0
            self.is_whole = size == 0  # RFC 9112 8: the content is complete without the trailer fields


def head_parser(max_head_bytes: int) -> HttpResponseParser:
    """A parser for the heads of the responses on one connection. A head that is not larger never reaches its limits."""
    parser: Any = HttpResponseParser
    made: HttpResponseParser = parser(
        None,  # the protocol and the loop are for the content, which this parser never gets
        None,
        max_head_bytes,
        max_line_size=max_head_bytes,
        max_field_size=max_head_bytes,
        max_headers=max_head_bytes,
        response_with_body=False,
        auto_decompress=False,
    )
    return made


def describe(error: BaseException) -> str:
    """One line about `error`, at most 200 characters: some messages quote what the server sent."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _failed(kind: FailureKind, detail: str) -> FetchFailed:
    return FetchFailed(kind, detail, request_sent=True)
