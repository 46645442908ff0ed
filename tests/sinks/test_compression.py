"""WARC files in zstd: what the IIPC's proposal requires, and which tools read them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from warcio.exceptions import ArchiveLoadFailed  # type: ignore[import-untyped]

from crawler.audit.records import read_archive
from crawler.sinks.archive import Archive
from crawler.sinks.cdxj import index_path, read_index
from crawler.sinks.files import open_path
from crawler.sinks.reader import read_rows
from tests.sinks import readers
from tests.sinks.values import exchange, page, settings, varied_exchanges

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHECKSUM_FLAG = 1 << 2  # of the frame header's first byte (RFC 8878 section 3.1.1.1.1)


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A WARC file of one of each kind of exchange."""
    archive = Archive(settings(tmp_path, compression="zstd"))
    await archive.start()
    await archive.write([page(made) for made in varied_exchanges()], [exchange("robots.txt", b"User-agent: *\n")])
    await archive.stop()
    (file,) = readers.warc_files(tmp_path)
    return file


def test_each_record_is_a_frame_with_its_size_and_a_checksum(file: Path) -> None:
    data, frames = file.read_bytes(), 0
    assert file.name.endswith(".warc.zst")
    while data:
        assert data.startswith(b"\x28\xb5\x2f\xfd")
        assert data[4] & CHECKSUM_FLAG
        size, reader = zstd.get_frame_info(data).decompressed_size, zstd.ZstdDecompressor()
        record = reader.decompress(data)
        assert len(record) == size
        assert record.startswith(b"WARC/1.1\r\n")
        assert record.endswith(b"\r\n\r\n")
        data, frames = reader.unused_data, frames + 1
    assert frames == 1 + 3 * len(varied_exchanges()) + 2  # request, response and metadata; of robots.txt no metadata


def test_fastwarc_reads_it_and_finds_every_digest_right(file: Path) -> None:
    readers.check(file)
    stored = {r.url: r.payload for r in readers.by_fastwarc(file) if r.type == "response"}
    assert stored.keys() == {made.url for made in varied_exchanges()} | {"https://site.test/robots.txt"}


def test_warcio_and_so_pywb_read_it_only_decompressed(file: Path) -> None:
    """If this fails, warcio supports zstd, and `docs/reference/output.md` should say so."""
    with pytest.raises(ArchiveLoadFailed):
        readers.by_warcio(file)
    plain = file.with_name("plain.warc")
    plain.write_bytes(zstd.decompress(file.read_bytes()))  # what `zstd -d` does
    assert [r.url for r in readers.by_warcio(plain)] == [r.url for r in readers.by_fastwarc(file)]


def test_our_own_commands_read_it_finished_or_not(file: Path) -> None:
    urls = sorted(made.url for made in varied_exchanges())
    assert sorted(row.page.url for row in read_rows(file)) == urls
    index = index_path(file).read_bytes()
    for _ in range(2):
        assert sorted(r.url for r in read_archive(file.parent).requests if not r.is_robots) == urls
        assert b"".join(sorted(read_index(file))) == index
        file = file.rename(open_path(file))
