"""The responses of the hostile domains, as steps. `text`: the valid part with which an attack begins, if any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

from crawler.simweb.codings import bomb, encode
from crawler.simweb.features import Coding
from crawler.simweb.hazards import Hazard
from crawler.simweb.wire import ScriptedResponse, Step, head, whole

_HTML = "Content-Type: text/html; charset=utf-8"
_BLOCK = 65_536
_LAUGHS = 9
_LAUGH = b"ha" * 54  # times 10 ** 7 is about 1 GiB


def attack(hazard: Hazard, text: bytes) -> ScriptedResponse:
    """The response to /hazard, or to the file that the hazard attacks with."""
    return _ATTACKS[hazard](text)


def _page(body: bytes, *fields: str) -> ScriptedResponse:
    return ScriptedResponse(200, (whole(200, [_HTML, *fields], body),))


def _gzip_bomb(text: bytes) -> ScriptedResponse:
    return _page(bomb(Coding.GZIP), "Content-Encoding: gzip")


def _brotli_bomb(text: bytes) -> ScriptedResponse:
    return _page(bomb(Coding.BROTLI), "Content-Encoding: br")


def _zstd_bomb(text: bytes) -> ScriptedResponse:
    return _page(bomb(Coding.ZSTD), "Content-Encoding: zstd")


def _nested_bomb(text: bytes) -> ScriptedResponse:
    return _page(encode(Coding.GZIP, bomb(Coding.GZIP)), "Content-Encoding: gzip, gzip")


def _endless_body(text: bytes) -> ScriptedResponse:
    block = b"<p>and so on " * (_BLOCK // 13)
    return ScriptedResponse(200, chain([head(200, [_HTML])], repeat(block)), closes=True)


def _endless_head(text: bytes) -> ScriptedResponse:
    block = b"X-More: and so on\r\n" * (_BLOCK // 19)
    return ScriptedResponse(200, chain([b"HTTP/1.1 200 OK\r\n"], repeat(block)), closes=True)


def _huge_field(text: bytes) -> ScriptedResponse:
    return _page(b"<h1>Read me</h1>", f"X-Much: {'x' * (4 << 20)}")


def _drip(text: bytes) -> ScriptedResponse:
    def drops() -> Iterator[Step]:
        yield head(200, [_HTML])
        while True:
            yield b"x"
            yield 1.0

    return ScriptedResponse(200, drops(), closes=True)


def _huge_chunk(text: bytes) -> ScriptedResponse:
    opening = head(200, [_HTML, "Transfer-Encoding: chunked"])
    return ScriptedResponse(200, (opening + b"f" * 20 + b"\r\n<h1>Much</h1>",), closes=True)


def _surplus(text: bytes) -> ScriptedResponse:
    """RFC 9112 section 9.3: bytes after a response must not be taken for the response to the next request."""
    unasked = whole(200, [_HTML], b'<a href="/decoy/smuggled">smuggled</a>')
    return ScriptedResponse(200, (whole(200, [_HTML], b"<h1>First</h1>") + unasked,))


def _huge_location(text: bytes) -> ScriptedResponse:
    return ScriptedResponse(301, (whole(301, [f"Location: /{'x' * (1 << 20)}"], b""),))


def _many_links(text: bytes) -> ScriptedResponse:
    return _page(b"".join(b'<a href="/private/%d">%d</a>\n' % (n, n) for n in range(100_000)))


def _huge_attribute(text: bytes) -> ScriptedResponse:
    return _page(b'<a href="/' + b"x" * (5 << 20) + b'">long</a>')


def _deep_tags(text: bytes) -> ScriptedResponse:
    return _page(b"<div>" * 200_000 + b"deep")


def _robots_bomb(text: bytes) -> ScriptedResponse:
    """The rules are followed by lines that have no meaning in robots.txt."""
    data = whole(200, ["Content-Type: text/plain", "Content-Encoding: gzip"], bomb(Coding.GZIP, text))
    return ScriptedResponse(200, (data,))


def _robots_endless(text: bytes) -> ScriptedResponse:
    block = b"# and so on\n" * (_BLOCK // 12)
    return ScriptedResponse(200, chain([head(200, ["Content-Type: text/plain"]) + text], repeat(block)), closes=True)


def _robots_patterns(text: bytes) -> ScriptedResponse:
    """The valid rules come first: the group's many patterns match nothing, but each must be tried."""
    patterns = b"".join(b"Disallow: /*" + b"a*" * 120 + b"b%d\n" % number for number in range(1_900))
    return ScriptedResponse(200, (whole(200, ["Content-Type: text/plain"], text + patterns),))


