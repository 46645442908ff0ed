"""Places where a site decides how much it sends, for `tests.fuzz.scaling`: what reads them, and what to repeat there."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import brotli  # type: ignore[import-untyped]

from crawler.errors import FetchFailed
from crawler.fetch.response import ResponseReader
from crawler.parse.coding import decode_body
from crawler.parse.document import Document, ParseLimits, noted_fields, read, usage_of
from crawler.parse.encoding import MediaType
from crawler.parse.html import Extracted, ExtractPolicy, directives
from crawler.parse.needs_scripts import quoted_words, traits_of
from crawler.parse.requisites import embedded_in, embedded_in_css
from crawler.parse.sitemaps import named_sitemaps
from crawler.parse.tags import scan_tree
from crawler.parse.tree import parse
from crawler.scope.scope import Scope, TrapPolicy, judge_trap
from crawler.scope.seeds import read_seeds
from crawler.scope.shapes import PUT_OFF, Shapes
from frontier.entries import Entry
from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize, canonicalize_links
from politeness.backoff import BackoffState, parse_retry_after
from politeness.robots_fetch import RobotsFetch, RobotsRecord
from politeness.robots_match import Rules
from politeness.robots_syntax import BadRecord
from politeness.tdmrep import NOT_STATED, TdmFile
from politeness.usage import answers_in
from tests.fuzz.targets import RobotsResponse

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

URL = "https://a.test/dir/page"


def compared(data: bytes) -> None:
    """Compare pages with each other, and count their scripts."""
    shapes = Shapes(share=0.1)
    for number in range(3):
        entry = Entry(f"{URL}?p={number}", "a.test", priority=PUT_OFF)
        shapes.note(entry, "title", False, b"%d" % number, lambda: data)
    traits_of(data, "https://a.test/", quoted_words(data))


LIMITS = ParseLimits(ExtractPolicy(), 1 << 26)
MAX_HEAD = 65_536  # as FetchSettings has it: joining folded lines takes aiohttp quadratic time
LONG_URLS = UrlRules(max_length=1 << 26)


@dataclass(frozen=True, slots=True)
class Format:
    """`feed` takes an input: one of `starts`, one of `units` many times, and one of `ends`."""

    feed: Callable[[bytes], object]
    starts: tuple[bytes, ...]
    units: tuple[bytes, ...]
    ends: tuple[bytes, ...] = (b"",)


def parts(text: str) -> tuple[bytes, ...]:
    """The parts of `text` between vertical bars. Each character is a byte."""
    return tuple(text.encode("latin-1").split(b"|"))


def document(content_type: str) -> Callable[[bytes], object]:
    return lambda data: read(Document(data, URL, "", content_type, (), True, True), LIMITS)


def tree(data: bytes) -> None:
    """What the sinks take from a tree."""
    found = parse(data, "utf-8")
    found.to_text()
    found.opengraph()
    found.main_content()
    json.dumps(found.json_ld())


def tree_of_tags(data: bytes) -> None:
    """Both trees that are made of pages."""
    parse(data, "utf-8")
    scan_tree(data)


def robots(data: bytes) -> None:
    rules = Rules.parse(data, "peercrawl")
    for path in ("/", "/" + "a" * 2_000, "/" + "a/b." * 500):
        rules.decide("https://a.test" + path)


def content_usage(data: bytes) -> None:
    """A statement, in a header and for each of several pages in robots.txt."""
    answers_in(data)
    usage = Rules.parse(data, "peercrawl").usage
    for path in ("/", "/" + "a" * 2_000, "/" + "a/b." * 500):
        if usage is not None:
            usage.stated("https://a.test" + path)


def tdmrep(data: bytes) -> None:
    file = TdmFile.parse(data)
    for path in ("/", "/" + "a" * 2_000, "/" + "a/b." * 500):
        file.reservation("https://a.test" + path)


def long_path(data: bytes) -> None:
    rules = Rules.parse(b"User-agent: *\nDisallow: /a*b*c$\nDisallow: /*%2f*a\nAllow: *?a=\n", "peercrawl")
    rules.decide("https://a.test/" + data.decode("latin-1"))


def headers(data: bytes) -> None:
    """Each field that is read, with `data` as its value, and in many fields of one name."""
    text = data.decode("latin-1")
    MediaType.parse(text)
    directives([("robots", text), (text, "noindex")], [text], "peercrawl")
    parse_retry_after(data, 1_790_000_000.0)
    BackoffState.parse(text)
    decode_body(b"x", text)
    noted = noted_fields([(b"Content-Usage", data), (b"TDM-Reservation", data), (b"TDM-Policy", data)])
    usage_of(NOT_STATED, noted, Extracted(tdm=(("tdm-reservation", text), ("tdm-policy", text))), is_image=False)
    fields = ((b"Location", data), (b"Retry-After", data), (b"Cache-Control", data))
    for status in (200, 301, 503):
        RobotsFetch("https://a.test").received(RobotsResponse(status, fields, b""), 0)


def urls(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for rules in (UrlRules(), LONG_URLS):
        with suppress(BadUrl):
            judge_trap(canonicalize(text, URL, rules).href, TrapPolicy(1 << 26, 1 << 26, 1 << 26, 1 << 26))
    canonicalize_links(text.split(" "), URL, LONG_URLS)
    named_sitemaps(text.split(" "), "https://site.test")
    read_seeds(text.split(" "))


def scope(data: bytes) -> None:
    try:
        url = canonicalize("https://" + data.decode("latin-1"), None, LONG_URLS)
    except BadUrl:
        return
    for kind in ("domains", "hosts"):
        Scope.of(kind=kind, names=["b.test"]).judge(url, 1, 0, "b.test")  # type: ignore[arg-type]


def record(data: bytes) -> None:
    with suppress(BadRecord):
        RobotsRecord.unpack(data)


def body(coding: str) -> Callable[[bytes], object]:
    return lambda data: decode_body(data, coding, 1 << 22)


def response(pieces: int) -> Callable[[bytes], object]:
    """A response, which arrives in so many pieces."""

    def receive(data: bytes) -> None:
        reader = ResponseReader(MAX_HEAD, 1 << 26)
        step = max(1, -(-len(data) // pieces))
        with suppress(FetchFailed):
            for at in range(0, len(data), step):
                if reader.feed(data[at : at + step]):
                    return
            reader.feed(b"\r\n\r\n")
        reader.close()

    return receive


EMPTY_BLOCKS = bytes.fromhex(
    "04c0810800000000207fea3f0170200200000000c89ffa4f001c880000000000f2a7fe130007220000000080fca9ff"
)
"""Four blocks of deflate, each with Huffman codes of its own (RFC 1951 3.2.7) and no content."""

RLE_BLOCKS = b"\x02\0\0a"
"""A block of zstd that repeats a byte zero times (RFC 8878 3.1.1.2)."""

_GZIP = zlib.compressobj(wbits=31).flush()
_PAGE_STARTS = parts(
    "|<p>|<table>|<svg>|<math><mi>|<template>|<frameset>|<select>|<!--|<![CDATA[|<title>|<textarea>|<style>|"
    "<script>|<script><!--|<script><!--<script>|<svg><title>|<a |<a href=|<a href='|<a rel=\"|<a rel=nofollow x='|"
    "<p x='|<p |</p |<html lang='|<meta charset='|<meta name=robots content='|"
    "<meta http-equiv=refresh content='0;url=|<base href='|<meta http-equiv=refresh content='|"
    "<meta http-equiv=content-type content='|<link rel='|<iframe src='|<link rel=canonical href='|"
    "<link rel=alternate type='|<script type=application/ld+json>|<meta property=og:title content='"
)
_PAGE_UNITS = parts(
    "a|1|&|&#|&#1|&#x80;|&amp;|&amp|&notit;|<|</|>|<!--|--|-->|<b>|</b>|<a>|<p>|<p><b>|<b><p>|<div>|</div>|<svg>|"
    "<a/href=x>|<svg/>|<title>|</title>|<script>|</script>|<template>|<table><a>|<font/x=1><p>|<![CDATA[|]]>|]|'|"
    '"|=|x=|\'|#|?|/|;|,|%|Ã©|%2e|../|charset=|charset|url=|nofollo|nofollow,|noindex:|{|[|{"a":|\\u0041|"x",|'
    "<math><mi>|<svg><desc>|<foreignObject>|<select>|<option>|<li>|<dd>|<tr><td>|<nobr>|<frameset>|<a><p><b>|<!x|"
    "?>| |\t\n|\x00|a |x='y' |<a href=|<a href='|<a href=x y|<p x='<'>|ÿ|í\xa0\x80|<meta name=robots content='a'>|"
    "<link rel=next href=x>|<base href=x>|<a href=?&#1>|<p x='>'"
)

_TREE_UNITS = parts(
    "<html a{n}>|<body a{n}>|<body/a{n}=1 b{n}>|</body><html a{n}>|<template><html a{n}>|<svg><html a{n}>|<b a{n}>|"
    "<b a{n}><p>|<b a{n}></p><p>|<a a{n}><p>|<nobr a{n}><p>|<font a{n}><div></font>|<b a{n}><div></b>|<b><p></i></b>|"
    "<a><div></a>|<b a{n}></i>|<table><b a{n}>|<table><b>x|<table>x<tr>|<table><tr><td>|<tr><td><b a{n}>|<b></table>|"
    "<table><caption>|<table><a a{n}>|<select a{n}>|<select><option>|<option><optgroup>|<frameset a{n}>|<frame a{n}>|"
    "<template a{n}>|<template><tr>|<form><div>|<button><p>|<button><div>|<li><div>|<dd a{n}>|<ruby><rt>|"
    "<object><b a{n}>|<svg><desc><b a{n}>|<math><mi><p>|<t{n}>|</t{n}>|<t{n}></p>|<t{n}></b>|<span></x>|<p a{n} b{n}>|"
    "<input type=hidden a{n}>|<!--{n}-->|<!x{n}>|x\0|</p>|</br>"
)

_CSS_UNITS = parts(
    '\\"|"|\\\'|\'|(|)|(")|(\\")|/*|*/|url(|url("|image-set(|@import |@import/**/|@namespace |\\a |\\|a{n} |,|;|\n| |'
    "<img src=a{n}>|&lt;iframe srcdoc=a&gt;|<style>"
)

FORMATS = {
    "html": Format(
        document("text/html"),
        _PAGE_STARTS,
        _PAGE_UNITS,
        parts("|'>|\"><a href=x>|</script>|-->"),
    ),
    "windows-1252": Format(
        document("text/html; charset=windows-1252"),
        parts("<a href='/?|<title>|<a href="),
        parts("à|àa|&#20013;|&#xe0;|?à#|<a href=?à&#1>"),
        parts("'>"),
    ),
    "iso-2022-jp": Format(
        document("text/html; charset=iso-2022-jp"),
        parts("<a href='/?|<title>|\x1b$B"),
        parts('\x1b$B|\x1b$B$"\x1b(B|\x1b(B|\x1b|&#20013;|&#233;|0!'),
        parts("'>"),
    ),
    "gbk": Format(
        document("text/html; charset=gbk"),
        parts("<a href='/?"),
        parts("ÖÐ|ÿ|&#233;"),
        parts("'>"),
    ),
    "utf-16": Format(
        document("text/html; charset=utf-16"),
        parts("|<\x00a\x00"),
        parts("\x00|<\x00|\x00Ø|a\x00"),
    ),
    "xhtml": Format(
        document("application/xhtml+xml"),
        _PAGE_STARTS,
        _PAGE_UNITS,
        parts("|'/>|]]>"),
    ),
    "with NUL": Format(
        document("text/html"),
        tuple(b"\0" + start for start in _PAGE_STARTS),
        _PAGE_UNITS,
        parts("|'>"),
    ),
    "tree": Format(
        tree,
        _PAGE_STARTS,
        _PAGE_UNITS,
        parts("|'></script>"),
    ),
    "tree of tags": Format(
        tree_of_tags,
        parts("|<div><p>|<table>"),
        _TREE_UNITS,
    ),
    "style sheet": Format(
        lambda data: embedded_in_css(data.decode("latin-1")),
        parts("|\"|'|@import |@import '|url(|url('|image-set(|image-set((\")|/*"),
        _CSS_UNITS,
        parts("|)|')"),
    ),
    "embedded": Format(
        lambda data: embedded_in(data, "UTF-8"),
        parts("<img srcset='|<p style='|<style>|<iframe srcdoc='|<iframe srcdoc=\"<p style='"),
        _CSS_UNITS,
        parts("'>|\">"),
    ),
    "compared pages": Format(
        compared,
        parts("|<img src=|<img alt=|1.|<h1>|<meta name=description content=|<script>|<a>x"),
        parts(
            " |\n|1.|1|.|a|abcdef01|src=|alt='|'|20|12:|-|<script>|<script |<title>|<style>|<img src=|>1abc|<p>x|<h1>|</a>"
        ),
        parts("|'>|1abc>"),
    ),
    "sitemap": Format(
        document("application/xml"),
        parts(
            "|<?xml |<?xml version='1.0' encoding='|<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>|"
            "<urlset |<urlset x='|<sitemapindex>|<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url>|"
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>|"
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>https://a.test/1</loc><lastmod>|"
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>https://a.test/1</loc><priority>|"
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><!--|https://a.test/\n|"
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><![CDATA[|"
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc><![CDATA[|<!DOCTYPE a ["
        ),
        parts(
            "a|0|1|9|.|-|:|&|&amp;|&#1|&#49;|<|<a>|<a/>|<x:y/>|</url>|<url/>|<!--|-->|<![CDATA[]]>|]]>|'|x='y'|Ã©|"
            "%| |\n|x='1' |https://a.test/ |<url><loc>https://a.test/1</loc></url>|<loc>a</loc>|"
            "<lastmod>2026-01-01</lastmod>|<!ENTITY a '&b;'>|<?x y?>|\x00|ÿ|<url><loc>x</loc></url>"
        ),
        parts("|</loc></url></urlset>"),
    ),
    "robots": Format(
        robots,
        parts(
            "|User-agent: *\n|User-agent: *\nDisallow: |User-agent: *\nDisallow: /*|User-agent: *\nCrawl-delay: |"
            "Sitemap: |User-agent: |User-agent: *\nRequest-rate: |#"
        ),
        parts(
            "a|/|*|**|*a|*a*b|$|%|%2|%2f|%61|#|:|;|=|?|&|Ã©|1|.|1/|a/b.|\\| |\t|\n|\r|\r\n|\x00|ÿ|ï»¿|"
            "Disallow: /a\n|Disallow: /*a*b\n|Allow: /a*\n|User-agent: *\n|User-agent: a\n|Sitemap: /x\n|"
            "Crawl-delay: 1\n|Disallow:\n|Disallow /a\n|Request-rate: 1/5s\n|User-agent: peercrawl\nDisallow: /a\n"
        ),
        parts("|$\n"),
    ),
    "content usage": Format(
        content_usage,
        parts(
            '|train-ai=n, |a="|a=%"|a=:|a=(|a;|a=|User-agent: *\nContent-Usage: |User-agent: *\nContent-Usage: /*|'
            "User-agent: *\nContent-Usage: / "
        ),
        parts(
            'a|1|,|, |=|a=n, |a;b|;|; |;a=1|(|)|1 |(1 |"|\\"|%|%c3%a4|:|=:|?1|*|*a|*a*b|$|/| |\t|\n|\x00|ÿ|a=n,|a=(1),|'
            "Content-Usage: train-ai=n\n|Content-Usage: /a*b*c train-ai=n\n|Content-Usage: /*a search=y\n|User-agent: *\n"
        ),
        parts('|"|)|/x\n'),
    ),
    "tdmrep": Format(
        tdmrep,
        parts('|[|[{"location":"|[{"location":"/","tdm-policy":"|[{"location":"/*|[{"location":"/"},'),
        parts(
            'a|/|*|*a|$|%|%2f|[|{|{"|"|\\|,|1|:|{"location":"/a*b*c","tdm-reservation":1},|{"location":"/*a"},|\\u0041|'
            'ÿ| |{"location":"/b$","tdm-reservation":1},'
        ),
        parts('|"}]|{}]'),
    ),
    "long path": Format(
        long_path,
        parts("|a|?"),
        parts("a|b|c|ab|abc|/|%|%2f|%61|?|&|=|*|$|#|Ã©"),
        parts("|c"),
    ),
    "header values": Format(
        headers,
        parts('|text/html;|text/html; charset=|text/html; x="|max-age=|noindex,|peercrawl:|1 |gzip,'),
        parts(
            'a|1|/|,|;|:|=|"|\\|\\"|\'|charset=|charset|a/b,|text/html,|max-age=|noindex,|x:|gzip,|identity,|none|'
            " |\t|ÿ| ,|, |; |\x00|//|..|https://|Mon, |a b "
        ),
    ),
    "urls": Format(
        urls,
        parts(
            "|http:|https://|https://a.test/|//|?|https://a.test/?|https://xn--|https://[|#|/;sid=|/?sid=|"
            "https://a@|https://a.test:|data:|/?utm_|https://Ã©"
        ),
        parts(
            "a|A|1|/|//|.|..|../|./|%|%2|%2e|%25|%2525|%61|?|&|&&|=|;|#|@|:|[|]|\\|^|xn--|xn--a.|a.|Ã©|ã\x80\x82|"
            "Ã¼.|Ä°|a/b/|utm_a=1&|sid=0123456789abcdef&|;sid=0123456789abcdef|a=1&|?a=|/a;b|%C3%A9|%00|Â\xad|1.1.|"
            "0x7f.|::| |\t|\n|\x00|ÿ|í\xa0\x80|a |/a |?a |# "
        ),
        parts("|.test/|]|#"),
    ),
    "scope": Format(
        scope,
        parts("a.test/"),
        parts("a|/|%|%25|?|&|=|a/|a=1&|../"),
    ),
    "record": Format(
        record,
        parts("|Ýÿÿÿÿ|\x98|\x81"),
        parts("\x91|¡a|À|\x81|ÿ"),
    ),
    "head": Format(
        response(1),
        parts("HTTP/1.1 200 OK\r\n|HTTP/1.1 200 |HTTP/1.1 200 OK\r\nA: |HTTP/1.1 200 OK\r\nSet-Cookie: |"),
        parts("a| |A: b\r\n|Content-Type: a/b\r\n|\r|\n|:|\r\n b|HTTP/1.1 100 a\r\n\r\n|ÿ"),
    ),
    "head in pieces": Format(
        response(64),
        parts("HTTP/1.1 200 OK\r\n|HTTP/1.1 200 OK\r\nA: "),
        parts("a|A: b\r\n|Transfer-Encoding: a,b\r\n"),
    ),
    "gzip": Format(body("gzip"), (b"", _GZIP[:10]), (_GZIP, b"\0", b"\x1f\x8b\x08", b"\0\0\0\xff\xff", EMPTY_BLOCKS)),
    "deflate": Format(
        body("deflate"), (b"", b"\x78\x9c"), (b"\0\0\0\xff\xff", b"\0", b"\xff", EMPTY_BLOCKS), (b"", b"\x07\xff\xff")
    ),
    "zstd": Format(
        body("zstd"), (b"",), (zstd.compress(b""), b"\x50\x2a\x4d\x18\0\0\0\0", b"\0", b"\x28\xb5\x2f\xfd\0\x58\0\0\0")
    ),
    "br": Format(body("br"), (b"", brotli.compress(b"a" * 99)[:4]), (brotli.compress(b""), b"\0", b"\x06", b"\xff")),
    "many codings": Format(body("gzip, br, gzip"), (_GZIP,), (_GZIP, b"\0")),
}
"""Kind of input -> how to make one."""
