"""In which encoding a page is, and its queries are written; and its media type."""

from __future__ import annotations

import time
from urllib.parse import quote_from_bytes

import pytest

from crawler import ParsedPage
from crawler.parse.encoding import MediaType, codec_of, encoded, encoding_guessed
from tests.parse.reading import links, read
from tests.sinks.values import exchange, page


@pytest.mark.parametrize(
    ("body", "content_type", "charset", "title"),
    [
        ("<title>ü".encode(), "text/html", "utf-8", "ü"),
        (b"<title>\xfc", "text/html", "windows-1252", "ü"),
        (b"<title>\xfc", "text/html; charset=ISO-8859-1", "windows-1252", "ü"),
        (b"<title>\xc1", "text/html;charset='koi8-r'", "koi8-r", "а"),
        ("<title>ü".encode(), "text/html; charset=unicode", "utf-8", "ü"),
        ("<title>ü".encode("utf-16-le"), "text/html; charset=unicode", "utf-16le", "ü"),
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


UNDECLARED = {
    "gbk": "图书馆开放时间：本馆周一至周五上午九点开放，下午六点闭馆。",
    "big5": "圖書館開放時間：本館週一至週五上午九點開放，下午六點閉館。",
    "shift_jis": "図書館の案内。当館は月曜日から金曜日まで午前九時に開館します。",
    "euc-jp": "図書館の案内。当館は月曜日から金曜日まで午前九時に開館します。",
    "iso-2022-jp": "図書館の案内。当館は月曜日から金曜日まで午前九時に開館します。",
    "euc-kr": "도서관 안내. 도서관은 월요일부터 금요일까지 아홉 시에 열립니다.",
    "windows-1251": "Библиотека открыта с понедельника по пятницу с девяти часов.",
    "koi8-u": "Библиотека открыта с понедельника по пятницу с девяти часов.",
    "windows-1250": "Knihovna města. Otevřeno od pondělí do pátku, večer zavřeno. Příklad, žluť.",
    "windows-1252": "Öffnungszeiten der Bücherei: täglich außer freitags, für Schüler früher.",
    "windows-1253": "Η βιβλιοθήκη είναι ανοιχτή από Δευτέρα έως Παρασκευή από τις εννέα.",
    "windows-1254": "Kütüphane pazartesiden cumaya kadar dokuzda açılır, akşamları kapalıdır. Şişli, İğdır.",
    "windows-1255": "הספרייה פתוחה בימים שני עד שישי משעה תשע בבוקר ועד הערב",
    "windows-1256": "المكتبة مفتوحة من الاثنين إلى الجمعة من الساعة التاسعة صباحا حتى المساء",
    "windows-874": "ห้องสมุดเปิดวันจันทร์ถึงวันศุกร์ตั้งแต่เก้าโมงเช้าถึงหกโมงเย็น",
}


@pytest.mark.parametrize("label", ["", "; charset=none", "; charset=utf8mb4"])
@pytest.mark.parametrize("charset", UNDECLARED)
def test_an_encoding_that_nobody_declares_is_recognised(charset: str, label: str) -> None:
    text = UNDECLARED[charset]
    codec = {"windows-874": "cp874", "koi8-u": "koi8-r"}.get(charset, charset)
    script = "<script>" + "let x = '<p>ascii</p>';" * 5_000 + "</script>"
    found = read(f"<title>x</title>{script}<p>{text}</p>{'<p>more' * 20_000}".encode(codec), f"text/html{label}")
    assert found.charset == charset


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        (f"<p>{UNDECLARED['gbk']}".encode() * 3 + b"<!-- caf\xe9 -->", "utf-8"),  # a byte that is none of UTF-8
        (b"plain", "windows-1252"),
        (b"caf\xe9 ", "windows-1252"),
        (b"\xff", "windows-1252"),
        (b"\xe9<" * 100_000, "windows-1252"),
    ],
)
def test_few_bytes_do_not_mislead(body: bytes, charset: str) -> None:
    assert read(body, "text/html").charset == charset


def test_an_encoding_is_recognised_in_a_sample_of_the_page() -> None:
    """A detector reads a megabyte in half a second."""
    body = b"<p>" + UNDECLARED["windows-1251"].encode("windows-1251") * 150_000
    began = time.process_time()
    assert encoding_guessed(body, False, "a.xn--p1ai") == "windows-1251"
    assert encoding_guessed(body, False, "127.0.0.1") == "windows-1251"
    assert encoding_guessed(body, False, "a_b.te_st") == "windows-1251"
    assert time.process_time() - began < 0.3


@pytest.mark.parametrize(
    "media", ["", "unknown/unknown", "application/unknown; charset=utf-8", "nonsense", "application/xhtml"]
)
def test_a_body_of_unknown_type_is_what_its_first_tag_says(media: str) -> None:
    html = b" \n<!DOCTYPE html><title>t</title>"
    assert read(html, media).title == "t"
    xml = b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><title/><title>t</title></html>"
    assert [title for title in (read(xml, media).error, read(xml, "text/xml").error) if title] == []
    assert read(b"<html><title>t</title>", "application/octet-stream").error == "type"
    for other in (b"<rss><a href='/x'>", b"<?xml version='1.0'?><feed><a href='/x'/>", b"<urlset>", b"%PDF", b""):
        assert read(other, media).error == "type"


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
        ("windows-1252", b"\x81\x8d\x8f\x90\x9d"),
        ("windows-1250", b"\x81\x83\x88\x90\x98"),
        ("windows-1251", b"\x98"),
        ("windows-1255", b"\xca"),
        ("koi8-u", b"\xae"),
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
        assert encoded("a", name, "strict")
        if name.startswith("windows") and name not in ("windows-1253", "windows-1255", "windows-1257", "windows-874"):
            assert encoded(bytes(range(256)).decode(codec_of(name)), name, "strict") == bytes(range(256))


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
