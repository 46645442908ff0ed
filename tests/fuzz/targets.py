"""What is fed with anything, and what must hold of the answer. A target raises for a breach and returns otherwise."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import brotli  # type: ignore[import-untyped]

from crawler.parse.child import encoded
from crawler.parse.coding import decode_body
from crawler.parse.document import NOTED, Document, ParseLimits, read, read_if_small, usage_of
from crawler.parse.encoding import MediaType
from crawler.parse.extraction import MAX_REPORTED, ExtractionJob
from crawler.parse.html import Extracted, ExtractPolicy, directives, extract
from crawler.parse.sitemaps import parse_sitemap
from crawler.scope.extract_rules import ExtractRule, FieldRule
from crawler.scope.scope import TrapPolicy, judge_trap
from frontier.entries import Entry, parse_entry
from frontier.errors import BadUrl
from frontier.urls import canonicalize, origin_of
from politeness.backoff import BackoffPolicy, BackoffState, after_failure, parse_retry_after
from politeness.delay import DelayPolicy, delay_ms
from politeness.robots_fetch import RobotsFetch, RobotsRecord
from politeness.robots_match import Rules
from politeness.robots_syntax import BadRecord
from politeness.tdmrep import NOT_STATED, TdmFile
from politeness.usage import CATEGORIES, Usage

NOW_S = 1_790_000_000.0
LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """`feed` takes an input; `seeds` are sound ones; `share`: how many of a hundred inputs it gets."""

    name: str
    feed: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...]
    share: int


@dataclass(frozen=True, slots=True)
class RobotsResponse:
    """A response to a request for robots.txt."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    truncated: str | None = None


def robots(data: bytes) -> None:
    """Rules are read from anything, answer for anything, and their delays are usable."""
    rules = Rules.parse(data, "peercrawl")
    for path in ("/", "/private/x?y=1", "/" + data[:200].decode("latin-1")):
        rules.decide("https://a.test" + path)
        if rules.usage is not None:
            assert len(rules.usage.stated("https://a.test" + path)) <= len(CATEGORIES)
    assert rules.decide("/robots.txt").allowed
    assert 0 <= delay_ms(DelayPolicy(), rules.crawl_delay, rules.request_rate, 0.0) <= 300_000


def tdmrep(data: bytes) -> None:
    """Rules are read from anything, survive being stored, and answer for anything."""
    file = TdmFile.parse(data)
    assert TdmFile.unpack(file.pack()).pack() == file.pack()
    for path in ("/", "/a/b.jpg", "/" + data[:200].decode("latin-1")):
        file.reservation("https://a.test" + path)


def robots_answer(data: bytes) -> None:
    """A redirect, whatever its Location, leads to a next request or to a verdict."""
    fetch = RobotsFetch("https://a.test")
    for status in (301, 200 + (len(data) % 350)):
        headers = ((b"Location", data), (b"Retry-After", data), (b"Cache-Control", data))
        if fetch.received(RobotsResponse(status, headers, data), int(NOW_S * 1000)) is not None:
            return
        assert fetch.url.startswith(("http://", "https://"))


def robots_record(data: bytes) -> None:
    """A record from Redis is whole or refused."""
    try:
        record = RobotsRecord.unpack(data)
    except BadRecord:
        return
    assert RobotsRecord.unpack(record.pack()) == record


def retry_after(data: bytes) -> None:
    """Seconds within a day, or nothing."""
    seconds = parse_retry_after(data, NOW_S)
    assert seconds is None or 0 <= seconds <= 86_400


def backoff(data: bytes) -> None:
    """A domain's stored state, however damaged, gives a state that can be gone on from."""
    state = BackoffState.parse(data.decode("utf-8", "replace"))
    after = after_failure(state, BackoffPolicy(), int(NOW_S * 1000), None, 0.5, "x")
    assert BackoffState.parse(str(after)) == after


def headers(data: bytes) -> None:
    """Content-Type and X-Robots-Tag."""
    text = data.decode("latin-1")
    MediaType.parse(text)
    directives([("robots", text)], [text], "peercrawl")
    noted = [(name, data) for name in sorted(NOTED)]
    usage = usage_of(NOT_STATED, noted, Extracted(tdm=(("tdm-reservation", text),)), is_image=True)
    assert Usage.recorded(str(usage), usage.statements, "").refusal(CATEGORIES) is None or usage.refusal(CATEGORIES)
    assert not any("\n" in one or "\r" in one for one in (*usage.statements, usage.tdm_policy))


def html(data: bytes) -> None:
    """Links are few enough, canonical, and of the web."""
    found = extract(data, "https://a.test/dir/page", "text/html", ExtractPolicy(max_links=500), ())
    assert len(found.links) == len(found.urls) <= 500
    for url in found.urls[:20]:
        assert canonicalize(url.href).href == url.href


