"""Reads one response from bytes, without I/O, and accounts for every byte of it.

A server chooses how much it sends, so each part of a response has a bound, and no byte is kept before it is counted:

1. Blank lines before a head, interim responses, the head and the trailer fields share one budget, `max_head_bytes`.
   The number of interim responses is limited as well.
2. Chunk sizes and chunk extensions may exceed the content that they describe by `MAX_CHUNK_OVERHEAD` bytes. They and the
   trailer fields are read line by line, and no line may be longer than that.
3. The content is limited to `max_body_bytes`.
4. Lines of a chunked body take time, so after many for its size, the rest waits until `feed` is called again.
5. Nothing is read after the end of the response. If there is more, the connection must not be used again.

Malformed heads are read as curl, wget and browsers read them (`crawler.http_head`). After one, or after framing that can be
read in more than one way, the connection must not be used again either.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from io import SEEK_END, BytesIO

from crawler.errors import FailureKind, FetchFailed
from crawler.http_head import HEAD_END, Head, all_values, parse_head
from crawler.page import Repaired

MAX_INTERIM_RESPONSES = 5
"""Go's net/http accepts as many (`max1xxResponses` in transport.go)."""

MAX_CHUNK_OVERHEAD = 16 * 1024
"""Bytes. The rule and the number are Go's (`excess` in net/http/internal/chunked.go)."""

MOST_LINES = 2_000
BYTES_PER_LINE = 64
"""Lines of a chunked body that are read at a time, beyond one for so many bytes. Each takes 0.7 us."""

_LENGTH = re.compile(r"\+?([0-9]{1,18})")
_REGULAR_LENGTH = re.compile(r"[0-9]{1,18}")

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?\r?\n")
"""RFC 9112 7.1. Some servers put spaces after the size; extensions are ignored (7.1.1)."""

_EMPTY_LINES = (b"\r\n", b"\n")
_IGNORED = b"\r\n \t\xef\xbb\xbf"
"""Bytes before a head: empty lines (RFC 9112 2.2), and the spaces and byte order marks of files that a program includes."""

