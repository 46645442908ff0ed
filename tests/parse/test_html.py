"""What a page holds, as a browser would understand it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.page import LinkKind
from crawler.parse import html as extract_module
from crawler.parse.html import ExtractPolicy, extract
from crawler.parse.tags import scan_tree
from frontier.errors import BadUrl
from frontier.urls import canonicalize
from tests.parse.reading import URL, links, read


def test_links_come_once_in_the_order_of_their_worth() -> None:
    found = read(
        "<link rel=next href=2><iframe src=frame></iframe><a href=a>x</a><map><area href=area></map>"
        "<a href=frame></a><a href='a#part'></a><a href='#part'></a><a name=no></a>"
    )
    assert [(link.url, link.kind) for link in found.links] == [
        ("http://example.com/dir/a", LinkKind.ANCHOR),
        ("http://example.com/dir/area", LinkKind.ANCHOR),
        ("http://example.com/dir/frame", LinkKind.ANCHOR),
        ("http://example.com/dir/2", LinkKind.LINK),
    ]
    assert [url.href for url in found.urls] == [link.url for link in found.links]


@pytest.mark.parametrize(
    "html",
    [
        "<!-- <a href=no> --><a href=yes>",
        "<script>'<a href=no>'</script><a href=yes>",
        "<style><a href=no></style><a href=yes>",
        "<textarea><a href=no></textarea><a href=yes>",
        "<title><a href=no></title><a href=yes>",
        "<div title='<a href=no>'><a href=yes>",
        "<script><!-- <script> </script> <a href=no> --></script><a href=yes>",
        "<A\nHREF = 'yes'\t>",
        "<a href=yes href=no>",
        "<a href='&#121;es'>",
        "<table><tr><a href=yes></table>",
        "<noscript><a href=yes></noscript>",
        "<a href='\n y\te\ns '>",
        "<a href=yes><a href=no",
        "<a href=yes><iframe src='no>",
        "<a href=yes><a href='no>",
        "<A HREF=yes><!-- > <a href=no> --!><!--><a href=yes><!---><?x <a href=no>",
        "<iframe src=''><a href=no></iframe><a href=yes>",
        "<xmp><a href=no></xmp><a title=\"a > b\" href='yes'/><plaintext><a href=no>",
        "a < b <a href=yes> c <d",
        "<img alt='<a href=no title=\"'><a href=yes>",
        "<b <a href=no><a href=yes>",
        "<b x='<<a href=no>'><a href=yes>",
        "x<y <meta charset=utf-16><a href=yes>",
        "<a href=yes>--<a <a href=no",
        "<a href=yes data-href=no><a data-href=no><a x href=yes>",
        '<a/href=yes /><a href="yes"class=x>',
    ],
)
def test_markup_is_read_as_browsers_read_it(html: str) -> None:
    assert links(html) == ["/dir/yes"]


def test_pages_that_begin_with_an_xml_prolog_are_html() -> None:
    page = b'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml">'
    page += b"<head><title>T\xc3\xbcr</title></head><body><a href='yes'>x</a></body></html>"
    for content_type in ("text/html", "application/xhtml+xml", "application/xml", ""):
        found = read(page, content_type)
        assert [link.url for link in found.links] == ["http://example.com/dir/yes"]
        assert (found.title, found.charset, found.error) == ("Tür", "utf-8", None)


@pytest.mark.parametrize(
    "before",
    [
        "<script src='a.js'/>",
        "<SCRIPT src='a>.js' />",
        "<title/>",
        "<style/><textarea/><iframe src=''/>",
        "<script><![CDATA[ </script> <!-- ]]></script>",
        "<style><!-- </style> --></style>",
        "<p><![CDATA[ <a href='no'/> ]]></p>",
        "<p><![CDATA[ > <!-- ]]></p>",
        "<?php '>' <!-- ?>",
        "<svg xmlns='http://www.w3.org/2000/svg'><title/><style/></svg>",
        "<p title='<!--'>",
    ],
)
@pytest.mark.parametrize("content_type", ["application/xhtml+xml", "application/xml"])
def test_xhtml_is_read_as_xml(before: str, content_type: str) -> None:
    page = f"<html xmlns='http://www.w3.org/1999/xhtml'><body>{before}<a href='yes'>x</a></body></html>"
    assert [link.url for link in read(page, content_type).links] == ["http://example.com/dir/yes"]


def test_references_to_control_characters_are_kept_in_titles() -> None:
    assert read("<title>a&#0;b&#x80;c&#1;d&#xfffe;</title>").title == "a\ufffdb€c\x01d\ufffe"


@pytest.mark.parametrize("content_type", ["image/png", "text/plain", "application/pdf", "application/xml"])
def test_other_types_are_not_parsed(content_type: str) -> None:
    found = extract(b"<a href=x>", URL, content_type, ExtractPolicy(), ["nofollow, noarchive"])
    assert (found.links, found.error, found.nofollow, found.noarchive) == ((), "type", True, True)


# base


@pytest.mark.parametrize(
    ("html", "link"),
    [
        ("<base href='/other/'><base href='/late/'><a href=x>", "/other/x"),
        ("<base target=_top><base href='/other/'><a href=x>", "/other/x"),
        ("<a href=x><base href='/other/'>", "/other/x"),
        ("<base href='javascript:1'><base href='/late/'><a href=x>", "/dir/x"),
        ("<base href='http://[/'><a href=x>", "/dir/x"),
        ("<base href='sub/'><a href='?q'>", "/dir/sub/?q"),
    ],
)
def test_the_first_base_counts(html: str, link: str) -> None:
    assert links(html) == [link]


# nofollow and its kin


@pytest.mark.parametrize(
    "html",
    [
        "<a href=x rel=nofollow>",
        "<a href=x rel='NoFollow external'>",
        "<area href=x rel=nofollow>",
        "<link rel='next nofollow' href=x>",
        "<meta name=robots content=nofollow><a href=x>",
        "<META NAME=ROBOTS CONTENT='index, NOFOLLOW'><a href=x>",
        "<meta name=robots content=none><a href=x><iframe src=y></iframe>",
        "<meta name=PeerCrawl content=nofollow><a href=x>",
    ],
)
def test_nofollow_is_obeyed_unless_the_policy_says_not_to(html: str) -> None:
    assert links(html) == []
    assert "/dir/x" in links(html, obey_nofollow=False)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], ""),
        (["noindex"], "noindex"),
        (["noindex, nofollow", "noarchive"], "noindex nofollow noarchive"),
        (["none"], "noindex nofollow"),
        (["peercrawl: noindex, noarchive"], "noindex noarchive"),
        (["otherbot: noindex, nofollow"], ""),
        (["noarchive, otherbot: noindex"], "noarchive"),
        (["otherbot: nofollow, peercrawl: noindex"], "noindex"),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"], "noindex"),
        (["unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT, noindex"], "noindex"),
        (["unavailable_after: Friday, 25-Jun-10 15:00:00 GMT; noarchive"], "noarchive"),
        (["noindex; noarchive"], "noindex noarchive"),
        (["otherbot: noindex; noarchive"], ""),
        (["max-snippet: 20, nofollow"], "nofollow"),
        (["all, index, follow"], ""),
    ],
)
def test_header_directives_add_up(values: list[str], said: str) -> None:
    found = extract(b"<p>", URL, "text/html", ExtractPolicy(), values)
    assert [name for name in ("noindex", "nofollow", "noarchive") if getattr(found, name)] == said.split()


def test_directives_for_others_say_nothing_to_us() -> None:
    assert links("<meta name=otherbot content=nofollow><meta name=description content=nofollow><a href=x>") == [
        "/dir/x"
    ]


# link and meta elements


def test_related_pages_are_links_and_style_sheets_are_not() -> None:
    html = (
        "<link rel=canonical href=/c><link rel=prev href=p><link rel=stylesheet href=s>"
        "<link rel=alternate hreflang=de href=de><link rel=alternate type=application/rss+xml href=feed>"
        "<link rel='alternate stylesheet' href=s2><link rel=icon href=i><link rel=next>"
    )
    assert links(html) == ["/c", "/dir/p", "/dir/de", "/dir/feed"]
    assert read(html).links[-1].kind is LinkKind.FEED
    assert read(html).canonical == "http://example.com/c"
    assert links(html, link_kinds=frozenset({"icon"})) == ["/dir/i"]
    assert read("<link rel=canonical href='mailto:x'>").canonical == ""


def test_links_in_headers_are_those_of_link_elements() -> None:
    header = (
        '<c>; rel="canonical", </de,x>; rel=alternate; hreflang=de, </f>; rel=alternate; type="application/rss+xml", '
        '</s.css>; rel=preload, </no>; rel=next; anchor="/other", <http://h.test/p>; title="a, \\"b>"; rel="x next"'
    )
    found = extract(b"<base href=/b/><a href=a>", URL, "text/html", ExtractPolicy(), link_header=header)
    urls = [link.url.removeprefix("http://example.com") for link in found.links]
    assert urls == ["/b/a", "/dir/c", "/de,x", "http://h.test/p"]
    assert found.canonical == "http://example.com/dir/c"
    pdf = extract(b"%PDF", URL, "application/pdf", ExtractPolicy(), link_header=header)
    assert [link.url for link in pdf.links] == [link.url for link in found.links[1:]]
    assert pdf.canonical == found.canonical
    for policy, tags in ((ExtractPolicy(link_kinds=frozenset()), ()), (ExtractPolicy(), ("nofollow",))):
        assert not extract(b"%PDF", URL, "application/pdf", policy, tags, link_header=header).links


def test_images_and_data_are_links_if_they_are_asked_for() -> None:
    html = (
        "<!-- <img src=no> -->"
        "<img src=1.png srcset='2.png 2x, /3,3.png 100w,\n4.png' data-src=5.png data-srcset='6.png 1x'>"
        "<script>'<img src=no>'</script><source srcset='7.png'>"
        """<script type="application/ld+json">{"@graph": [{"url": "/8"}, {"image": {"url": "/9"}}]}</script>"""
        "<script type=application/ld+json>{</script>"
    )
    assert links(html) == []
    for kind, found in (
        ("src", ["/dir/1.png"]),
        ("srcset", ["/dir/2.png", "/3,3.png", "/dir/4.png", "/dir/7.png"]),
        ("data-src", ["/dir/5.png", "/dir/6.png"]),
        ("json-ld", ["/9", "/8"]),
    ):
        assert sorted(links(html, link_kinds=frozenset({kind}))) == sorted(found), kind


@pytest.mark.parametrize("tag", ["<img ", "<img '", '<video "', "<script "])
def test_tags_without_an_end_take_little_time(tag: str) -> None:
    began = time.process_time()
    links("<a href=1>x</a>" + tag * 50_000, link_kinds=frozenset({"src", "json-ld"}))
    assert time.process_time() - began < 1


def test_a_link_header_of_open_brackets_takes_little_time() -> None:
    began = time.process_time()
    found = extract(b"", URL, "image/png", ExtractPolicy(), link_header="<" * 250_000 + "/2>; rel=next")
    assert [link.url for link in found.links] == ["http://example.com/2"]
    assert time.process_time() - began < 1


def test_links_that_say_nofollow_are_counted() -> None:
    html = "<a href=1><a href=2 rel=nofollow><a name=x><area rel='ugc nofollow' href=3#x>"
    for page in (html, html + "<svg><a></a></svg>\0"):
        found = read(page)
        assert (len(found.links), found.dropped) == (1, {"nofollow": 2})
        assert not read(page, obey_nofollow=False).dropped
    whole = read("<meta name=robots content='index, nofollow'><link rel=next href=n>" + html)
    assert (whole.links, whole.dropped) == ((), {"nofollow": 4})
    assert not read("<meta name=robots content=nofollow><p>").dropped


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("0; url=x", ["/dir/x"]),
        ("5;URL='x'", ["/dir/x"]),
        ('0.5, url = "x"y', ["/dir/x"]),
        ("0 x", ["/dir/x"]),
        (".5; x", ["/dir/x"]),
        ("5", []),
        ("x", []),
        ("-1; url=x", []),
        ("0;" + " " * 5_000 + "url=x", ["/dir/x"]),
        (" " * 5_000 + "0; url=x", ["/dir/x"]),
    ],
)
def test_a_refresh_is_a_link(content: str, found: list[str]) -> None:
    quoted = content.replace('"', "&quot;")
    assert links(f'<meta http-equiv=Refresh content="{quoted}">') == found


def test_title_and_language_are_bounded_and_tidy() -> None:
    found = read("<html lang=' de-AT '><svg><title>no</title></svg><title> Two\n  words </title>")
    assert (found.title, found.lang) == ("Two words", "de-AT")
    assert len(read("<title>" + "x" * 100_000 + "</title>").title) == 1_000
    assert read("<title>" + " " * 100_000 + "x</title>").title == "x"


# bounds


def test_what_a_limit_drops_is_counted() -> None:
    many = "".join(f"<a href={number}>" for number in range(50)) + "<a href='mailto:x'><a href='http://[/'>"
    found = read(many, max_links=20)
    assert len(found.links) == 20
    assert found.dropped == {"excess": 32}
    assert read(many).dropped == {"scheme": 1, "host": 1}


def test_links_are_bounded_in_bytes_too() -> None:
    """A page may give each of its short links a long base."""
    many = "<base href='/" + "b" * 1_000 + "/'>" + "".join(f"<a href={number}>" for number in range(100))
    found = read(many + "<link rel=next href=next>", max_link_bytes=20_000)
    assert len(found.links) == 19
    assert found.dropped == {"excess": 82}
    assert read(many).dropped == {}
    assert len(read("<a href=a><a href=/b>", max_link_bytes=len("http://example.com/dir/a")).links) == 1


HOSTILE = {
    "deep": b"<div>" * 300_000 + b"<a href=x>",
    "open links": b"<a href=x><p>" * 50_000,
    "many attributes": b"<a " + b"".join(b"x%d " % n for n in range(100_000)) + b"href=x>",
    "many attributes after nofollow": b"<a rel=nofollow>" + b"<a" + b" x=1" * 250_000 + b" href=x>",
    "open links with attributes": b"<a href=x><a rel=nofollow>" + b"<a y='z' " * 100_000,
    "words": b"<a rel='" + b"nofollo " * 100_000 + b"' href=x>nofollow",
    "long attribute": b"<a href='" + b"y" * 2_000_000 + b"'><a href=x>",
    "reopened formatting": b"".join(b"<b c=%d><p>" % number for number in range(20_000)) + b"<a href=x>",
    "the same in UTF-16": ("".join(f"<b c={number}><p>" for number in range(20_000)) + "<a href=x>").encode("utf-16"),
    "few open, many paragraphs": b"<p>"
    + b"".join(b"<b c=%d>" % n for n in range(40))
    + b"<p>" * 200_000
    + b"<a href=x>",
    "unclosed comment": b"<a href=x><!--" + b"-" * 500_000,
    "no end": b"<a href=x><a href='",
    "attributes without end": b"<a href=x><a " + b"a " * 880_000,
    "more attributes than the expression can take": b"<a " + b"a " * 3_400_000 + b"href=y><a href=x>",
    "references to huge numbers": b"<title>&#%b</title><a href='&#%b'><a href=x lang='&#%b'>" % ((b"1" * 5_000,) * 3),
    "charset after spaces": b"<meta http-equiv=content-type content='charset=%b;'><a href=x>" % (b" " * 500_000),
    "refresh after digits": b"<meta http-equiv=refresh content='%b'><a href=x>" % (b"1" * 500_000),
    "tags in a tag": b"<a href=x><b " + b"<a " * 300_000,
    "tags in quotes": b"<a href=x>" + b'<b x="<a y=\'">' * 70_000,
    "titles of images": b"<a href=x><svg>" + b"<title></title>" * 60_000,
    "open scripts": b"<a href=x><script>" + b"<!--<script>" * 80_000,
    "links to parts": b"<a href=x>" + b'<a class="' * 100_000,
    "long descriptions": b"<a href=x>"
    + b"".join(b"<meta name=%d content='%b'>" % (n, b"y" * 9_000) for n in range(100)),
}


def test_what_is_remembered_of_pages_is_bounded() -> None:
    """A site may send attributes of megabytes; a thousand of those must not stay."""
    extract_module._remembered.cache_clear()
    before = extract_module._remembered.cache_info().currsize
    read(b"".join(b"<meta name=%d content='%b'>" % (n, b"y" * 9_000) for n in range(20)))
    assert extract_module._remembered.cache_info().currsize == before


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_cost_little_and_still_give_their_links(name: str) -> None:
    began = time.process_time()
    assert "/dir/x" in links(HOSTILE[name])
    assert time.process_time() - began < 10.0


def test_no_tree_of_formatting_elements_holds_up_the_event_loop() -> None:
    """Each paragraph would open all elements before it again, which took 80 ms."""
    page = b"\0" + b"".join(b"<b a%d><p>" % number for number in range(1_990)) + b"<a href=x>"
    links(b"\0")  # so that the library is loaded
    began = time.process_time()
    assert links(page) == ["/dir/x"]
    assert time.process_time() - began < 0.05


def test_renamed_formatting_tags_leave_links_as_they_are() -> None:
    page = "<p><b>x<a href=a><i>y</a></b><font\nsize=1><a href=b></font></i><body><code><a href='c'>"
    assert links(page * 500) == links(page) == ["/dir/a", "/dir/b", "/dir/c"]


TAGS = [
    "<a href=",
    "<base href=",
    "<link rel=next href=",
    "<iframe src=",
    "<meta charset=",
    "<title>",
    "</title>",
    "</a>",
]
TEXT_MODES = [
    "<!--",
    "-->",
    "<script>",
    "</script>",
    "<table>",
    "<svg>",
    "<select>",
    "<meta http-equiv=refresh content=",
]
SCRAPS = ["'", '"', ">", "<", "/", "x", "?é", "koi8-r", "0;", "url=", " ", "&#x", "d800;", "mailto:", "//", "#", "\0"]
MARKUP = st.lists(st.sampled_from(TAGS + TEXT_MODES + SCRAPS), max_size=25).map("".join)


@given(st.one_of(st.binary(max_size=80), MARKUP.map(lambda text: text.encode("utf-8", "replace"))))
def test_no_page_raises_and_every_link_is_canonical(body: bytes) -> None:
    found = extract(body, URL, "text/html", ExtractPolicy())
    for link in found.links:
        assert canonicalize(link.url).href == link.url
    assert len({link.url for link in found.links}) == len(found.links)
    if found.canonical:
        try:
            canonicalize(found.canonical)
        except BadUrl as error:
            pytest.fail(f"canonical is not a URL: {error}")


def test_names_of_formatting_in_an_attribute_are_left_as_they_are() -> None:
    """Also where only a tree can tell the links, for which formatting elements get other names."""
    page = b"<a " + b"a " * 3_400_000 + b"><a href='/q?<b>&x=<i >y'><b><a href=/z><base href='/<u/>/'>"
    assert links(page) == links(page[-70:]) == ["/q?%3Cb%3E&x=%3Ci%20%3Ey", "/z"]


@pytest.mark.parametrize("obey_nofollow", [False, True])
def test_a_tree_tells_the_same_tags(monkeypatch: pytest.MonkeyPatch, obey_nofollow: bool) -> None:
    """What the expression cannot tell is left to a tree: on pages that both can, they agree."""
    page = (
        "<!doctype html><html lang=de><title>&lt;Ä &amp; &eacute;</title><base href='/ä/'>"
        "<meta name=robots content=noarchive><link rel=canonical href='?q=\"&quot;&#38;x=1'>"
        "<a href=\"eins?a=1&amp;b=é&uuml;\"><a rel='x NoFollow' href=zwei><a href=#here><a href='drei#part'><area href=4>"
        "<iframe src='&#8364;'></iframe><svg><title>no</title></svg>"
    )
    for body in (page.encode(), page.encode("windows-1252")):
        policy = ExtractPolicy(obey_nofollow=obey_nofollow)
        by_expression = extract(body, URL, "text/html", policy)
        with monkeypatch.context() as patch:
            patch.setattr(extract_module, "scan", lambda page, obey, _: scan_tree(page, obey))
            assert extract(body, URL, "text/html", policy) == by_expression
        assert len(by_expression.links) == 6 - obey_nofollow
