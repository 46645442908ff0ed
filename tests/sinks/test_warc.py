"""WARC files and their indexes, as third-party readers see them."""

from __future__ import annotations

import gzip
import io
import re
import sys
from pathlib import Path
from uuid import RFC_4122, UUID

import msgspec
import pytest
import surt
from fastwarc.warc import ArchiveIterator
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from crawler.page import Exchange, Link, LinkKind, Outcome
from crawler.sinks.cdxj import index_path, read_index, surt_key
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.files import open_path
from crawler.sinks.warc import WarcRecords, sha1, stored_head, warc_date
from frontier.errors import BadUrl
from frontier.urls import canonicalize
from tests.sinks import readers
from tests.sinks.values import NOON, archived, archiving, exchange, page, settings, varied_exchanges


async def warc_of(folder: Path, *made: Exchange, **more: object) -> Path:
    """The WARC file with the pages of the exchanges `made`, each written as a group of its own."""
    async with archiving(folder, **more, wall=lambda: NOON) as archive:
        for one in made:
            await archive.write([page(one)])
    (file,) = readers.warc_files(folder)
    return file


async def test_readers_find_nothing_wrong_with_any_kind_of_exchange(tmp_path: Path) -> None:
    readers.check(await warc_of(tmp_path, *varied_exchanges()))


ODD_LINES = (
    b"nosniff", b" X: 1", b" Transfer-Encoding: chunked", b"Transfer-Encoding : chunked", b'"Transfer-Encoding": chunked',
    b": v", b"X: a\0b", b"X: a\rb", b"X: a\r\n b", b"\xff: 1", b"[redacted]", b"Content-Length: 4, 4",
    b"Content-Length: +4",
)  # fmt: skip


