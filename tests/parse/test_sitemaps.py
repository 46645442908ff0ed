"""What sitemaps list, and what hostile ones cannot do."""

from __future__ import annotations

import gzip
import time
import tracemalloc

import pytest

from crawler.page import LinkKind
from crawler.parse.sitemaps import (
    MAX_BYTES,
    MAX_ENTRIES,
    Listed,
    hint,
    is_sitemap,
    named_sitemaps,
    parse_sitemap,
    sitemap_links,
)

HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\n'
NAMESPACE = b'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
NOW = 1_790_000_000.0


def urlset(*entries: bytes) -> bytes:
    return HEAD + b"<urlset %b>%b</urlset>" % (NAMESPACE, b"".join(b"<url>%b</url>" % entry for entry in entries))


def locs(body: bytes) -> list[str]:
    return [entry.loc for entry in parse_sitemap(body).entries]


# The protocol


def test_an_entry_has_a_place_and_perhaps_a_time_and_a_priority() -> None:
    body = urlset(
        b"<loc> https://a.test/?x=1&amp;y=2\n</loc><lastmod>2026-09-20</lastmod><priority>0.8</priority>",
        b"<loc>https://a.test/<![CDATA[b&c]]></loc><changefreq>daily</changefreq><priority>7</priority>",
        b"<lastmod>2026</lastmod>",
    )
    assert parse_sitemap(body).entries == (
        Listed("https://a.test/?x=1&y=2", 1_789_862_400.0, 0.8),
        Listed("https://a.test/b&c"),
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970", 0.0),
        ("1970-02", 31 * 86_400.0),
        ("1970-01-02", 86_400.0),
        ("1970-01-01T01:00+01:00", 0.0),
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:00.500Z", 0.5),
        (" 1970-01-01 ", 0.0),
        ("yesterday", None),
    ],
)
def test_times_are_those_of_the_w3c_note(text: str, seconds: float | None) -> None:
    body = urlset(b"<loc>https://a.test/</loc><lastmod>%b</lastmod>" % text.encode())
    assert parse_sitemap(body).entries[0].lastmod == seconds


def test_an_index_leads_to_sitemaps() -> None:
    body = HEAD + b"<sitemapindex %b><sitemap><loc>/1.xml.gz</loc></sitemap></sitemapindex>" % NAMESPACE
    found = sitemap_links(body, "https://a.test/sitemap.xml", NOW).found
    assert [(link.url, link.kind) for link in found.links] == [("https://a.test/1.xml.gz", LinkKind.SITEMAP)]


def test_pages_that_are_listed_are_links_once_and_canonical() -> None:
    body = urlset(*(b"<loc>%b</loc>" % loc for loc in (b"HTTPS://A.test:443/x", b"https://a.test/x", b"ftp://a.test/")))
    found = sitemap_links(body, "https://a.test/sitemap.xml", NOW).found
    assert [(link.url, link.kind) for link in found.links] == [("https://a.test/x", LinkKind.LISTED)]
    assert [url.href for url in found.urls] == ["https://a.test/x"]
    assert found.dropped == {"scheme": 1}


def test_prefixes_and_extensions() -> None:
    body = (
        HEAD
        + b'<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="i"><s:url>'
        + b"<image:loc>https://a.test/no</image:loc>"
        + b"<image:image><image:loc>https://a.test/no.png</image:loc></image:image>"
        + b"<s:loc>https://a.test/yes</s:loc></s:url></s:urlset>"
    )
    assert is_sitemap(body, "application/xml", is_named=False)
    assert locs(body) == ["https://a.test/yes"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_encodings(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><urlset><url><loc>https://a.test/é</loc></url></urlset>'
    body = text.encode(encoding)
    assert is_sitemap(body, "text/xml", is_named=False)
    assert locs(body) == ["https://a.test/é"]


def test_the_text_form_is_one_only_where_robots_txt_says_so() -> None:
    body = b"\xef\xbb\xbfhttps://a.test/1\r\n\nhttps://a.test/2\n"
    assert not is_sitemap(body, "text/plain", is_named=False)
    assert is_sitemap(body, "text/plain", is_named=True)
    assert locs(body) == ["https://a.test/1", "https://a.test/2"]
    assert not is_sitemap(b"nothing here", "text/plain", is_named=True)


def test_compressed_sitemaps_are_known_by_what_is_in_them() -> None:
    body = gzip.compress(urlset(b"<loc>https://a.test/</loc>"))
    assert is_sitemap(body, "application/octet-stream", is_named=False)
    assert locs(body) == ["https://a.test/"]
    assert not is_sitemap(gzip.compress(b"a program"), "application/gzip", is_named=False)
    assert not is_sitemap(b"\x1f\x8b\x08 broken", "application/gzip", is_named=False)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<html><body>&lt;urlset></body></html>", "text/html"),
        (urlset(), "text/html"),
        (b"<rss><channel/></rss>", "application/xml"),
        (b"<urlsets></urlsets>", "application/xml"),
        (b"", "application/xml"),
    ],
)
def test_other_documents_are_none(body: bytes, content_type: str) -> None:
    assert not is_sitemap(body, content_type, is_named=False)


def test_a_sitemap_sent_as_html_is_one_if_robots_txt_names_it() -> None:
    assert is_sitemap(urlset(), "text/html", is_named=True)