def _trailers(text: bytes) -> ScriptedResponse:
    opening = head(200, [_HTML, "Transfer-Encoding: chunked"]) + b"e\r\n<h1>First</h1>\r\n0\r\n"
    return ScriptedResponse(200, chain([opening], repeat(b"X-More: and so on\r\n" * (_BLOCK // 19))), closes=True)


def _blank_line(text: bytes) -> ScriptedResponse:
    return ScriptedResponse(0, chain([b"\n\r\n"], repeat(b"x" * _BLOCK, 256)), closes=True)


def _interim(text: bytes) -> ScriptedResponse:
    return ScriptedResponse(0, repeat(b"HTTP/1.1 103 Early Hints\r\n\r\n" * (_BLOCK // 28)), closes=True)


def _unrequested(text: bytes) -> ScriptedResponse:
    response = whole(200, [_HTML], b"<h1>First</h1>")
    return ScriptedResponse(200, chain([response, 0.1], repeat(b"x" * _BLOCK)), closes=True)


def _reference(text: bytes) -> ScriptedResponse:
    number = b"&#" + b"1" * 4_301
    return _page(
        b"<html lang='%b'><title>%b</title><base href='/%b'><a href='%b'>x</a>" % (number, number, number, number)
    )


def _open_tag(text: bytes) -> ScriptedResponse:
    return _page(b"<a " + b"a " * 880_000)


def _surrogate(text: bytes) -> ScriptedResponse:
    return _page(rb'<script type="application/ld+json">{"name": "\ud800"}</script>')


def _charset(text: bytes) -> ScriptedResponse:
    body = b"<h1>Title</h1>"
    return ScriptedResponse(200, (whole(200, [f"Content-Type: text/html;charset={' ' * 16_000};"], body),))


def _sitemap_bomb(text: bytes) -> ScriptedResponse:
    """The "billion laughs": each entity is ten times the one before (CVE-2003-1564)."""
    entities = b"".join(b'<!ENTITY l%d "%b">\n' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, _LAUGHS - 1))
    body = (
        b'<?xml version="1.0"?>\n<!DOCTYPE urlset [\n<!ENTITY l0 "%b">\n%b]>\n'
        b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        b"<url><loc>&l%d;</loc></url></urlset>\n"
    ) % (_LAUGH, entities, _LAUGHS - 2)
    return ScriptedResponse(200, (whole(200, ["Content-Type: application/xml"], body),))


_ATTACKS: dict[Hazard, Callable[[bytes], ScriptedResponse]] = {
    Hazard.GZIP_BOMB: _gzip_bomb,
    Hazard.BROTLI_BOMB: _brotli_bomb,
    Hazard.ZSTD_BOMB: _zstd_bomb,
    Hazard.NESTED_BOMB: _nested_bomb,
    Hazard.ENDLESS_BODY: _endless_body,
    Hazard.ENDLESS_HEAD: _endless_head,
    Hazard.HUGE_FIELD: _huge_field,
    Hazard.DRIP: _drip,
    Hazard.HUGE_CHUNK: _huge_chunk,
    Hazard.SURPLUS: _surplus,
    Hazard.HUGE_LOCATION: _huge_location,
    Hazard.MANY_LINKS: _many_links,
    Hazard.HUGE_ATTRIBUTE: _huge_attribute,
    Hazard.DEEP_TAGS: _deep_tags,
    Hazard.ROBOTS_BOMB: _robots_bomb,
    Hazard.ROBOTS_ENDLESS: _robots_endless,
    Hazard.ROBOTS_PATTERNS: _robots_patterns,
    Hazard.SITEMAP_BOMB: _sitemap_bomb,
    Hazard.TRAILERS: _trailers,
    Hazard.BLANK_LINE: _blank_line,
    Hazard.INTERIM: _interim,
    Hazard.UNREQUESTED: _unrequested,
    Hazard.REFERENCE: _reference,
    Hazard.OPEN_TAG: _open_tag,
    Hazard.SURROGATE: _surrogate,
    Hazard.CHARSET: _charset,
}
