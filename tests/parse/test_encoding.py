"""In which encoding a page is, and its queries are written; and its media type."""

from __future__ import annotations

import time

import pytest

from crawler.parse.encoding import MediaType
from tests.parse.reading import links, read


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


def test_queries_in_an_encoding_that_python_has_not_are_written_in_utf_8() -> None:
    page = b"<meta charset=iso-8859-8-i><a href='/?\xe0'>"
    assert links(page) == ["/?%D7%90"]


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
