"""What replicas that were killed have left: each settled URL has one row, one whole response or revisit record unless its
page forbids it (noarchive), and one line in an index that leads to it; no file is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.sinks import readers

Row = dict[str, Any]
Place = tuple[str, int, str]
"""Of a response or revisit record: file, offset, URL."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a crawl with `kills` left: of all lists nothing may be in them."""

    kills: int
    settled: int
    missing: list[str]  # settled, without a row
    without_record: list[str]  # rows whose WARC record is not there, or not that URL's
    doubled: list[str]  # URLs with more than one row
    recorded_twice: list[str]  # URLs with more than one response or revisit record, or more records than index lines

    @property
    def ok(self) -> bool:
        return not (self.missing or self.without_record or self.doubled or self.recorded_twice)

    def __str__(self) -> str:
        verdict = "OK" if self.ok else "NOT OK"
        return (
            f"{verdict}: {self.kills} kills, {self.settled} URLs settled, {len(self.missing)} without a row, "
            f"{len(self.without_record)} rows without their record, {len(self.doubled)} URLs with two rows, "
            f"{len(self.recorded_twice)} with two records"
        )


def find(out: Path, expected: frozenset[str] | set[str], kills: int) -> Findings:
    """Hold the files in `out` against the URLs that were settled."""
    every = [
        row
        for path in sorted(out.glob("*.pages.jsonl"))
        for row in msgspec.json.Decoder(Row).decode_lines(path.read_bytes())
    ]
    rows = Counter[str](row["url"] for row in every)
    places = Counter[Place]()
    for file in readers.warc_files(out):
        readers.check(file)
        places.update(
            (file.name, r.offset, r.url) for r in readers.by_fastwarc(file) if r.type in ("response", "revisit")
        )
    archived = [row for row in every if row["status"] is not None and not row["noarchive"]]
    records = Counter(url for _, _, url in places if not url.endswith("/robots.txt"))
    indexed = Counter(_indexed(out))
    return Findings(
        kills=kills,
        settled=len(expected),
        missing=sorted(expected - rows.keys()),
        without_record=[row["url"] for row in archived if places[_place(row)] != 1],
        doubled=[url for url, count in rows.items() if count > 1],
        recorded_twice=[
            *(url for url, count in records.items() if count > 1),
            *(url for _, _, url in (places - indexed) + (indexed - places)),
        ],
    )


def _indexed(out: Path) -> Iterator[Place]:
    """What the indexes say."""
    for path in out.glob("*.cdxj"):
        for line in path.read_bytes().splitlines():
            fields = msgspec.json.decode(line.split(b" ", 2)[2])
            yield fields["filename"], int(fields["offset"]), fields["url"]


def _place(row: Row) -> Place:
    warc = row["warc"] or {"file": "", "offset": -1}
    return warc["file"], warc["offset"], row["url"]