def test_what_came_before_a_mistake_counts() -> None:
    whole = urlset(b"<loc>https://a.test/1</loc>", b"<loc>https://a.test/2</loc>")
    cut = parse_sitemap(whole[:-30])
    assert ([entry.loc for entry in cut.entries], cut.error) == (["https://a.test/1"], "malformed")


# The hint


def test_hints_order_the_pages_of_one_depth_and_never_leave_it() -> None:
    day = 86_400.0
    falling = [
        Listed("", NOW, 1.0),
        Listed("", None, 1.0),
        Listed("", NOW, None),
        Listed("", NOW - 7 * day, None),
        Listed("", None, None),
        Listed("", NOW - 400 * day, None),
        Listed("", NOW, 0.2),
        Listed("", 0.0, 0.0),
    ]
    hints = [hint(entry, NOW) for entry in falling]
    assert hints == sorted(hints, reverse=True)
    assert hints[4] == 0.0
    assert hints[-1] > -0.5
    assert hints[0] < 0.5
    assert hint(Listed("", NOW + 99 * day), NOW) == hints[2]


def test_only_entries_with_a_time_or_a_priority_have_a_hint() -> None:
    body = urlset(b"<loc>https://a.test/1</loc><priority>1.0</priority>", b"<loc>https://a.test/2</loc>")
    assert sitemap_links(body, "https://a.test/", NOW).hints == {"https://a.test/1": pytest.approx(0.396)}


# Hostile ones


def laughs(levels: int) -> bytes:
    entities = b"".join(b'<!ENTITY l%d "%b">' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, levels))
    return HEAD + b'<!DOCTYPE urlset [<!ENTITY l0 "ha">%b]><urlset><url><loc>&l%d;</loc></url></urlset>' % (
        entities,
        levels - 1,
    )


@pytest.mark.parametrize(
    ("body", "error"),
    [
        pytest.param(laughs(20), "doctype", id="billion-laughs"),
        pytest.param(
            HEAD
            + b'<!DOCTYPE urlset [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
            + b"<urlset><url><loc>https://a.test/&x;</loc></url></urlset>",
            "doctype",
            id="external-entity",
        ),
        pytest.param(
            HEAD + b'<!DOCTYPE urlset SYSTEM "http://127.0.0.1/x.dtd"><urlset></urlset>', "doctype", id="external-dtd"
        ),
        pytest.param(b"<urlset>" + b"<a>" * 200_000, "depth", id="deep"),
        pytest.param(b'<?xml version="1.0" encoding="x-none"?><urlset/>', "malformed", id="unknown-encoding"),
        pytest.param(b"<urlset>\0</urlset>", "malformed", id="zero-byte"),
    ],
)
def test_hostile_ones_are_refused(body: bytes, error: str) -> None:
    found = parse_sitemap(body)
    assert (found.entries, found.error) == ((), error)


def test_entries_beyond_the_limit_are_left_out() -> None:
    body = urlset(*(b"<loc>https://a.test/%d</loc>" % n for n in range(MAX_ENTRIES + 1)))
    found = parse_sitemap(body)
    assert (len(found.entries), found.error) == (MAX_ENTRIES, "excess")
    text = parse_sitemap(b"\n".join(b"https://a.test/%d" % n for n in range(MAX_ENTRIES + 1)))
    assert (len(text.entries), text.error) == (MAX_ENTRIES, "excess")


def test_a_compression_bomb_costs_no_more_than_the_largest_sitemap() -> None:
    body = gzip.compress(urlset()[:-9] + b" " * (3 * MAX_BYTES))
    tracemalloc.start()
    started = time.process_time()
    assert parse_sitemap(body).entries == ()
    assert time.process_time() - started < 10.0
    assert tracemalloc.get_traced_memory()[1] < 3 * MAX_BYTES
    tracemalloc.stop()


def test_an_endless_loc_is_passed_over_and_counted() -> None:
    for length in (5_000, 5_000_000):
        body = urlset(b"<loc>https://a.test/%b</loc>" % (b"x" * length), b"<loc>https://a.test/2</loc>")
        assert (locs(body), parse_sitemap(body).error) == (["https://a.test/2"], "length")
        text = b"https://a.test/%b\nhttps://a.test/2\n" % (b"x" * length)
        assert (locs(text), parse_sitemap(text).error) == (["https://a.test/2"], "length")


@pytest.mark.parametrize("spaces", [5_000, 500_000])
def test_white_space_around_a_loc_does_not_count(spaces: int) -> None:
    body = urlset(b"<loc>%bhttps://a.test/1%b</loc>" % (b" \n" * spaces, b" " * spaces))
    assert (locs(body), parse_sitemap(body).error) == (["https://a.test/1"], None)


def test_a_compressed_sitemap_that_breaks_off_is_told() -> None:
    text = gzip.compress(b"".join(b"https://a.test/%d\n" % number for number in range(20_000)))
    cut = parse_sitemap(text[: len(text) // 2])
    assert 0 < len(cut.entries) < 20_000
    assert cut.error == "coding"
    assert parse_sitemap(text[:-8] + b"\0\0\0\0" + text[-4:]).error == "coding"
    assert parse_sitemap(text).error is None


def test_a_sitemap_is_named_in_any_spelling() -> None:
    names = ("/rel.txt", "HTTP://A.test:80/port.txt", "http://a.test/x y", "http://b.test/other")
    named = named_sitemaps(names, "http://a.test")
    assert named >= {"http://a.test/rel.txt", "http://a.test/port.txt", "http://a.test/x%20y", "http://b.test/other"}
    assert "http://a.test/no" not in named
