"""Rewrites WARC records, as bytes: the other forms that a revisit or a metadata record gets when a domain is forgotten
(`crawler.sinks.forget`)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from crawler.http_head import HEAD_END
from crawler.sinks.compression import Compression

_OF_REVISITS = (b"warc-refers-to", b"warc-refers-to-target-uri", b"warc-refers-to-date", b"warc-profile")
"""The fields that only a revisit record has."""


def decompressed(raw: bytes, compression: Compression) -> bytes:
    """The compressed record `raw`."""
    return compression.reader().decompress(raw)


def with_lines(record: bytes, changed: Callable[[bytes], bytes | None]) -> bytes:
    """`record`, whose block has lines, with each as `changed` returns it; None removes it."""
    head, block = _split(record)
    lines = [changed(line) for line in block.split(b"\r\n")]
    return _record(head, b"\r\n".join(line for line in lines if line is not None))


def without_target(record: bytes) -> bytes:
    """The revisit `record` without the URL of the record that it refers to."""
    head, block = _split(record)
    return _record(_without(head, (b"warc-refers-to-target-uri",)), block)


def as_response(record: bytes, original: bytes) -> bytes:
    """The revisit `record` as a response record with the body of the response record `original`."""
    head, block = _split(record)
    original_head, original_block = _split(original)
    end = HEAD_END.search(original_block)
    body = original_block[end.end() :] if end else b""
    head = _without(head, (*_OF_REVISITS, b"warc-truncated"))
    lines = [b"WARC-Type: response" if line.lower().startswith(b"warc-type:") else line for line in head]
    lines += [line for line in original_head if line.lower().startswith(b"warc-truncated:")]
    return _record(lines, block + body)


def _split(record: bytes) -> tuple[list[bytes], bytes]:
    """The lines of the head of `record`, and its block."""
    head, _, rest = record.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = next(int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:"))
    return lines, rest[:length]


def _record(head: Collection[bytes], block: bytes) -> bytes:
    lines = [line for line in head if not line.lower().startswith(b"content-length:")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(block), b"", block, b"", b""])


def _without(head: Collection[bytes], names: Collection[bytes]) -> list[bytes]:
    return [line for line in head if line.partition(b":")[0].strip().lower() not in names]
