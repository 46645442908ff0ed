"""The journal of a volume: the last group that was written, until its URLs are known to be settled.

A group is settled before the next one is written, so at most one group is unsettled. Before its records are appended, a
line is written to the volume's `.journal` file: where the group begins, and for each page its lease and which bytes are
its own. If the writer dies, the replica that finishes the volume asks the frontier about these leases
(`Frontier.revoke`) and removes the pages that were not settled. Their URLs are fetched again, so no page is kept twice.

To remove pages, the group is rewritten without them. The new content is first written to the `.journal` file as a second
line. If the process dies in the middle, the rewrite is repeated, and no settled page is lost.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec

from crawler.sinks.pages import Place
from frontier.queue import LeasedUrl

JOURNAL = ".journal"
"""The suffix of the file name, before `.open`. A journal is never given its plain name."""


class Share(msgspec.Struct, frozen=True, array_like=True):
    """The part of a group that belongs to one page: the bytes from `start` to `end` of the WARC file, and the number of its
    line in the group (-1: none)."""

    leased: LeasedUrl
    start: int
    end: int
    line: int


class JournalEntry(msgspec.Struct, frozen=True, tag=True):
    """A group of `crawl`. Its records begin at the byte `records_at` of the WARC file, its lines at the byte `lines_at`."""

    crawl: str
    records_at: int
    lines_at: int
    shares: Sequence[Share]

    @property
    def leased(self) -> list[LeasedUrl]:
        return [share.leased for share in self.shares]


class JournalRewrite(msgspec.Struct, frozen=True, tag=True):
    """The new content of both files from these bytes on."""

    records_at: int
    lines_at: int
    records: bytes
    lines: bytes


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[JournalEntry | JournalRewrite] = msgspec.json.Decoder(JournalEntry | JournalRewrite)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encoded(entry: JournalEntry | JournalRewrite) -> bytes:
    """Encode `entry` as a line."""
    return _encoder.encode(entry) + b"\n"


def decoded(data: bytes) -> JournalEntry | JournalRewrite | None:
    """Decode the last complete line of a journal. None if there is none; then nothing of the group was written either."""
    try:
        return _decoder.decode(data.split(b"\n")[-2])
    except (IndexError, msgspec.MsgspecError):  # a power failure may leave zeros
        return None


def without(entry: JournalEntry, records: bytes, lines: bytes, unsettled: Container[int]) -> JournalRewrite:
    """The group `entry`, which has these `records` and `lines`, without the pages with the indexes `unsettled`."""
    gone = [share for number, share in enumerate(entry.shares) if number in unsettled]
    dropped = {share.line for share in gone}
    starts = {share.line: share.start for share in entry.shares}
    kept_lines = [
        _moved(line, by=sum(other.end - other.start for other in gone if other.end <= starts.get(number, 0)))
        for number, line in enumerate(lines.splitlines(keepends=True))
        if number not in dropped
    ]
    kept_records = b"".join(_kept(records, ((g.start - entry.records_at, g.end - entry.records_at) for g in gone)))
    return JournalRewrite(entry.records_at, entry.lines_at, kept_records, b"".join(kept_lines))


def _kept(data: bytes, cuts: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The parts of `data` outside of `cuts`, which are in order."""
    at = 0
    for start, end in cuts:
        yield data[at:start]
        at = end
    yield data[at:]


def _moved(line: bytes, by: int) -> bytes:
    """`line`, with the place of its record moved to the front by `by` bytes."""
    fields = _fields_decoder.decode(line)
    place = msgspec.json.decode(fields["warc"], type=Place | None)
    if not by or place is None:
        return line
    moved = Place(place.file, place.offset - by, place.length)
    return _encoder.encode({**fields, "warc": msgspec.Raw(_encoder.encode(moved))}) + b"\n"
