"""In which encoding a page is, and its queries are written; and its media type."""

from __future__ import annotations

import codecs
import time
from urllib.parse import quote_from_bytes

import pytest

from crawler import ParsedPage
from crawler.parse.encoding import MediaType, output_codec
from tests.parse.reading import links, read
from tests.sinks.values import exchange, page


@pytest.mark.parametrize(
    ("body", "content_type", "charset", "title"),
    [
        ("<title>ü".encode(), "text/html", "utf-8", "ü"),
        (b"<title>\xfc", "text/html", "windows-1252", "ü"),
        (b"<title>\xfc", "text/html; charset=ISO-8859-1", "windows-1252", "ü"),
        (b"<title>\xc1", "text/html;charset='koi8-r'", "koi8-r", "а"),
        (b"<meta charset=koi8-r><title>\xc1", "text/html", "koi8-r", "а"),
        (b"<meta charset=koi8-r><title>\xc3\xbc", "text/html; charset=utf-8", "utf-8", "ü"),
        (b"\xef\xbb\xbf<title>\xc3\xbc", "text/html; charset=koi8-r", "utf-8", "ü"),
        ("<title>ü".encode("utf-16"), "text/html", "utf-16le", "ü"),
        (b"<meta charset=koi8-r><title>\xc1", "text/html; charset=no-such", "koi8-r", "а"),
        (b"<?xml version='1.0' encoding='koi8-r'?><title>\xc1", "text/html", "koi8-r", "а"),
        (b"<?xml version='1.0'?><title>\xfc", "application/xhtml+xml", "utf-8", "\ufffd"),
    ],
)
def test_the_encoding_is_what_the_standard_says(body: bytes, content_type: str, charset: str, title: str) -> None:
    found = read(body, content_type)
    assert (found.charset, found.title) == (charset, title)
    large = read(body + b"<i>" * 5000, content_type)
    assert (large.charset, large.title[:1]) == (charset, title)


def test_queries_are_written_in_the_encoding_of_their_page() -> None:
    page = "<meta charset={0}><a href='/ä?ä=я#ä'>"
    assert links(page.format("windows-1252").encode("windows-1252", "xmlcharrefreplace")) == [
        "/%C3%A4?%E4=%26%231103%3B"
    ]
    assert links(page.format("utf-8")) == ["/%C3%A4?%C3%A4=%D1%8F"]


@pytest.mark.parametrize(
    ("charset", "query"),
    [
        ("iso-8859-8-i", b"\xe0"),
        ("windows-874", b"\xa1"),
        ("x-mac-cyrillic", b"\x80"),
        ("euc-kr", b"\x94\xee"),
        ("shift_jis", b"\x87A"),
    ],
)
def test_queries_are_written_in_each_encoding_as_they_were_read(charset: str, query: bytes) -> None:
    """Python 3.11 has no codecs with the names of the first three, and 3.14 none with the third. The codecs with the names
    of the others lack these characters."""
    page = b"<meta charset=%b><a href='/?%b'>" % (charset.encode(), query)
    assert links(page) == ["/?" + quote_from_bytes(query)]


def test_each_encoding_can_be_written() -> None:
    """The names in the table of the Encoding standard (4.2), but those whose pages write their queries in UTF-8."""
    names = [f"ISO-8859-{number}" for number in (*range(2, 9), 10, 13, 14, 15, 16, "8-I")]
    names += [f"windows-{number}" for number in (874, *range(1250, 1259))]
    names += ["IBM866", "KOI8-R", "KOI8-U", "macintosh", "x-mac-cyrillic", "GBK", "gb18030", "Big5", "EUC-JP", "EUC-KR"]
    for name in (*names, "ISO-2022-JP", "Shift_JIS"):
        codecs.lookup(output_codec(name))


@pytest.mark.parametrize(("charset", "body", "text"), [("iso-8859-8-i", b"\xe0", "א"), ("euc-kr", b"\x94\xee", "뷁")])
def test_handlers_get_text_in_each_encoding(charset: str, body: bytes, text: str) -> None:
    assert ParsedPage.of(page(exchange("", body), charset=charset)).text == text


@pytest.mark.parametrize("charset", ["iso-8859-8-i", "windows-1252", "gbk", "iso-2022-jp", "shift_jis"])
@pytest.mark.parametrize("query", [b"\xe0\xe1\xe2\xe3" * 16_000, b"\xe0a" * 3_900, b"&#20013;" * 8_000])
def test_no_query_takes_long_to_write(charset: str, query: bytes) -> None:
    """6 ms at most on a fast core; character by character it took half a second."""
    page = b"<a href='/?%b'><a href='/?2%b'><a href=x>" % (query, query)
    read(page, f"text/html; charset={charset}")  # so that the codec is loaded
    began = time.process_time()
    found = read(page, f"text/html; charset={charset}")
    assert time.process_time() - began < 0.05
    assert (found.links[-1].url, found.dropped) == ("http://example.com/dir/x", {"length": 2})


@pytest.mark.parametrize(
    ("header", "essence", "charset"),
    [
        ("text/html", "text/html", None),
        (" Text/HTML ;charset=a", "text/html", "a"),
        ("text/html charset=a", "text/html", "a"),
        ("text/html:charset=a", "text/html", "a"),
        ("text/html, text/html", "text/html", None),
        ("text/html;charset=a, text/html", "text/html", "a"),
        ("text/html;charset=a, text/html;charset=b", "text/html", "b"),
        ("text/plain;charset=a, text/html", "text/html", None),
        ("text/html;charset=a, */*", "text/html", "a"),
        ("text/html,", "text/html", None),
        ('text/plain;x="text/html, ";charset=a', "text/plain", "a"),
        ('text/plain;x="\\", text/html', "text/plain", None),
        ("image/svg+xml", "image/svg+xml", None),
        ("html", "", None),
        ("", "", None),
    ],
)
def test_a_media_type_is_what_browsers_take_or_what_it_begins_with(
    header: str, essence: str, charset: str | None
) -> None:
    assert MediaType.parse(header) == MediaType(essence, charset)
    assert MediaType.parse(header + " " * 200) == MediaType(essence, charset)


def test_content_types_of_spaces_take_no_time() -> None:
    began = time.process_time()
    for name in ("charset", "charset=", 'charset="'):
        MediaType.parse(f"text/html;{name}{' ' * 60_000};")
    for part in (",", '"', "a/b,", '"\\",', "text/html;charset=,"):
        MediaType.parse(part * (60_000 // len(part)))
    assert time.process_time() - began < 0.1
    assert MediaType.parse("text/html; CharSet = 'latin1' ; x").charset == "latin1"
