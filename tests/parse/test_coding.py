"""Content codings: what comes out, and that a bomb costs neither memory nor time."""

from __future__ import annotations

import gzip
import random
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from crawler.page import Exchange, content_coding
from crawler.parse.coding import EXTRA_WORK, MAX_MEMBERS, Decoded, decode_body, decoded_start
from tests.fuzz.repeated_inputs import EMPTY_BLOCKS
from tests.sinks.values import exchange

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


PAGE = b"".join(b"<p>%d</p>" % random.Random(7).getrandbits(64 + n % 7) for n in range(2_000))


def _raw_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(data) + coder.flush()


CODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", _raw_deflate),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstd.compress),
}
coders = pytest.mark.parametrize(("name", "encode"), CODERS.values(), ids=CODERS)


@coders
@given(data=st.binary(max_size=2_000))
def test_each_coding_is_undone(name: str, encode: Callable[[bytes], bytes], data: bytes) -> None:
    assert decode_body(encode(data), name) == Decoded(data)


@pytest.mark.parametrize("value", ["", "identity", " , identity ,"])
def test_identity_is_no_coding(value: str) -> None:
    assert decode_body(PAGE, value) == Decoded(PAGE)
    assert decode_body(PAGE, value, 10) == Decoded(PAGE[:10], truncated=True)


def test_codings_are_undone_last_one_first() -> None:
    body = gzip.compress(brotli.compress(zlib.compress(PAGE)))
    assert decode_body(body, "deflate, BR ,gzip") == Decoded(PAGE)
    assert decode_body(gzip.compress(body), "deflate, br, gzip, gzip").error == "too_many_layers"


@pytest.mark.parametrize("value", ["utf-8", "none", "binary", "aws-chunked", "compress", "gzip, none", "UTF-8, br"])
def test_what_is_no_coding_is_ignored(value: str) -> None:
    encode = gzip.compress if "gzip" in value else brotli.compress if "br" in value else bytes
    assert decode_body(encode(PAGE), value) == Decoded(PAGE, is_repaired=True)
    assert decode_body(encode(PAGE), value, 10) == Decoded(PAGE[:10], truncated=True, is_repaired=True)


def test_a_coding_that_nobody_reads_any_more_is_said_so() -> None:
    assert decode_body(b"\x1f\x9d\x90" + PAGE, "compress") == Decoded(b"", error="unknown_coding")


def test_text_that_is_compressed_without_saying_so_is_read() -> None:
    """And so is text that is compressed twice. A file that shall arrive compressed is left alone."""
    once = gzip.compress(PAGE)
    for named, body in (("", once), ("gzip", gzip.compress(once)), ("br, gzip", gzip.compress(brotli.compress(once)))):
        for media in ("text/html; charset=utf-8", "application/rss+xml", ""):
            assert decode_body(body, content_coding(named, media, body)) == Decoded(PAGE, is_repaired=True)
        coding = content_coding(named, "application/x-gzip", body)
        assert decode_body(body, coding) == Decoded(once)
    assert decode_body(once, content_coding("gzip", "text/html", once)) == Decoded(PAGE)
    assert content_coding("br", "text/html", PAGE) == "br"
    bomb = gzip.compress(gzip.compress(bytes(50_000_000)))
    assert decode_body(bomb, content_coding("gzip", "", bomb), 1_000) == Decoded(bytes(1_000), True, None, True)


@coders
def test_an_empty_body_has_no_coding(name: str, encode: Callable[[bytes], bytes]) -> None:
    assert decode_body(b"", name) == Decoded(b"")


