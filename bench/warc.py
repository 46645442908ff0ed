"""The CPU time and size of a page's WARC records.

    python -m bench.warc FOLDER [PAGES]

Reads up to PAGES (150) HTML files of 25 to 60 KB below FOLDER. Prints, as medians of seven rounds, milliseconds of CPU
per page and the size relative to the pages: of request and response records with their digests by different writers,
then of the compression alone. zlib-ng is measured when it is installed.

Last result, on PostgreSQL 15's documentation (123 pages of 37 KB), Python 3.11, one core of a shared machine:

    here, ISA-L 2                 0.215 ms  0.295        compression, ISA-L 0          0.080 ms  0.320
    here, ISA-L 2, digest given   0.182 ms  0.295        compression, ISA-L 1          0.108 ms  0.298
    FastWARC, level 1             0.190 ms  0.333        compression, ISA-L 2          0.108 ms  0.295
    FastWARC, level 3             0.355 ms  0.241        compression, ISA-L 3          0.244 ms  0.287
    FastWARC, level 6             0.608 ms  0.227        compression, zlib 1           0.320 ms  0.303
    warcio                        1.839 ms  0.254        compression, zlib 3           0.404 ms  0.285
                                                         compression, zlib 6           0.841 ms  0.260
                                                         compression, zlib-ng 1        0.125 ms  0.366
                                                         compression, zlib-ng 2        0.244 ms  0.290

FastWARC's and warcio's records have fewer fields than ours here, which makes them smaller.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import random
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fastwarc.stream_io import GzipWriter
from fastwarc.warc import WarcRecord, WarcRecordType
from isal import isal_zlib
from warcio.warcwriter import WARCWriter  # type: ignore[import-untyped]

from crawler.page import Exchange
from crawler.sinks.warc import WarcRecords, sha1
from tests.sinks.values import exchange, settings

HEADER_LINES = (b"Server: nginx", b"Date: Sat, 21 Nov 2026 05:00:42 GMT", b"ETag: 6459-8ab", b"Connection: keep-alive")


def records_by_us(made: list[Exchange], digests: list[str]) -> Iterator[bytes]:
    records = WarcRecords(settings(Path(), revisits=0))
    yield records.warcinfo("bench.warc.gz", 0.0)
    for one, digest in zip(made, digests, strict=True):
        both = records.exchange(one, digest)
        yield both.request
        yield both.response


def by_us(made: list[Exchange], digests: list[str]) -> int:
    return sum(map(len, records_by_us(made, digests)))


def by_fastwarc(made: list[Exchange], level: int) -> int:
    file = io.BytesIO()
    writer = GzipWriter(file, compression_level=level)
    for one in made:
        for kind, block in (
            (WarcRecordType.request, one.request_head),
            (WarcRecordType.response, one.response_head + one.body),
        ):
            record = WarcRecord()
            record.init_headers(kind, content_length=len(block))
            record.headers["WARC-Target-URI"] = one.url
            record.headers["WARC-IP-Address"] = one.address
            record.is_http = True
            record.set_bytes_content(block)
            record.write(writer, checksum_data=True)
    writer.close()
    return len(file.getvalue())


def by_warcio(made: list[Exchange]) -> int:
    file = io.BytesIO()
    writer = WARCWriter(file, gzip=True, warc_version="1.1")
    for one in made:
        for kind, block in (("request", one.request_head), ("response", one.response_head + one.body)):
            writer.write_record(writer.create_warc_record(one.url, kind, payload=io.BytesIO(block)))
    return len(file.getvalue())


def pages_below(folder: Path, count: int) -> list[Exchange]:
    bodies = [path.read_bytes() for path in sorted(folder.rglob("*.html")) if 25_000 < path.stat().st_size < 60_000]
    random.Random(1).shuffle(bodies)
    return [exchange(f"docs/page-{n}.html", body, *HEADER_LINES) for n, body in enumerate(bodies[:count])]


def report(name: str, work: Callable[[], int], made: list[Exchange]) -> None:
    spent = []
    for _ in range(7):
        before = time.process_time()
        size = work()
        spent.append(time.process_time() - before)
    share = size / sum(len(one.body) for one in made)
    print(f"{name:28} {statistics.median(spent) / len(made) * 1000:6.3f} ms  {share:.3f}")


def main(folder: Path, count: int = 150) -> None:
    made = pages_below(folder, count)
    print(f"{len(made)} pages of {sum(len(one.body) for one in made) // len(made)} bytes")
    known, unknown = [sha1(one.body) for one in made], [""] * len(made)
    report("here, ISA-L 2", lambda: by_us(made, unknown), made)
    report("here, ISA-L 2, digest given", lambda: by_us(made, known), made)
    for level in (1, 3, 6):
        report(f"FastWARC, level {level}", lambda level=level: by_fastwarc(made, level), made)  # type: ignore[misc]
    report("warcio", lambda: by_warcio(made), made)
    plain = [gzip.decompress(record) for record in records_by_us(made, known)]
    libraries = {"ISA-L": (isal_zlib, (0, 1, 2, 3)), "zlib": (zlib, (1, 3, 6))}
    if importlib.util.find_spec("zlib_ng"):
        libraries["zlib-ng"] = (importlib.import_module("zlib_ng.zlib_ng"), (1, 2, 3, 6))
    for name, (library, levels) in libraries.items():
        for level in levels:
            compress = library.compress
            report(
                f"compression, {name} {level}",
                lambda compress=compress, level=level: sum(len(compress(r, level, 31)) for r in plain),  # type: ignore[misc]
                made,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
