"""Blocks: entries of a domain's queue, compressed.

A block begins with the time when it was packed, in ms. Then its entries follow, those of the highest priority first: a line
`=PRIORITY`, and a line for each entry of that priority. The text is compressed with zstd.

The name of a block begins with the number of its entries, four digits. The next character tells whether it contains seeds,
and the rest is a hash of its contents, which include the time. So packing never uses a name for other contents. Only
`crawler forget`, while no replica runs, changes a block in place.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import msgspec

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Row = tuple[bytes, bytes]
"""A priority, as Redis writes it, and an entry."""

LARGEST = 1_000
"""The most entries in a block. The decision 0016 has the sizes of smaller and larger ones."""

LEVEL, REST_LEVEL = 9, 3
"""Of zstd, as measured for the decision 0016. The rest of a block is packed each time that some of its URLs are unpacked,
and most of it is soon unpacked, too."""


class Block(msgspec.Struct, frozen=True):
    """`order`: minus the highest priority in it, so the first of several blocks has the lowest number."""

    name: str
    order: float
    contents: bytes


def block_of(rows: Sequence[Row], now_ms: int) -> Block:
    """A block of `rows`, 1 to `LARGEST`, in any order."""
    return _packed(sorted(rows, key=lambda row: (-float(row[0]), row[1])), now_ms, LEVEL)


def rest_of(rows: Sequence[Row], now_ms: int) -> Block:
    """A block of the last `rows` of another one, in their order."""
    return _packed(rows, now_ms, REST_LEVEL)


def _packed(rows: Sequence[Row], now_ms: int, level: int) -> Block:
    lines = [b"%d" % now_ms]
    for priority, same in groupby(rows, key=itemgetter(0)):
        lines.append(b"=" + priority)
        lines += [entry for _, entry in same]
    contents = zstd.compress(b"\n".join(lines), level)
    kind = "s" if any(entry[1:3] == b"00" for _, entry in rows) else "-"
    name = f"{len(rows):04}{kind}{hashlib.sha1(contents).hexdigest()[:20]}"
    return Block(name, -float(rows[0][0]), contents)


def rows_of(contents: bytes) -> list[Row]:
    """The entries of a block, those of the highest priority first."""
    rows: list[Row] = []
    priority = b""
    for line in zstd.decompress(contents).split(b"\n")[1:]:
        if line.startswith(b"="):
            priority = line[1:]
        else:
            rows.append((priority, line))
    return rows


def size_of(name: str) -> int:
    """The number of entries in the block `name`."""
    return int(name[:4])


def has_seeds(name: str) -> bool:
    """Whether the block `name` contains entries of depth 0. Only these are queued again while they may be packed."""
    return name[4] == "s"
