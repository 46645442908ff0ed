"""The journal of a volume: the groups of the last seconds, which may not be settled.

A group is settled before the next one is written, so only the last group may be unsettled. But a server that is
restarted may lose what was settled in its last seconds. So the groups of the last `KEPT_S` are in doubt, too, and older
ones while their settlements may still have to be repeated.

Before the records of a group are appended, a line in the volume's `.journal` file says where the group begins, and for
each page its lease and which bytes are its own. If the writer dies, the replica that finishes the volume asks the
frontier about these leases (`Frontier.revoke`) and removes the pages that were not settled. While no group comes, a
group without pages tells readers of a running crawl that the one before it is settled.

To remove pages, all groups from the first one concerned are rewritten without them. The new content is first written to
the `.journal` file as a last line. If the process dies in the middle, the rewrite is repeated, and no settled page is
lost. Afterwards, what is left of these groups is written there as one group, because lines are counted from group to
group.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec

from crawler.sinks.lines import Place
from frontier.recent_writes import KEPT_MS as RECENT_MS
from frontier.settle import LeasedUrl

JOURNAL = ".journal"
"""The suffix of the file name, before `.open`. A journal is never given its plain name."""


KEPT_S = 3 * RECENT_MS / 1000
"""How long a group stays in the journal after it was settled, in seconds: for a writer that was suspended. It stays longer
if its writer cannot repeat what it settled because a node is away."""


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
    return _encoder.encode(entry) + b"\n"


def decoded(data: bytes) -> JournalEntry | JournalRewrite | None:
    """What the complete lines of a journal say: all groups as one, or the rewrite that is to be completed. None if there is
    no line; then nothing of a group was written either."""
    groups: list[JournalEntry] = []
    last: JournalEntry | JournalRewrite | None = None
    for line in data.split(b"\n")[:-1]:
        try:
            last = _decoder.decode(line)
        except msgspec.MsgspecError:  # a power failure may leave zeros
            last = None
            continue
        if isinstance(last, JournalEntry):
            groups.append(last)
        else:  # what it replaced cannot be told any more
            groups = [
                group for group in groups if (group.records_at, group.lines_at) < (last.records_at, last.lines_at)
            ]
    return last if isinstance(last, JournalRewrite) else merged(groups)


def last_group_begins(data: bytes) -> int | None:
    """Where the lines of the last group begin, in bytes of the file of lines, by the lines of its journal; None if there is
    none: then the journal is being rewritten. What comes before was settled, but Redis may still lose that."""
    last = _last(data)
    return None if last is None else last.lines_at


def written_before_last_group(data: bytes) -> int:
    """How many bytes of the WARC file were written before the last group, by the lines of its journal."""
    last = _last(data)
    return 0 if last is None else last.records_at


def _last(data: bytes) -> JournalEntry | JournalRewrite | None:
    for line in reversed(data.split(b"\n")[:-1]):
        with contextlib.suppress(msgspec.MsgspecError):
            return _decoder.decode(line)
    return None


def merged(groups: Sequence[JournalEntry]) -> JournalEntry | None:
    """Consecutive groups as one group. None if there are none."""
    if not groups:
        return None
    shares: list[Share] = []
    lines = 0
    for group in groups:
        shares += (
            Share(share.leased, share.start, share.end, share.line + lines if share.line >= 0 else -1)
            for share in group.shares
        )
        lines += sum(share.line >= 0 for share in group.shares)
    return JournalEntry(groups[-1].crawl, groups[0].records_at, groups[0].lines_at, shares)


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


def left(entry: JournalEntry, unsettled: Container[int]) -> JournalEntry:
    """The group `entry` as `without` leaves it."""
    gone = [share for number, share in enumerate(entry.shares) if number in unsettled]
    shares = []
    for share in (share for number, share in enumerate(entry.shares) if number not in unsettled):
        by = sum(other.end - other.start for other in gone if other.end <= share.start)
        line = share.line - sum(0 <= other.line < share.line for other in gone)
        shares.append(Share(share.leased, share.start - by, share.end - by, line))
    return msgspec.structs.replace(entry, shares=shares)


def _kept(data: bytes, cuts: Iterable[tuple[int, int]]) -> Iterator[bytes]:
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
