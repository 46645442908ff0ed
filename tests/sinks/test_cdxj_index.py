"""The index of each WARC file agrees with its records."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
import surt
from fastwarc.warc import ArchiveIterator
from hypothesis import given
from hypothesis import strategies as st

from crawler.sinks.archive import Archive
from crawler.sinks.cdxj import index_path, read_index, surt_key
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.files import open_path
from frontier.errors import BadUrl
from frontier.urls import canonicalize
from tests.sinks import readers
from tests.sinks.values import NOON, exchange, page, settings, varied_exchanges

PIECES = [
    "a",
    "B7",
    "-",
    "_",
    "~",
    ".",
    "/",
    "//",
    "www.",
    "..",
    "asp",
    "sessionid=1",
    "index.html",
    "(s(x))",
    "?",
    "=",
    "&",
    "%41",
    "ä",
]
HOSTS = [
    "a.test",
    "127.0.0.1:8080",
    "www.b-c.example.org",
    "www7.x.de",
    "www.com",
    "WWW.Example.com",
    "192.0.2.7",
    "[::1]",
    "a.test:81",
]


@given(host=st.sampled_from(HOSTS), pieces=st.lists(st.sampled_from(PIECES), max_size=8))
def test_keys_are_those_of_the_library(host: str, pieces: list[str]) -> None:
    try:
        url = canonicalize(f"https://{host}/{''.join(pieces)}").href
    except BadUrl:
        return
    assert surt_key(url) == surt.surt(url)


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_every_response_and_revisit_stands_where_the_index_says(tmp_path: Path, compression: str) -> None:
    same = b"the same everywhere " * 100
    made = [*varied_exchanges(), exchange("same-1", same), exchange("same-2", same)]
    archive = Archive(settings(tmp_path, compression=compression), wall=lambda: NOON)
    await archive.start()
    await archive.write([page(one) for one in made[::2]], [exchange("robots.txt", b"User-agent: *\n")])
    await archive.write([page(one) for one in made[1::2]])
    await archive.stop()
    (file,) = readers.warc_files(tmp_path)
    lines = index_path(file).read_bytes().splitlines(keepends=True)
    assert lines == sorted(lines)
    data, found = file.read_bytes(), {}
    for line in lines:
        key, timestamp, fields = parsed(line)
        start, length = int(fields["offset"]), int(fields["length"])
        (record,) = ArchiveIterator(io.BytesIO(data[start : start + length]))
        assert (key, timestamp, fields["filename"]) == (surt.surt(fields["url"]), "20260921141320", file.name)
        assert record.headers.get("WARC-Target-URI") == fields["url"]
        assert record.headers.get("WARC-Payload-Digest") == "sha1:" + fields["digest"]
        found[fields["url"]] = (fields["mime"], fields.get("status"))
    expected = {one.url: ("text/html", "200") for one in [*made, exchange("robots.txt", b"")]}
    assert found == expected | {"https://site.test/same-2": ("warc/revisit", None)}


async def test_the_index_of_a_dead_writers_file_is_read_back_from_its_records(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path), wall=lambda: NOON)
    await archive.start()
    await archive.write([page(one) for one in varied_exchanges()], [exchange("robots.txt", b"User-agent: *\n" * 99)])
    await archive.stop()
    (file,) = readers.warc_files(tmp_path)
    whole = index_path(file).read_bytes()
    assert b"".join(sorted(read_index(file))) == whole
    index_path(file).unlink()
    file.rename(open_path(file))
    following = Archive(settings(tmp_path, replica="next"))
    await following.start()
    await following.stop()
    assert index_path(file).read_bytes() == whole


async def test_no_index_unless_it_is_wanted(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path, index=False))
    await archive.start()
    await archive.write([page(exchange("a", b"a"))])
    await archive.stop()
    assert {path.suffix for path in readers.files(tmp_path)} == {".gz", ".jsonl"}


def parsed(line: bytes) -> tuple[str, str, dict[str, str]]:
    key, timestamp, fields = line.decode().split(" ", 2)
    return key, timestamp, msgspec.json.decode(fields, type=dict[str, str])
