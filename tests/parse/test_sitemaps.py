"""What sitemaps list, and what hostile ones cannot do."""

from __future__ import annotations

import gzip
import time
import tracemalloc

import pytest

from crawler.page import LinkKind
from crawler.parse.html import ExtractPolicy
from crawler.parse.sitemaps import (
    MAX_BYTES,
    MAX_ENTRIES,
    Listed,
    form_of,
    hint,
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
    assert form_of(body, "application/xml", is_named=False) == "urlset"
    assert locs(body) == ["https://a.test/yes"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_encodings(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><urlset><url><loc>https://a.test/é</loc></url></urlset>'
    body = text.encode(encoding)
    assert form_of(body, "text/xml", is_named=False)
    assert locs(body) == ["https://a.test/é"]


def test_the_text_form_is_one_only_where_robots_txt_says_so() -> None:
    body = b"\xef\xbb\xbfhttps://a.test/1\r\n\nhttps://a.test/2\n"
    assert not form_of(body, "text/plain", is_named=False)
    assert form_of(body, "text/plain", is_named=True)
    assert locs(body) == ["https://a.test/1", "https://a.test/2"]
    assert locs(b"https://a.test/caf\xe9\n") == ["https://a.test/caf%E9"]
    assert not form_of(b"nothing here", "text/plain", is_named=True)


def test_compressed_sitemaps_are_known_by_what_is_in_them() -> None:
    body = gzip.compress(urlset(b"<loc>https://a.test/</loc>"))
    assert form_of(body, "application/octet-stream", is_named=False)
    assert locs(body) == ["https://a.test/"]
    assert not form_of(gzip.compress(b"a program"), "application/gzip", is_named=False)
    assert not form_of(b"\x1f\x8b\x08 broken", "application/gzip", is_named=False)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<html><body>&lt;urlset></body></html>", "text/html"),
        (b'<?xml version="1.0"?><html><p>&lt;urlset> <urlset></urlset></html>', "application/xhtml+xml"),
        (b"<p>How to write <urlset> and <rss></p>", "text/html"),
        (b"<urlsets></urlsets>", "application/xml"),
        (b"", "application/xml"),
    ],
)
def test_other_documents_are_none(body: bytes, content_type: str) -> None:
    assert not form_of(body, content_type, is_named=False)


@pytest.mark.parametrize(
    "content_type", ["text/html", "application/json", "application/octet-stream", "text/plain", ""]
)
def test_a_sitemap_is_known_by_what_it_is_and_not_by_its_type(content_type: str) -> None:
    for body in (urlset(), gzip.compress(urlset()), b"\n\n" + urlset(), b"<urlset></urlset>"):
        assert form_of(body, content_type, is_named=False) == "urlset"


GOOD = [b"<url><loc>https://a.test/%d</loc></url>\n" % number for number in range(8)]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        pytest.param(b"<url><loc>https://a.test/find?kind=shoe&size=42&copy=1</loc></url>", None, id="ampersand"),
        pytest.param(b"<url><loc>https://a.test/caf&eacute;</loc></url>", None, id="html-entity"),
        pytest.param(b"<url><loc>https://a.test/8</loc><title>A&nbsp;B</title></url>", None, id="entity-elsewhere"),
        pytest.param(b"<url><loc>https://a.test/x\x02y</loc></url>", None, id="control-character"),
        pytest.param(b"<url><loc>https://a.test/8</loc><note>a < b</note></url>", None, id="less-than"),
        pytest.param(b"<url><loc>https://a.test/8?a<b</loc></url>", None, id="less-than-in-a-place"),
        pytest.param(b"<url><loc>https://a.test/8</loc>", None, id="unclosed"),
        pytest.param(b"<url><loc>https://a.test/8</url>", None, id="unclosed-place"),
        pytest.param(b"<url><loc>https://a.test/8</LOC></url>", None, id="capitals"),
        pytest.param(b"<url loc>https://a.test/8</loc></url>", None, id="no-place"),
        pytest.param(b"<url><loc>https://a.test/caf\xe9</loc></url>", None, id="bad-byte"),
        pytest.param(b"<url a=><loc x='1>https://a.test/8</loc></url>", None, id="open-quotation-mark"),
        pytest.param(b"<url><loc>https://a.test/8\xef\xbf</loc></url>", None, id="half-a-character"),
        pytest.param(b"</url></url><url><loc>https://a.test/8</loc></url>", None, id="closed-twice"),
        pytest.param(HEAD + b"<url><loc>https://a.test/8</loc></url>", None, id="a-second-declaration"),
        pytest.param(b"<br /><b>Warning</b>: strtotime() in <b>map.php</b><br />", None, id="a-warning-within"),
        pytest.param(b"<!-- <url><loc>https://a.test/no</loc></url> -->", None, id="comment"),
        pytest.param(b"<url><loc>https://a.test/8</loc><lastmod>0000-00-00 00:00</lastmod></url>", None, id="date"),
        pytest.param(b"<url>" + b"<a>" * 100 + b"<loc>https://a.test/8</loc></url>", None, id="deep"),
        pytest.param(b"<url><loc>https://a.test/%s</loc></url>" % (b"x" * 9_000), "length", id="long"),
    ],
)
def test_one_bad_entry_loses_no_other(bad: bytes, error: str | None) -> None:
    body = HEAD + b"<urlset %b>\n%b%b%b</urlset>" % (NAMESPACE, b"".join(GOOD[:3]), bad, b"".join(GOOD[3:]))
    found = locs(body)
    assert [f"https://a.test/{number}" for number in range(8)] == [loc for loc in found if loc[15:] in "01234567"]
    assert len(found) in (8, 9)
    assert "https://a.test/no" not in found
    assert parse_sitemap(body).error == error