_ITEMS = ExtractionJob(
    (
        ExtractRule(
            "pages",
            (
                FieldRule("text", css="p b, i ~ a"),
                FieldRule("price", css=".p", type="decimal"),
                FieldRule("day", css="time", attr="datetime", type="date"),
                FieldRule("link", css="a", attr="href", type="url", list=True),
                FieldRule("name", json_ld="Product.offers.name"),
                FieldRule("marked", microdata="Product.name"),
                FieldRule("named", rdfa="Product.name"),
                FieldRule("bold", xpath="//p/b | //@href"),
                FieldRule("word", regex="(a+)+b|x(\\d)"),
            ),
        ),
        ExtractRule("parts", (FieldRule("text"), FieldRule("n", regex=r"\d+", type="int")), each="p, div:has(> b)"),
    ),
    "https://a.test/dir/page",
    "text/html",
    "utf-8",
    "",
    {},
    LIMIT,
)


def items(data: bytes) -> None:
    """Items are JSON objects with all fields of their rule, and each one that is rejected is counted."""
    found = _ITEMS.run(data)
    names = {rule.name: {field.name for field in rule.fields} for rule in _ITEMS.rules}
    for item in found.items:
        assert item.fields.keys() == names[item.name]
    assert len(found.rejected) == min(MAX_REPORTED, found.rejected_count)


def sitemap(data: bytes) -> None:
    """A sitemap is read as far as it goes."""
    parse_sitemap(data)


def coded(data: bytes) -> None:
    """Decoding keeps its limit; the first byte chooses the codings."""
    coding = ("gzip", "deflate", "br", "zstd", "gzip, gzip", "x, gzip")[data[0] % 6 if data else 0]
    assert len(decode_body(data[1:], coding, LIMIT).data) <= LIMIT


def document(data: bytes) -> None:
    """A small document is read as any other, and the offload process can encode the result. The first line contains
    the content coding and the media type."""
    head, _, body = data.partition(b"\n")
    coding, _, media = head.decode("latin-1").partition(" ")
    given = Document(body, "https://a.test/dir/page", coding, media, (), True, bool(len(data) % 2), NOW_S)
    limits = ParseLimits(ExtractPolicy(max_links=500), LIMIT)
    reading = read(given, limits)
    assert read_if_small(given, limits) in (None, reading)
    assert all(encoded(reading))


def url(data: bytes) -> None:
    """The canonical form is a fixed point, survives the frontier's encoding, and nothing but BadUrl escapes."""
    text = data.decode("utf-8", "surrogateescape" if len(data) % 2 else "replace")
    try:
        found = canonicalize(text, "https://base.test/a/b?c")
    except BadUrl:
        return
    assert canonicalize(found.href) == found
    assert origin_of(found.href) == found.origin
    assert "\n" not in found.href
    assert parse_entry(Entry(found.href, found.domain).raw, found.domain, 0.0).url == found.href
    judge_trap(found.href, TrapPolicy())


_PAGE = (
    b"<!doctype html><html lang=en><head><base href='/x/'><title>T</title><meta name=robots content='nofollow, noindex'>"
    b"<link rel=canonical href=/c><meta http-equiv=refresh content='0; url=/r'></head><body><a href='/1?a=b&amp;c#d'>1</a>"
    b"<a rel='nofollow' href=2>2</a><iframe src=//b.test/></iframe><area href='javascript:x'><svg><a href=q></svg></body>"
)
_ROBOTS = (
    b"User-agent: *\nDisallow: /private/\nAllow: /private/*.html$\nCrawl-delay: 2\nRequest-rate: 1/5s\n\n"
    b"user-agent: PeerCrawl/1\r\nDisallow: /a%2fb\rSitemap: https://a.test/s.xml\n"
    b"Content-Usage: train-ai=n\nContent-Usage: /private/*.html search=y;a=(1 2), ai-use=n\n"
)
_SITEMAP = (
    b"<?xml version='1.0'?><urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>"
    b"<url><loc>https://a.test/1</loc><lastmod>2026-01-01</lastmod><priority>0.5</priority></url></urlset>"
)
_INDEX = b"<sitemapindex><sitemap><loc>https://a.test/s1.xml.gz</loc></sitemap></sitemapindex>"
_RECORD = RobotsRecord("rules", "ok", 200, 1, 2, b"Disallow: /").pack()

