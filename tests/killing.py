"""kill -9 at random moments: what was settled is in the archive, and every file can be read.

    python -m tests.killing [KILLS] [SEED]

crawls a synthetic web with one replica after the other, each killed after some requests, the last one not. Then each
settled URL must have a row, and its whole response or revisit record unless its page forbids it (noarchive), and no file
may be broken. A URL whose settlement died with its replica is fetched again and has a second row: those must all be from
the last group that a killed replica wrote. Takes about 4 s a kill, most of it until the dead replica's leases expire.

Last result: OK: 50 kills, 1947 URLs settled, 0 without a row, 0 rows without their record, 0 URLs with two rows.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from crawler.commit import CommitSettings
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


@dataclass(frozen=True, slots=True)
class Findings:
    """What a crawl with `kills` left. All lists are empty, but `doubled` may have some."""

    kills: int
    settled: int
    missing: list[str]  # settled, without a row
    without_record: list[str]  # rows whose WARC record is not there, or not that URL's
    doubled: list[str]  # URLs with more than one row
    unexplained: list[str]  # those of them that no killed replica's last group explains

    @property
    def ok(self) -> bool:
        return not (self.missing or self.without_record or self.unexplained)

    def __str__(self) -> str:
        verdict = "OK" if self.ok else "NOT OK"
        return (
            f"{verdict}: {self.kills} kills, {self.settled} URLs settled, {len(self.missing)} without a row, "
            f"{len(self.without_record)} rows without their record, {len(self.doubled)} URLs with two rows, "
            f"{len(self.unexplained)} of them unexplained"
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
        last = crawler.start("run", "--until-empty").wait(60.0 + 5.0 * kills)
        assert last.code == 0, last.err
        settled = crawler.status()
        assert not list(crawler.out.glob("*.open"))
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
    rows: dict[str, list[tuple[Path, int, Row]]] = defaultdict(list)  # URL -> its rows: file, rows after it, the row
    for path in sorted(out.glob("*.pages.jsonl")):
        found = msgspec.json.Decoder(Row).decode_lines(path.read_bytes())
        for number, row in enumerate(found):
            rows[row["url"]].append((path, len(found) - number, row))
    places = Counter[tuple[str, int, str]]()
    for file in readers.warc_files(out):
        readers.check(file)
        places.update(
            (file.name, r.offset, r.url) for r in readers.by_fastwarc(file) if r.type in ("response", "revisit")
        )
    every = [row for found in rows.values() for _, _, row in found]
    archived = [row for row in every if row["status"] is not None and not row["noarchive"]]
    doubled = [url for url, found in rows.items() if len(found) > 1]
    return Findings(
        kills=kills,
        settled=len(expected),
        missing=sorted(expected - rows.keys()),
        without_record=[row["url"] for row in archived if places[_place(row)] != 1],
        doubled=doubled,
        unexplained=[url for url in doubled if not _is_explained([left for _, left, _ in rows[url]])],
    )


def _place(row: Row) -> tuple[str, int, str]:
    warc = row["warc"] or {"file": "", "offset": -1}
    return warc["file"], warc["offset"], row["url"]


def _is_explained(rows_left: list[int]) -> bool:
    """Whether all rows of a URL but one stand in the last group of their file: only its settlement can have been lost."""
    return sum(left > CommitSettings().backlog for left in rows_left) <= 1


def main(kills: int = 50, seed: int = 1) -> int:
    with tempfile.TemporaryDirectory(prefix="killing-") as folder:
        findings = crawl_and_kill(Path(folder), kills, seed)
    print(findings)
    return 0 if findings.ok else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