async def test_readers_find_nothing_wrong_with_odd_header_lines(tmp_path: Path) -> None:
    made = [exchange(str(number), b"body", line) for number, line in enumerate(ODD_LINES)]
    first = [
        structs.replace(one, url=f"{one.url}/first", response_head=b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n")
        for one, line in zip(made, ODD_LINES, strict=True)
    ]
    readers.check(await warc_of(tmp_path, *made, *first))


@pytest.mark.parametrize("read", [readers.by_fastwarc, readers.by_warcio])
async def test_bodies_come_back_byte_for_byte(tmp_path: Path, read: object) -> None:
    made = varied_exchanges()
    assert callable(read)
    found = read(await warc_of(tmp_path, *made))
    assert {record.url: record.payload for record in found if record.type == "response"} == {
        one.url: one.body for one in made
    }


async def test_heads_come_back_byte_for_byte_when_their_framing_is_true(tmp_path: Path) -> None:
    made = [one for one in varied_exchanges() if stored_head(one) == one.response_head]
    file = await warc_of(tmp_path, *made)
    blocks = {
        (record.headers.get("WARC-Type"), record.headers.get("WARC-Target-URI")): record.reader.read()
        for record in ArchiveIterator(str(file), parse_http=False)
    }
    assert len(made) > 10
    for one in made:
        assert blocks["request", one.url] == one.request_head
        assert blocks["response", one.url] == one.response_head + one.body


@pytest.mark.parametrize(
    ("lines", "truncated", "stored"),
    [
        ([b"Transfer-Encoding: chunked"], None, [b"X-Crawler-Transfer-Encoding: chunked"]),
        (
            [b"transfer-encoding : chunked", b"Content-Length: 3"],
            None,
            [b"X-Crawler-transfer-encoding : chunked", b"X-Crawler-Content-Length: 3"],
        ),
        ([b"Content-Length: 9"], "length", [b"X-Crawler-Content-Length: 9"]),
        (
            [b" Transfer-Encoding: chunked"],
            None,
            [b" X-Crawler-Transfer-Encoding: chunked", b"X-Crawler-Content-Length: 4"],
        ),
        ([b"Content-Length: 4, 4"], None, [b"X-Crawler-Content-Length: 4, 4"]),
        ([b"Content-Length: +4"], None, [b"X-Crawler-Content-Length: +4"]),
        ([b"Content-Length: 4"], None, [b"Content-Length: 4"]),
        ([b"Content-Length: 4", b"X-Transfer-Encoding: x"], None, [b"Content-Length: 4", b"X-Transfer-Encoding: x"]),
    ],
)
def test_framing_that_is_untrue_of_the_stored_body_is_set_aside(
    lines: list[bytes], truncated: str | None, stored: list[bytes]
) -> None:
    made = exchange("framed", b"body", *lines, truncated=truncated)
    assert stored_head(made).split(b"\r\n")[2:-2] == stored
    assert stored_head(made).startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n")


async def test_a_decoding_reader_gets_the_text_of_chunked_and_compressed_responses(tmp_path: Path) -> None:
    text = b"the text of the page " * 100
    file = await warc_of(
        tmp_path,
        exchange("chunked", gzip.compress(text), b"Transfer-Encoding: chunked", b"Content-Encoding: gzip"),
    )
    texts = [
        record.reader.read()
        for record in ArchiveIterator(str(file), auto_decode="all")
        if record.headers.get("WARC-Type") == "response"
    ]
    assert texts == [text]


async def test_an_exchange_says_where_when_and_how(tmp_path: Path) -> None:
    made = exchange("tls", b"secret", truncated="time", tls="TLS_AES_256_GCM_SHA384 TLSv1.3", address="2001:db8::7")
    info, request, response, _ = readers.by_warcio(await warc_of(tmp_path, made))
    assert response.headers["WARC-Target-URI"] == request.headers["WARC-Target-URI"] == made.url
    assert response.headers["WARC-Date"] == request.headers["WARC-Date"] == "2026-09-21T14:13:20.123456Z"
    assert response.headers["WARC-IP-Address"] == "2001:db8::7"
    assert response.headers["WARC-Truncated"] == "time"
    assert "WARC-Truncated" not in request.headers
    assert response.headers["WARC-Cipher-Suite"] == "TLS_AES_256_GCM_SHA384"
    assert response.headers["WARC-Payload-Digest"] == sha1(b"secret")
    assert response.headers["WARC-Concurrent-To"] == request.headers["WARC-Record-ID"]
    assert request.headers["WARC-Concurrent-To"] == response.headers["WARC-Record-ID"]
    assert response.headers["WARC-Warcinfo-ID"] == info.headers["WARC-Record-ID"]


def test_the_protocol_field_is_repeated_for_each_layer() -> None:
    records = WarcRecords(settings(Path()))
    made = records.exchange(exchange("tls", b"", tls="ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2"))
    assert re.findall(rb"WARC-Protocol: (\S+)", gzip.decompress(made.response)) == [b"http/1.1", b"tls/1.2"]


async def test_the_file_begins_with_what_made_it(tmp_path: Path) -> None:
    about = (("operator", "Ann <ann@crawler.test>"), ("description", "two\r\nlines: of text"))
    file = await warc_of(tmp_path, exchange("a", b"a"), about=about)
    info = readers.by_warcio(file)[0]
    assert info.type == "warcinfo"
    assert info.headers["WARC-Filename"] == file.name
    fields = dict(line.split(": ", 1) for line in info.payload.decode().splitlines())
    assert fields["format"] == "WARC File Format 1.1"
    assert fields["isPartOf"] == "news"
    assert fields["replica"] == "host-1a2b"
    assert fields["operator"] == "Ann <ann@crawler.test>"
    assert fields["description"] == "two lines: of text"


async def test_the_same_body_is_stored_once(tmp_path: Path) -> None:
    body = b"the same everywhere " * 100
    first, again = exchange("first", body), exchange("again", body, started_at=NOON + 60)
    file = await warc_of(tmp_path, first, again)
    readers.check(file)
    _, _, response, _, _, revisit, _ = readers.by_warcio(file)
    assert (response.type, revisit.type) == ("response", "revisit")
    assert revisit.payload == b""
    assert dict(revisit.http)["Content-Length"] == str(len(body))
    assert revisit.headers["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
    assert revisit.headers["WARC-Payload-Digest"] == response.headers["WARC-Payload-Digest"]
    assert revisit.headers["WARC-Refers-To"] == response.headers["WARC-Record-ID"]
    assert revisit.headers["WARC-Refers-To-Target-URI"] == first.url
    assert revisit.headers["WARC-Refers-To-Date"] == response.headers["WARC-Date"]
    assert revisit.headers["WARC-Truncated"] == "length"


@pytest.mark.parametrize(
    ("body", "more", "limit"),
    [
        pytest.param(b"short", {}, 100, id="short-body"),
        pytest.param(b"cut " * 1000, {"truncated": "length"}, 100, id="truncated"),
        pytest.param(b"same " * 1000, {}, 0, id="switched-off"),
    ],
)
async def test_a_body_is_stored_again_when_a_reference_gains_nothing(
    tmp_path: Path, body: bytes, more: dict[str, object], limit: int
) -> None:
    file = await warc_of(tmp_path, *(exchange(name, body, **more) for name in "ab"), revisits=limit)
    assert [record.type for record in readers.by_warcio(file)].count("response") == 2


def test_the_memory_of_bodies_is_bounded_and_keeps_what_was_used_last() -> None:
    records = WarcRecords(settings(Path(), revisits=2))

    def kind(name: str) -> bytes:
        made = records.exchange(exchange(name, name.encode() * 2000))
        records.confirm()
        return gzip.decompress(made.response).split(b"\r\n")[1]

    response, revisit = b"WARC-Type: response", b"WARC-Type: revisit"
    assert [kind(name) for name in "abacb"] == [response, response, revisit, response, response]


def test_nothing_refers_to_a_record_that_was_not_written() -> None:
    records = WarcRecords(settings(Path()))
    sent = exchange("a", b"body " * 1000)
    records.exchange(sent)
    records.undo()
    assert b"WARC-Type: response" in gzip.decompress(records.exchange(sent).response)
    records.confirm()
    records.undo()
    assert b"WARC-Type: revisit" in gzip.decompress(records.exchange(sent).response)


async def test_a_metadata_record_tells_what_was_found_in_the_page(tmp_path: Path) -> None:
    links = (
        Link("https://site.test/%C3%A9", LinkKind.ANCHOR),
        Link("https://other.test/", LinkKind.REDIRECT),
        Link("https://site.test/map.xml", LinkKind.SITEMAP),
    )
    async with archiving(tmp_path, wall=lambda: NOON) as archive:
        await archive.write(
            [
                page(exchange("a", b"a"), links=links, charset="windows-1252", depth=3, via="https://site.test/"),
                page(exchange("c", b"c", truncated="time"), links=(), cut=("time", "links")),
            ]
        )
        await archive.write([page(exchange("b", b"b"), links=(), outcome=Outcome.RETRY)])
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)
    metadata, of_cut = [record for record in readers.by_warcio(file) if record.type == "metadata"]
    (response, *_) = [record for record in readers.by_warcio(file) if record.type == "response"]
    assert metadata.url == "https://site.test/a"
    assert metadata.headers["Content-Type"] == "application/warc-fields"
    assert metadata.headers["WARC-Concurrent-To"] == response.headers["WARC-Record-ID"]
    assert metadata.payload.decode().splitlines() == [
        "fetchTimeMs: 250",
        "depth: 3",
        "outcome: done",
        "reason: ok",
        "tries: 0",
        "via: https://site.test/",
        "charset-detected: windows-1252",
        "outlink: https://site.test/%C3%A9 L a/@href",
        "outlink: https://other.test/ R Location:",
        "outlink: https://site.test/map.xml M sitemap/loc",
    ]
    assert of_cut.payload.decode().splitlines()[5:] == ["cut: time links"]


async def test_an_answer_of_304_refers_to_what_was_not_modified(tmp_path: Path) -> None:
    """WARC 1.1 section 6.7.3."""
    whole = exchange("map.xml", b"<urlset/>")
    head = b"HTTP/1.1 304 Not Modified\r\nETag: 1\r\n\r\n"
    unchanged = exchange("map.xml", b"", status=304, response_head=head, started_at=NOON + 3_600)
    async with archiving(tmp_path, wall=lambda: NOON) as archive:
        for one, body_at in ((whole, 0.0), (unchanged, whole.started_at)):
            await archive.write([page(one, body_at=body_at)])
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)
    response, revisit = [record for record in readers.by_warcio(file) if record.type in ("response", "revisit")]
    assert (response.type, revisit.type) == ("response", "revisit")
    assert revisit.headers["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
    assert revisit.headers["WARC-Refers-To-Target-URI"] == whole.url
    assert revisit.headers["WARC-Refers-To-Date"] == response.headers["WARC-Date"]
    assert "WARC-Payload-Digest" not in revisit.headers
    assert dict(revisit.http) == {"ETag": "1"}
    (indexed,) = file.with_name(file.name.replace(".warc.gz", ".cdxj")).read_bytes().splitlines()
    assert b'"status":"200"' in indexed, "a replay of the 304 would be a blank page"
    assert [line.rstrip(b"\n") for line in read_index(file)] == [indexed]


async def test_an_answer_of_304_is_no_duplicate_of_a_body(tmp_path: Path) -> None:
    """It has none. A page with the same body is one."""
    async with archiving(tmp_path) as archive:
        first, same = exchange("a", b"a" * 2_000), exchange("b", b"a" * 2_000)
        unchanged = exchange("a", b"", status=304)
        written = [
            await archive.write([page(one, body_at=at)]) for one, at in ((first, 0.0), (same, 0.0), (unchanged, NOON))
        ]
    assert [one.duplicates for one in written] == [set(), {same.url}, set()]
    records = [record for record in readers.by_warcio(*readers.warc_files(tmp_path)) if record.type == "revisit"]
    assert len(records) == 2


def test_the_prefix_of_record_ids_is_an_argument() -> None:
    records = WarcRecords(settings(Path()), random=lambda size: bytes(number % 256 for number in range(size)))
    assert b"<urn:uuid:00010203-0405-8607-8809-000000000001>" in gzip.decompress(records.warcinfo("f", NOON))


def test_each_record_has_an_id_of_its_own_and_no_other_run_has_it() -> None:
    ids: list[str] = []
    for _ in range(20):
        records = WarcRecords(settings(Path()))
        made = records.exchange(exchange("a", b"a"))
        for record in (made.request, made.response, records.warcinfo("f", NOON)):
            ids += re.findall(r"WARC-Record-ID: <(\S+)>", gzip.decompress(record).decode())
    assert len(set(ids)) == len(ids) == 60
    assert {(UUID(one).version, UUID(one).variant, UUID(one).urn == one) for one in ids} == {(8, RFC_4122, True)}


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHECKSUM_FLAG = 1 << 2  # of the frame header's first byte (RFC 8878 section 3.1.1.1.1)


async def test_each_record_in_zstd_is_a_frame_with_its_size_and_a_checksum(tmp_path: Path) -> None:
    robots = exchange("robots.txt", b"User-agent: *\n")
    await archived(tmp_path, [page(made) for made in varied_exchanges()], exchanges=[robots], compression="zstd")
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)
    assert file.name.endswith(".warc.zst")
    data, frames = file.read_bytes(), 0
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
    "+,;:@!$'*",
    "?b=2&a",
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
    async with archiving(tmp_path, compression=compression, wall=lambda: NOON) as archive:
        await archive.write([page(one) for one in made[::2]], [exchange("robots.txt", b"User-agent: *\n")])
        await archive.write([page(one) for one in made[1::2]])
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
    await archived(
        tmp_path,
        [page(one) for one in varied_exchanges()],
        exchanges=[exchange("robots.txt", b"User-agent: *\n" * 99)],
        wall=lambda: NOON,
    )
    (file,) = readers.warc_files(tmp_path)
    whole = index_path(file).read_bytes()
    assert b"".join(sorted(read_index(file))) == whole
    index_path(file).unlink()
    file.rename(open_path(file))
    await archived(tmp_path, replica="next")
    assert index_path(file).read_bytes() == whole


async def test_no_index_unless_it_is_wanted(tmp_path: Path) -> None:
    await archived(tmp_path, [page(exchange("a", b"a"))], index=False)
    assert {path.suffix for path in readers.files(tmp_path)} == {".gz", ".jsonl"}


def parsed(line: bytes) -> tuple[str, str, dict[str, str]]:
    key, timestamp, fields = line.decode().split(" ", 2)
    return key, timestamp, msgspec.json.decode(fields, type=dict[str, str])


def test_a_time_that_was_stored_in_microseconds_is_written_the_same_again() -> None:
    """A revisit refers to the date of a response, which the state of its visits keeps in microseconds."""
    times = [1_795_000_000 + step * 0.123456789 for step in range(20_000)]
    assert [warc_date(round(at * 1e6) / 1e6) for at in times] == list(map(warc_date, times))