# Looking up a member of an enumeration takes 0.4 us in Python 3.11, so each is looked up once.
_OK = HTTPStatus.OK
_SWITCHING_PROTOCOLS = HTTPStatus.SWITCHING_PROTOCOLS
_NO_CONTENT = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class ResponseReader:
    """Reads the final response to one request.

    `feed` raises FetchFailed for what is malformed or too large. If that comes after the head, `message` and what was read
    of the body remain valid.
    """

    def __init__(self, max_head_bytes: int, max_body_bytes: int, has_body: bool = True) -> None:
        """`has_body`: False for the response to HEAD, whose Content-Length is that of another response."""
        self.message: Head | None = None  # None: the head is not complete
        self.head = b""  # as received
        self.is_whole = False  # the body is complete
        self.is_too_long = False  # the body is longer than `max_body_bytes`
        self.repaired: tuple[Repaired, ...] = ()
        self.is_clean = False  # nothing came after the response, and the server keeps the connection open
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._has_body = has_body
        self._head_room = max_head_bytes
        self._interim_responses = 0
        self._held = b""  # the start of an incomplete head or line
        self._body = BytesIO()
        self._size = 0  # bytes in `_body`
        self._left: int | None = None  # bytes of the body or the chunk; None: the body ends with the connection
        self._may_follow = True  # another response, on the same connection
        self._is_prefixed = False  # by more than line ends
        self._is_chunked = False
        self._is_in_chunk = False  # up to the line end behind it
        self._chunk_overhead = 0
        self._lines = 0  # of a chunked body, beyond those for its bytes, that were read since the last rest
        self.is_resting = False  # bytes that were received are still to be read, by another call of `feed`
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
            self.is_clean = self._may_follow and not (data or self.is_too_long or self._head_room < 0)
        return self._is_over

    def close(self) -> None:
        """The server has closed the connection, which ends a body without a length (RFC 9112 6.3)."""
        self.is_whole |= self.message is not None and self._left is None

    def _read_head(self, data: bytes) -> bytes:
        """Read up to the end of the final head. Returns what follows it."""
        searched = max(0, len(self._held) - 2)
        data, self._held = self._held + data, b""
        while True:
            head = data.lstrip(_IGNORED)
            self._head_room -= len(data) - len(head)
            self._is_prefixed |= bool(data[: len(data) - len(head)].strip(b"\r\n"))
            end = HEAD_END.search(head, searched)
            size = end.end() if end else len(head)
            if not b"HTTP/".startswith(head[:5].upper()):
                raise _failed(FailureKind.PROTOCOL, "the response does not begin with HTTP/")
            if size > self._head_room:
                raise _failed(FailureKind.HEADER_TOO_LARGE, f"more than {self._max_head_bytes} bytes of header")
            if end is None:
                self._held = head
                return b""
            self._head_room -= size
            data, searched = head[size:], 0
            message = self._parse(head[:size])
            if self._is_prefixed:
                message = message._replace(is_regular=False)
            self._may_follow &= message.is_regular
            if message.status >= _OK:
                self._begin_body(message)
                self.head, self.message = head[:size], message
                return data
            self._interim_responses += 1  # RFC 9110 15.2: another head follows
            if self._interim_responses > MAX_INTERIM_RESPONSES:
                raise _failed(FailureKind.PROTOCOL, f"more than {MAX_INTERIM_RESPONSES} interim responses")

    def _parse(self, head: bytes) -> Head:
        message = parse_head(head)
        # Nobody asked for another protocol (RFC 9110 7.8).
        if message.status < 100 or message.status == _SWITCHING_PROTOCOLS:
            raise _failed(FailureKind.PROTOCOL, f"status {message.status:03}" if message.status else "no status")
        return message

    def _begin_body(self, message: Head) -> None:
        """RFC 9112 6.3, and what curl and browsers do with malformed framing: a transfer coding other than chunked does not
        count, nor does a length that is no number, and equal lengths are one."""
        codings, lengths, connection = _framing(message)
        keeps_open = "close" not in connection and (message.version != "1.0" or "keep-alive" in connection)
        is_regular = _is_regular(message, codings, lengths)
        self._may_follow &= keeps_open and is_regular
        if not (message.is_regular and is_regular):
            self.repaired = (*(() if message.is_regular else ("head",)), *(() if is_regular else ("framing",)))
        if message.status in _NO_CONTENT or not self._has_body:
            self._left = 0
        elif codings and [coding for coding in codings if coding not in ("", "identity")][-1:] == ["chunked"]:
            self._is_chunked, self._left = True, 0
        elif numbers := {int(number[1]) for number in map(_LENGTH.fullmatch, lengths) if number}:
            if len(numbers) > 1:
                raise _failed(FailureKind.PROTOCOL, "several values of Content-Length")
            self._left = numbers.pop()

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
        self._lines = max(0, self._lines - len(data) // BYTES_PER_LINE)
        self.is_resting = False
        data, self._held, at = self._held + data, b"", 0
        while not self._is_over:
            if self._lines > MOST_LINES:
                self.is_resting, self._held, self._lines = True, data[at:], 0
                return b""
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
            self._lines += 1
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


def _framing(message: Head) -> list[list[str]]:
    """The members, in lower case, of the lists Transfer-Encoding, Content-Length and Connection (RFC 9110 5.6.1)."""
    sent = map(all_values(message.fields).get, (b"transfer-encoding", b"content-length", b"connection"))
    return [[] if text is None else list(map(str.strip, text.decode("latin-1").lower().split(","))) for text in sent]


def _is_regular(message: Head, codings: list[str], lengths: list[str]) -> bool:
    """Whether everyone reads the framing in the same way (RFC 9112 6.1 and 6.3)."""
    if codings:
        return codings == ["chunked"] and not lengths and message.version != "1.0"
    return len(lengths) <= 1 and all(map(_REGULAR_LENGTH.fullmatch, lengths))


def describe(error: BaseException) -> str:
    """One line about `error`, at most 200 characters: some messages quote what the server sent."""
    return " ".join(str(error).split())[:200] or (
        "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    )


def _failed(kind: FailureKind, detail: str) -> FetchFailed:
    return FetchFailed(kind, detail, request_sent=True)