def test_a_bad_reference_or_byte_stays_as_it_is() -> None:
    places = [b"https://a.test/?a=1&copy=2&b&#233;", b"https://a.test/caf\xe9", b"https://a.test/caf&eacute;"]
    assert locs(urlset(*(b"<loc>%b</loc>" % place for place in places))) == [
        "https://a.test/?a=1&copy=2&bé",
        "https://a.test/caf%E9",
        "https://a.test/café",
    ]


PLAIN = "<urlset><url><loc>https://a.test/1</loc></url>\n<url><loc>https://a.test/2%s</loc></url></urlset>\n"
NOTICE = b"<br />\n<b>Notice</b>:  Undefined variable: lang in <b>/srv/www/map.php</b> on line <b>12</b><br />\n"


@pytest.mark.parametrize(
    ("body", "letter"),
    [
        ((f'<?xml version="1.0" encoding="utf-16"?>{PLAIN % ""}').encode(), ""),
        ((f'<?xml version="1.0" encoding="utf-16"?>{PLAIN % "é"}').encode("utf-16"), "é"),
        ((f'<?xml version="1.0" encoding="utf-16"?>{PLAIN % "é"}').encode("utf-16-be"), "é"),
        (b"\xef\xbb\xbf\xef\xbb\xbf" + HEAD + (PLAIN % "").encode(), ""),
        (b"\r\n\r\n" + HEAD + (PLAIN % "").encode(), ""),
        (b"<!-- cached -->\n" + HEAD + (PLAIN % "").encode(), ""),
        (HEAD + b"<!-- %b -->" % (b"licence " * 2_000) + (PLAIN % "").encode(), ""),
        (NOTICE + HEAD + (PLAIN % "").encode(), ""),
        (b"Warning: strtotime() in map.php on line 3\n" + HEAD + (PLAIN % "").encode(), ""),
        (b'<?xml version="1.1"?>' + (PLAIN % "").encode(), ""),
        (HEAD + b"<!DOCTYPE urlset>" + (PLAIN % "").encode(), ""),
        (HEAD + b'<?xml-stylesheet type="text/xsl" href="x.xsl"?>' + (PLAIN % "").encode(), ""),
        (b'<?xml version="1.0" encoding="windows-1251"?>' + (PLAIN % "п").encode("cp1251"), "п"),
        (b'<?xml version="1.0" encoding="GBK"?>' + (PLAIN % "中").encode("gbk"), "中"),
        (b'<?xml version="1.0" encoding="Shift_JIS"?>' + (PLAIN % "ソ").encode("shift_jis"), "ソ"),
        (b'<?xml version="1.0" encoding="ISO-8859-1"?>' + (PLAIN % "é").encode(), "é"),
        (b'<?xml version="1.0" encoding="x-none"?>' + (PLAIN % "é").encode(), "é"),
        ((PLAIN % "").encode() + b"<!-- 0.02s --><script>x</script>", ""),
    ],
)
def test_a_sitemap_is_read_whatever_it_begins_with(body: bytes, letter: str) -> None:
    assert form_of(body, "text/xml", is_named=False) == "urlset"
    found = parse_sitemap(body)
    assert [entry.loc for entry in found.entries] == ["https://a.test/1", f"https://a.test/2{letter}"]
    assert found.error is None


