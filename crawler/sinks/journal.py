"""The tail of a volume: the group that was written last, of which it is not known yet whether its URLs were settled.

A group is settled before the next one is written, so no more than one is ever in doubt. Before its records are appended
a line goes into the volume's `.tail` file: where the group begins, and for each page under which lease it was fetched
and which octets will be its own. If the writer dies, whoever finishes the volume asks the frontier about these leases
(`Frontier.disown`) and takes back the pages that were not settled: their URLs are fetched again, and are not doubled.

To take back is to write the group anew without them. What it shall be goes into the `.tail` file first, as a second
line, so that a death in the middle leaves it to be done once more, and no settled page is lost.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec

from crawler.sinks.pages import Place
from frontier.queue import LeasedUrl

TAIL = ".tail"
"""How the name of the file ends, before `.open`: it never gets its plain name."""


class Share(msgspec.Struct, frozen=True, array_like=True):
    """What a page has of a group: octets `start` to `end` of the WARC file, the `line`th line (-1: none)."""

    leased: LeasedUrl
    start: int
    end: int
    line: int


class Tail(msgspec.Struct, frozen=True, tag=True):
    """A group of `crawl`, whose records begin at `records_at` and whose lines at `lines_at`: octets from the start."""

    crawl: str
    records_at: int
    lines_at: int
    shares: Sequence[Share]

    @property
    def leased(self) -> list[LeasedUrl]:
        return [share.leased for share in self.shares]


class Rest(msgspec.Struct, frozen=True, tag=True):
    """What shall stand in both files from there on."""

    records_at: int
    lines_at: int
    records: bytes
    lines: bytes


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Tail | Rest] = msgspec.json.Decoder(Tail | Rest)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encoded(entry: Tail | Rest) -> bytes:
    """The line of `entry`."""
    return _encoder.encode(entry) + b"\n"


def decoded(octets: bytes) -> Tail | Rest | None:
    """What the file with these `octets` says last. None: nothing whole, so nothing of the group was written either."""
    try:
        return _decoder.decode(octets.split(b"\n")[-2])
    except IndexError:
        return None
    except msgspec.MsgspecError:
        return None  # a power failure may leave zeros


def without(tail: Tail, records: bytes, lines: bytes, unsettled: Container[int]) -> Rest:
    """The group `tail`, of which there are these `records` and `lines`, without its `unsettled` pages, by their numbers."""
    gone = [share for number, share in enumerate(tail.shares) if number in unsettled]
    dropped = {share.line for share in gone}
    starts = {share.line: share.start for share in tail.shares}
    kept_lines = [
        _moved(line, by=sum(other.end - other.start for other in gone if other.end <= starts.get(number, 0)))
        for number, line in enumerate(lines.splitlines(keepends=True))
        if number not in dropped
    ]
    kept_records = b"".join(_kept(records, ((g.start - tail.records_at, g.end - tail.records_at) for g in gone)))
    return Rest(tail.records_at, tail.lines_at, kept_records, b"".join(kept_lines))


def _kept(octets: bytes, cuts: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The parts of `octets` between `cuts`, which are in order."""
    at = 0
    for start, end in cuts:
        yield octets[at:start]
        at = end
    yield octets[at:]


def _moved(line: bytes, by: int) -> bytes:
    """`line` with the place of its record `by` octets further to the front."""
    fields = _fields_decoder.decode(line)
    place = msgspec.json.decode(fields["warc"], type=Place | None)
    if not by or place is None:
        return line
    moved = Place(place.file, place.offset - by, place.length)
    return _encoder.encode({**fields, "warc": msgspec.Raw(_encoder.encode(moved))}) + b"\n"