@coders
def test_a_body_that_breaks_off_yields_what_had_come(name: str, encode: Callable[[bytes], bytes]) -> None:
    noise = random.Random(3).randbytes(400_000)  # several blocks of each coding
    body = encode(noise)
    decoded = decode_body(body[: len(body) // 2], name)
    assert decoded.error == "incomplete"
    assert noise.startswith(decoded.data)
    assert len(decoded.data) > 0.2 * len(noise)


@pytest.mark.parametrize(("name", "encode"), [CODERS["gzip"], CODERS["deflate"]], ids=["gzip", "deflate"])
def test_a_corrupt_body_yields_what_precedes_the_damage(name: str, encode: Callable[[bytes], bytes]) -> None:
    body = bytearray(encode(PAGE))
    body[-2] ^= 0xFF  # in the checksum, behind all data
    assert decode_body(bytes(body), name) == Decoded(PAGE, error="corrupt")


@pytest.mark.parametrize("named", ["gzip", "deflate", "br", "zstd"])
def test_a_body_is_taken_by_its_bytes_if_another_coding_was_named(named: str) -> None:
    for name in ("gzip", "deflate", "br", "zstd"):
        body = CODERS[name][1](PAGE)
        assert decode_body(body, named) == Decoded(PAGE, is_repaired=name != named)
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
    assert decode_body(picture, named) == Decoded(picture, is_repaired=True)


@coders
def test_what_does_not_begin_as_that_coding_is_taken_as_it_is(name: str, encode: Callable[[bytes], bytes]) -> None:
    for body in (
        b"\xff<html>plain text after all</html>",
        b"<!doctype html><title>\xd0\xb0</title>",
        b"{}",
        b"a",
        PAGE,
    ):
        assert decode_body(body, name) == Decoded(body, is_repaired=True)
        twice = decode_body(encode(body), f"{name}, {name}")
        assert twice == Decoded(body, is_repaired=True)


@pytest.mark.parametrize(("name", "encode"), [CODERS["gzip"], CODERS["zstd"]], ids=["gzip", "zstd"])
def test_members_in_a_row_are_one_body(name: str, encode: Callable[[bytes], bytes]) -> None:
    assert decode_body(encode(PAGE[:50]) + encode(PAGE[50:]), name) == Decoded(PAGE)
    assert decode_body(encode(PAGE) + b"\0" * 8, name) == Decoded(PAGE)


@pytest.mark.parametrize("padding", [b"\0", b"\0" * 5_000, b"\n", b"\r\n"])
def test_padding_behind_the_last_member_is_no_loss(padding: bytes) -> None:
    assert decode_body(gzip.compress(PAGE) + padding, "gzip") == Decoded(PAGE)


def test_a_later_member_that_is_corrupt_is_told() -> None:
    """And what precedes the damage is kept, as in the first one."""
    second = bytearray(gzip.compress(PAGE))
    second[-8] ^= 1
    assert decode_body(gzip.compress(PAGE) + second, "gzip") == Decoded(PAGE * 2, error="corrupt")
    assert decode_body(gzip.compress(PAGE) + b"junk after the end", "gzip") == Decoded(PAGE, error="corrupt")
    assert decode_body(gzip.compress(PAGE) + second, "gzip", len(PAGE) + 5).data == (PAGE * 2)[: len(PAGE) + 5]


def test_the_number_of_members_is_bounded() -> None:
    body = gzip.compress(b"a") * (MAX_MEMBERS + 1)
    assert decode_body(body, "gzip") == Decoded(b"a" * MAX_MEMBERS, error="too_many_members")


@coders
def test_a_limit_is_exact(name: str, encode: Callable[[bytes], bytes]) -> None:
    body = encode(PAGE)
    assert decode_body(body, name, len(PAGE)) == Decoded(PAGE)
    assert decode_body(body, name, len(PAGE) - 1) == Decoded(PAGE[:-1], truncated=True)


def test_a_zstd_window_beyond_the_rfc_is_not_granted() -> None:
    """RFC 9659 3: the decoder would allocate 128 MB before the first byte came out."""
    coder = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    body = coder.compress(PAGE) + coder.flush()
    assert decode_body(body, "zstd") == Decoded(b"", error="corrupt")


ZEROS = bytes(64 * 1024 * 1024)
BOMBS = {
    "gzip": ("gzip", gzip.compress(ZEROS)),
    "gzip twice": ("gzip, gzip", gzip.compress(gzip.compress(ZEROS))),
    "br": ("br", brotli.compress(ZEROS, quality=4)),
    "zstd": ("zstd", zstd.compress(ZEROS)),
    "empty blocks": ("deflate", b"\x00\x00\x00\xff\xff" * 2_000_000),
    "empty blocks with codes of their own": ("deflate, gzip", gzip.compress(EMPTY_BLOCKS * 1_000_000)),
    "empty members": ("gzip", gzip.compress(b"") * 400_000),
}
bombs = pytest.mark.parametrize(("name", "body"), BOMBS.values(), ids=BOMBS)


@bombs
def test_a_bomb_is_bounded_in_memory(name: str, body: bytes) -> None:
    tracemalloc.start()
    decoded = decode_body(body, name, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(decoded.data) <= 1_000_000
    assert peak < len(body) * 2 + 4_000_000


CORRUPT = b"\x07\xff\xff"


def test_what_decoders_read_is_bounded_over_all_layers() -> None:
    """The layers yield nothing, so that their output has no limit to exceed."""
    blocks = EMPTY_BLOCKS * 10_000 + _raw_deflate(PAGE)
    body = gzip.compress(blocks)
    whole = len(body) + len(blocks)
    assert decode_body(body, "deflate, gzip", max_work=whole) == Decoded(PAGE)
    assert decode_body(body, "deflate, gzip", max_work=whole - 1).error == "too_much_work"
    assert decode_body(body, "deflate, gzip", max_work=10) == Decoded(b"", error="too_much_work")


def test_reading_a_corrupt_body_again_counts_as_well() -> None:
    body = gzip.compress(PAGE)[:-8] + b"corrupt!"
    assert decode_body(body, "gzip", max_work=3 * len(body) + 65_536) == Decoded(PAGE, error="corrupt")
    assert decode_body(body, "gzip", max_work=2 * len(body) - 1).error == "too_much_work"


def test_a_corrupt_layer_takes_little_longer_than_a_sound_one() -> None:
    """It was decoded three times."""
    blocks = EMPTY_BLOCKS * 10_000

    def seconds(inner: bytes) -> float:
        body = gzip.compress(inner)
        started = time.process_time()
        assert decode_body(body, "deflate, gzip", 1 << 20, max_work=len(body) + len(blocks) + 3).data == b""
        return time.process_time() - started

    assert min(seconds(blocks + CORRUPT) for _ in range(3)) < 2 * max(seconds(blocks) for _ in range(3))


def test_a_body_of_any_size_may_be_read_and_inner_layers_in_part() -> None:
    noise = random.Random(3).randbytes(EXTRA_WORK + 100_000)
    stored = zlib.compress(noise, 0)
    assert decode_body(stored, "deflate") == Decoded(noise)
    part = decode_body(gzip.compress(stored, 0), "deflate, gzip")
    assert part.error == "too_much_work"
    assert noise.startswith(part.data)
    assert len(part.data) > EXTRA_WORK - 100_000


def test_the_start_of_a_body_is_decoded_only_if_it_is_coded_and_sound() -> None:
    def received(body: bytes, *headers: tuple[bytes, bytes]) -> Exchange:
        return structs.replace(exchange("x", body), headers=headers, body=body)

    coded = (b"Content-Encoding", b"gzip")
    assert decoded_start(received(b"plain"), 100) is None
    assert decoded_start(received(gzip.compress(b"some text"), coded), 100) == b"some text"
    assert (
        decoded_start(received(gzip.compress(b"some text"), coded), 4) is None
    )  # its first 4 bytes are not a whole body
    assert decoded_start(received(gzip.compress(b"x" * 5_000), coded), 100) == b"x" * 100
    assert decoded_start(received(b"no gzip", coded), 100) == b"no gzip"
    assert decoded_start(received(gzip.compress(PAGE)[:50], coded), 100) is None


def test_a_media_type_of_spaces_takes_no_time() -> None:
    began = time.process_time()
    assert content_coding("gzip", f",{' ' * 60_000}x", b"") == "gzip"
    assert time.process_time() - began < 1