def test_what_a_parser_of_xml_would_not_read_counts_as_repaired() -> None:
    body = (PLAIN % "").encode()
    assert [parse_sitemap(text).is_repaired for text in (body, HEAD + body, NOTICE + HEAD + body, body + b"&")] == [
        *(False, False, True, True)
    ]
    assert not parse_sitemap(JSON).is_repaired


def test_lines_that_are_no_urls_are_left_out() -> None:
    body = b"https://a.test/1\nnot a URL\n# comment\n/path\nhttps://a.test/2\t2026-01-01\nHTTP://a.test/3"
    assert locs(body) == ["https://a.test/1", "https://a.test/2", "HTTP://a.test/3"]


def test_translations_are_links_once_and_with_their_pages() -> None:
    link = b'<xhtml:link rel="alternate" hreflang="%b" href="https://a.test/%b"/>'
    body = urlset(
        b"<loc>https://a.test/en</loc>" + link % (b"de", b"de?a=1&amp;b=2") + link % (b"en", b"en"),
        b"<loc>https://a.test/next</loc><image:image><image:loc>https://a.test/i.png</image:loc></image:image>"
        b'<xhtml:link rel="amphtml" href="https://a.test/amp"/>',
    )
    found = sitemap_links(body, "https://a.test/sitemap.xml", NOW).found
    urls = ["https://a.test/en", "https://a.test/next", "https://a.test/de?a=1&b=2"]
    assert [(link.url, link.kind) for link in found.links] == [(url, LinkKind.LISTED) for url in urls]
    without = sitemap_links(body, "https://a.test/", NOW, ExtractPolicy(link_kinds=frozenset())).found
    assert [link.url for link in without.links] == urls[:2]


# Feeds

RSS = b"""<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><link>http://b.test/</link>
<atom:link rel="self" href="http://b.test/self"/><atom:link rel="next" href="/feed?page=2"/>
<item><title>A <b</title><link>http://b.test/1?a=1&b=2</link><pubDate>Thu, 01 Jan 1970 00:01:00 GMT</pubDate>
<description><![CDATA[<link>http://b.test/no</link>]]></description><guid>http://b.test/no</guid></item>
<item><link><![CDATA[ http://b.test/2 ]]></link><guid isPermaLink="false">7</guid></item>
<item><guid>http://b.test/3</guid></item><item><guid isPermaLink="false">http://b.test/no</guid></item>
</channel></rss>"""
ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom"><link href="/"/><link rel="self" href="/no"/>
<entry><link href="/1"/><link rel="edit" href="/no"/><id>tag:b.test</id><updated>1970-01-01T00:01:00Z</updated></entry>
<entry><content type="html">&lt;link href="/no"/></content><link rel='alternate' href='http://b.test/2'/></entry></feed>"""
RDF = b"""<rdf:RDF xmlns:rdf="r" xmlns="http://purl.org/rss/1.0/"><channel><link>http://b.test/</link></channel>
<item rdf:about="http://b.test/1"><link>http://b.test/1</link><dc:date>1970-01-01T00:01:00Z</dc:date></item></rdf:RDF>"""
JSON = b"""{"version": "https://jsonfeed.org/version/1.1", "next_url": "/2.json", "items": [
{"id": 7, "url": "http://b.test/1", "date_published": "1970-01-01T00:01:00Z"}, {"id": "x"}]}"""