TARGETS = (
    Target(
        "robots",
        robots,
        (_ROBOTS, b"\xef\xbb\xbf" + _ROBOTS, b"Disallow: " + b"*a" * 200 + b"$\n"),
        (
            *(b"User-agent: *\n", b"Disallow: /", b"Allow: /*$\n", b"Crawl-delay: ", b"*", b"$", b"%2F", b"#"),
            *(b"Content-Usage: /a*b ", b"train-ai=n", b", ", b";"),
        ),
        15,
    ),
    Target(
        "tdmrep",
        tdmrep,
        (b'[{"location": "/a/*.jpg$", "tdm-reservation": 1, "tdm-policy": "https://a.test/p"}, {"location": "/"}]',),
        (b'"location"', b'"tdm-reservation"', b"[", b"{", b"}", b",", b"*", b"$", b"1", b"true", b'"'),
        4,
    ),
    Target(
        "robots_answer",
        robots_answer,
        (b"/robots.txt", b"https://b.test/r?x=1", b"max-age=60", b"120"),
        (b"//", b"https://", b"..", b"?", b"#", b"max-age=", b"@", b"[::1]", b":99999"),
        6,
    ),
    Target("robots_record", robots_record, (_RECORD,), (b"\x01", b"\xc0", b"\xda\xff\xff", b"\x98", b"\xcf"), 4),
    Target(
        "retry_after",
        retry_after,
        (b"120", b"Fri, 31 Dec 1999 23:59:59 GMT", b"Friday, 31-Dec-99 23:59:59 GMT", b"Fri Dec 31 23:59:59 1999"),
        (b":", b"GMT", b"+9999", b"Feb 30", b"99", b"-", b","),
        8,
    ),
    Target("backoff", backoff, (b"3 1790000000000 0 timeout", b"1 0 5"), (b" ", b"9", b"-", b"\t", b"x"), 4),
    Target(
        "headers",
        headers,
        (
            *(b"text/html; charset=utf-8", b"noindex, otherbot: nofollow", b"unavailable_after: 1 Jan, none"),
            *(b"train-ai=n, search=y;a=1", b"noai, noimageai", b"1"),
        ),
        (b";", b",", b":", b"charset=", b'"', b"peercrawl: ", b"none"),
        8,
    ),
    Target(
        "html",
        html,
        (_PAGE, b"<a href=x>" * 40, b"<p>" * 40 + b"<table><tr><td>"),
        (b"<a href='", b"<base href=", b"</a>", b"<!--", b"<![CDATA[", b"&#x110000;", b"<meta charset=", b"<b>", b'"'),
        8,
    ),
    Target(
        "items",
        items,
        (
            b"<p><b>x</b> 5</p><i></i><a href=/x>y</a><b class=p>$1,234.50</b><time datetime=2026-03-04>now</time> x7",
            b'<script type=application/ld+json>{"@type":"Product","offers":[{"name":1},{"name":{"@value":1}}]}</script>',
        ),
        (b"<p>", b"<div>", b"<b>", b'"@type":', b'"@graph":[', b"{", b"[", b"\\ud800", b"1e999", b"a", b"9", b"1,000"),
        4,
    ),
    Target(
        "sitemap",
        sitemap,
        (_SITEMAP, _INDEX, gzip.compress(_SITEMAP, mtime=0), b"https://a.test/1\nhttps://a.test/2\n"),
        (b"<loc>", b"</loc>", b"<!DOCTYPE x [<!ENTITY a 'aaaa'>]>", b"&a;", b"<![CDATA[", b"<url>", b"xmlns:x='y'"),
        10,
    ),
    Target(
        "coded",
        coded,
        (
            b"\0" + gzip.compress(_PAGE, mtime=0),
            b"\1" + zlib.compress(_PAGE),
            b"\2" + brotli.compress(_PAGE),
            b"\4" + gzip.compress(gzip.compress(b"a" * 100_000, mtime=0), mtime=0),
        ),
        (b"\x1f\x8b\x08", b"\0\0\xff\xff", b"\x28\xb5\x2f\xfd", b"\x1b", b"\x03"),
        10,
    ),
    Target(
        "document",
        document,
        (
            b"gzip text/html\n" + gzip.compress(_PAGE, mtime=0),
            b" text/html; charset=shift_jis\n" + _PAGE,
            b"br application/xml\n" + brotli.compress(_SITEMAP),
            b" application/gzip\n" + gzip.compress(_SITEMAP, mtime=0),
            b" text/plain\nhttps://a.test/1\n",
        ),
        (
            b"gzip, ",
            b"br ",
            b"text/html",
            b"text/xml",
            b"charset=utf-16le",
            b"\n",
            b"\xed\xa0\x80",
            b"<urlset>",
            b"<a href='",
        ),
        6,
    ),
    Target(
        "url",
        url,
        (
            b"https://user:pw@www.b\xc3\xbccher.example:443/a/../b;jsessionid=0123456789abcdef?utm_source=x&q=%7e#f",
            b"//[::ffff:1.2.3.4]:80/",
            b"http://0x7f.1/",
            b"../x?y",
        ),
        (b"%", b"..", b"//", b"@", b"[", b"]", b"xn--", b":", b"\\", b"?", b"#", b"%2e", b";sid=", "。".encode()),
        17,
    ),
)
