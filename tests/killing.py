"""kill -9 at random moments: what was settled is in the archive, once, and every file can be read.

    python -m tests.killing [KILLS] [SEED]

crawls a synthetic web with one replica after the other, each killed after some requests, the last one not. Then each
settled URL must have one row, one whole response or revisit record unless its page forbids it (noarchive), and one line in
an index that leads to it; no file may be broken, and none may be left over. Takes about 4 s a kill, most of it until the
dead replica's leases expire.

Last result: OK: 50 kills, 4886 URLs settled, 0 without a row, 0 rows without their record, 0 URLs with two
rows, 0 with two records.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.e2e.harness import EVEN, Bench, Tables, Web, bench, wait_until
from tests.sinks import readers
from tests.valkey import ValkeyProcess

REQUESTS = (1, 40)  # of a replica until it is killed
PAGES_A_KILL = 100
"""More than are fetched in a life, whose end comes up to half a second late, as the web's log does."""
DELAY_S = 0.25

TABLES: Tables = {
    "politeness": {"delay": DELAY_S},
    "frontier": {"lease": 1.5},
    "archive": {"max_bytes": 100_000},
}

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


def crawl_and_kill(folder: Path, kills: int, seed: int) -> Findings:
    """Crawl with so many `kills`, and look at what is left. Raises AssertionError for a file that readers reject."""
    chance = random.Random(seed)
    (folder / "valkey").mkdir()
    with (
        Web(folder, seed=seed, domains=24, pages=PAGES_A_KILL * kills, features=EVEN) as web,
        ValkeyProcess(folder / "valkey", persistent=False) as valkey,
        bench(folder, web, valkey.url, TABLES) as crawler,
    ):
        crawler.seed()
        done = 0
        for _ in range(kills):
            done += _kill_one(web, crawler, chance)
        last = crawler.start("run", "--until-empty").wait(180.0 + 5.0 * kills)
        assert last.code == 0, last.err
        settled = crawler.status()
        assert not list(crawler.out.glob("*.open"))  # nor a journal
        expected = web.expected.urls | web.expected.denied
        assert settled["done"] + settled["denied"] + settled["dead"] == len(expected)
        return find(crawler.out, expected, done)


def _kill_one(web: Web, crawler: Bench, chance: random.Random) -> bool:
    """Start a replica and kill it in mid-crawl; False if the crawl was over before."""
    before, wanted = web.requests, chance.randint(*REQUESTS)
    replica = crawler.start("run", "--until-empty")
    wait_until(lambda: web.requests >= before + wanted or not replica.is_running, f"{wanted} requests")
    if not replica.is_running:
        return False
    replica.kill()
    return True


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


def main(kills: int = 50, seed: int = 1) -> int:
    with tempfile.TemporaryDirectory(prefix="killing-") as folder:
        findings = crawl_and_kill(Path(folder), kills, seed)
    print(findings)
    return 0 if findings.ok else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