@pytest.mark.parametrize(
    ("body", "content_type", "listed", "linked"),
    [
        (RSS, "application/rss+xml", ["/", "/1?a=1&b=2", "/2", "/3"], ["/feed?page=2"]),
        (ATOM, "application/atom+xml", ["/", "/1", "/2"], []),
        (HEAD + RDF, "text/html", ["/", "/1"], []),
        (JSON, "application/feed+json", ["/1"], ["/2.json"]),
    ],
)
def test_the_links_of_a_feed_are_those_of_its_entries(
    body: bytes, content_type: str, listed: list[str], linked: list[str]
) -> None:
    assert form_of(body, content_type, is_named=False) == "feed"
    found = sitemap_links(body, "http://b.test/feed", NOW).found
    of_kind = {
        kind: [link.url.removeprefix("http://b.test") for link in found.links if link.kind is kind] for kind in LinkKind
    }
    assert (of_kind[LinkKind.ITEM], of_kind[LinkKind.LINK]) == (listed, linked)
    assert [link.lastmod for link in found.links if link.url.startswith("http://b.test/1")] == [60.0]


def test_null_in_a_json_feed_costs_none_of_its_items() -> None:
    feed = b'{"next_url": null, "items": [{"url": "/1", "date_modified": null}, {"url": null}, {"url": "/2"}]}'
    assert (locs(feed), parse_sitemap(feed).error) == (["/1", "/2"], None)


def test_a_feed_that_breaks_off_is_told() -> None:
    found = parse_sitemap(RSS[: RSS.index(b"<item><guid>")])
    assert ("http://b.test/2" in locs(RSS[: RSS.index(b"<item><guid>")]), found.error) == (True, "malformed")


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
            HEAD + b'<!DOCTYPE urlset SYSTEM "http://127.0.0.1/x.dtd"><urlset></urlset>', None, id="external-dtd"
        ),
        pytest.param(b"<urlset>" + b"<a>" * 200_000, "malformed", id="deep"),
        pytest.param(b'<?xml version="1.0" encoding="x-none"?><urlset/>', None, id="unknown-encoding"),
        pytest.param(b"<urlset>\0</urlset>", None, id="zero-byte"),
    ],
)
def test_hostile_ones_do_nothing(body: bytes, error: str | None) -> None:
    found = parse_sitemap(body)
    assert (found.entries, found.error) == ((), error)


def test_entries_beyond_the_limit_are_left_out() -> None:
    body = urlset(*(b"<loc>https://a.test/%d</loc>" % n for n in range(MAX_ENTRIES + 1)))
    found = parse_sitemap(body)
    assert (len(found.entries), found.error) == (MAX_ENTRIES, "excess")
    text = parse_sitemap(b"\n".join(b"https://a.test/%d" % n for n in range(MAX_ENTRIES + 1)))
    assert (len(text.entries), text.error) == (MAX_ENTRIES, "excess")


@pytest.mark.parametrize(
    "piece",
    [
        b"<!--",
        b"<![CDATA[",
        b"<loc>",
        b"<loc>x<",
        b"<url>",
        b"<link alternate ",
        b'<link alternate href="x">',
        b"<",
        b"&",
        b"</",
        b"alternate ",
    ],
)
def test_time_is_linear(piece: bytes) -> None:
    for root in (b"<urlset>", b"<rss>", b"<urlset><link "):
        body = root + piece * (1_000_000 // len(piece))
        started = time.process_time()
        parse_sitemap(body)
        assert time.process_time() - started < 2.0


def test_a_json_feed_may_be_nested_without_end() -> None:
    assert parse_sitemap(b'{"items":[' * 100_000).error == "malformed"


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
