"""The journal of a volume: the group that was written last, of which it is not known yet whether its URLs were settled.

A group is settled before the next one is written, so no more than one is ever in doubt. Before its records are appended
a line goes into the volume's `.journal` file: where the group begins, and for each page under which lease it was fetched
and which bytes will be its own. If the writer dies, whoever finishes the volume asks the frontier about these leases
(`Frontier.revoke`) and takes back the pages that were not settled: their URLs are fetched again, and are not doubled.

To take back is to write the group anew without them. What it shall be goes into the `.journal` file first, as a second
line, so that a death in the middle leaves it to be done once more, and no settled page is lost.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec

from crawler.sinks.pages import Place
from frontier.queue import LeasedUrl

JOURNAL = ".journal"
"""How the name of the file ends, before `.open`: it never gets its plain name."""


class Share(msgspec.Struct, frozen=True, array_like=True):
    """What a page has of a group: bytes `start` to `end` of the WARC file, the `line`th line (-1: none)."""

    leased: LeasedUrl
    start: int
    end: int
    line: int


class JournalEntry(msgspec.Struct, frozen=True, tag=True):
    """A group of `crawl`, whose records begin at `records_at` and whose lines at `lines_at`: bytes from the start."""

    crawl: str
    records_at: int
    lines_at: int
    shares: Sequence[Share]

    @property
    def leased(self) -> list[LeasedUrl]:
        return [share.leased for share in self.shares]


class JournalRewrite(msgspec.Struct, frozen=True, tag=True):
    """What shall stand in both files from there on."""

    records_at: int
    lines_at: int
    records: bytes
    lines: bytes


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[JournalEntry | JournalRewrite] = msgspec.json.Decoder(JournalEntry | JournalRewrite)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encoded(entry: JournalEntry | JournalRewrite) -> bytes:
    """The line of `entry`."""
    return _encoder.encode(entry) + b"\n"


def decoded(data: bytes) -> JournalEntry | JournalRewrite | None:
    """What the file with these `data` says last. None: nothing whole, so nothing of the group was written either."""
    try:
        return _decoder.decode(data.split(b"\n")[-2])
    except IndexError:
        return None
    except msgspec.MsgspecError:
        return None  # a power failure may leave zeros


def without(entry: JournalEntry, records: bytes, lines: bytes, unsettled: Container[int]) -> JournalRewrite:
    """The group `entry`, of which there are these `records` and `lines`, without its `unsettled` pages, by their
    numbers."""
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
    """The parts of `data` between `cuts`, which are in order."""
    at = 0
    for start, end in cuts:
        yield data[at:start]
        at = end
    yield data[at:]


def _moved(line: bytes, by: int) -> bytes:
    """`line` with the place of its record `by` bytes further to the front."""
    fields = _fields_decoder.decode(line)
    place = msgspec.json.decode(fields["warc"], type=Place | None)
    if not by or place is None:
        return line
    moved = Place(place.file, place.offset - by, place.length)
    return _encoder.encode({**fields, "warc": msgspec.Raw(_encoder.encode(moved))}) + b"\n"
