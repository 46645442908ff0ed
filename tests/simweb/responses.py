"""Turns a resource into the steps of its response: HTML, codings, faults and attacks, as bytes of HTTP/1.1 (RFC 9112)."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from html import escape
from http import HTTPStatus
from itertools import chain, repeat
from random import Random
from typing import Any

import brotli  # type: ignore[import-untyped]

from tests.simweb.features import Charset, Coding, Hazard
from tests.simweb.resource import Markup, PlacedLink, Resource, Trouble

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Step = bytes | float

_CHUNK_BYTES = 1500
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class ScriptedResponse:
    """A response as a sequence of steps: bytes to send, or seconds to wait. `closes`: the connection is then closed."""

    status: int  # 0: no status line is sent
    steps: Iterable[Step]
    retry_after: float | None = None  # seconds from the end of the response, if it has Retry-After
    closes: bool = False


def head(status: int, fields: list[str]) -> bytes:
    """Status line and header fields, with the empty line that ends them."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def whole(status: int, fields: list[str], body: bytes) -> bytes:
    """A response with Content-Length."""
    return head(status, [*fields, f"Content-Length: {len(body)}"]) + body


def chunked(status: int, fields: list[str], body: bytes) -> bytes:
    """A response with Transfer-Encoding: chunked (RFC 9112 section 7.1)."""
    chunks = (body[start : start + _CHUNK_BYTES] for start in range(0, len(body), _CHUNK_BYTES))
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head(status, [*fields, "Transfer-Encoding: chunked"]) + framed + b"0\r\n\r\n"


BOMB_BYTES = 128 << 20
_BOMB_BLOCK = b"<p>Boom. " * 116_508  # a little less than 1 MiB


def encode(coding: Coding, body: bytes) -> bytes:
    """`body` in this coding, at the fastest level."""
    return _ENCODERS[coding](body)


def token(coding: Coding) -> str:
    """The name of the coding in Content-Encoding."""
    return "deflate" if coding is Coding.RAW_DEFLATE else coding.value


@lru_cache(maxsize=8)
def bomb(coding: Coding, opening: bytes = b"") -> bytes:
    """`opening` followed by more than `BOMB_BYTES` of text, in gzip, br or zstd. The first call takes up to a second."""
    compressor = _COMPRESSORS[coding]()
    # Brotli's compressor calls `process` what the others call `compress`.
    feed = compressor.process if coding is Coding.BROTLI else compressor.compress
    finish = compressor.finish if coding is Coding.BROTLI else compressor.flush
    blocks = [feed(opening), *(feed(_BOMB_BLOCK) for _ in range(BOMB_BYTES // len(_BOMB_BLOCK) + 1)), finish()]
    return b"".join(blocks)


_ENCODERS: dict[Coding, Callable[[bytes], bytes]] = {
    Coding.IDENTITY: lambda body: body,
    Coding.GZIP: lambda body: gzip.compress(body, 1, mtime=0),
    Coding.DEFLATE: lambda body: zlib.compress(body, 1),
    Coding.RAW_DEFLATE: lambda body: zlib.compress(body, 1, wbits=-zlib.MAX_WBITS),
    Coding.BROTLI: lambda body: bytes(brotli.compress(body, quality=1)),
    Coding.ZSTD: lambda body: zstd.compress(body, 1),
}

_COMPRESSORS: dict[Coding, Callable[[], Any]] = {
    Coding.GZIP: lambda: zlib.compressobj(1, wbits=16 + zlib.MAX_WBITS),
    Coding.BROTLI: lambda: brotli.Compressor(quality=1),
    Coding.ZSTD: lambda: zstd.ZstdCompressor(1),
}


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PARAGRAPHS = 64
_PARAGRAPH_BYTES = 500

# Text that looks like a link but is none. The judge reports a crawler that requests one of these.
_DECOYS = """
<!-- <a href="/decoy/comment">old</a> -->
<script>document.write('<a href="/decoy/script">x</a>');</script>
<style>body { background: url(/decoy/style.png) }</style>
<textarea><a href="/decoy/textarea">x</a></textarea>
<img src="/decoy/logo.png" alt=""><script src="/decoy/app.js"></script>
<link rel="stylesheet" href="/decoy/site.css">
<a name="part-2"></a><a href="#part-2">down</a><a href="mailto:editor@d00000.test">mail</a>
<a href="javascript:void(0)">nothing</a><a href="tel:+491234">call</a><a href="data:text/html,x">data</a>
<a href="http://[bad/">broken</a>
"""


def html(resource: Resource) -> bytes:
    """The page in its encoding. Characters that it cannot represent become character references."""
    markup = resource.markup or Markup()
    text = "".join((_head(markup, resource.charset), _body(markup, resource.links)))
    body = text.encode(resource.charset.encoding, errors="xmlcharrefreplace")
    return b"\xef\xbb\xbf" + body if resource.charset is Charset.UTF8_BOM else body


def _head(markup: Markup, charset: Charset) -> str:
    """<meta charset> comes first, because it must be within the first 1,024 bytes (HTML, section 4.2.5.4)."""
    return "".join(
        (
            '<?xml version="1.0"?>\n' if markup.prolog else "",
            '<!doctype html>\n<html lang="en"><head>\n',
            f'<meta charset="{charset.encoding}">\n' if charset.value.endswith("/meta") else "",
            f"<title>{escape(markup.title)}</title>\n",
            f'<base href="{markup.base}">\n' if markup.base else "",
            f'<link rel="canonical" href="{escape(markup.canonical)}">\n' if markup.canonical else "",
            f'<meta name="robots" content="{markup.meta_robots}">\n' if markup.meta_robots else "",
            "</head><body>\n",
        )
    )


def _body(markup: Markup, links: tuple[PlacedLink, ...]) -> str:
    """Puts a paragraph of filler between every two links while it lasts, and the rest at the end."""
    paragraphs = _filler(markup.size, markup.offset)
    parts = [f"<h1>{escape(markup.title)}</h1>\n", markup.article, _DECOYS if markup.decoys else ""]
    for index, link in enumerate(links):
        rel = ' rel="noopener nofollow"' if link.nofollow else ""
        parts.append(f'<a href="{link.href.replace("&", "&amp;")}"{rel}>link {index}</a>\n')
        if index < len(paragraphs):
            parts.append(paragraphs[index])
    parts.extend(paragraphs[len(links) :])
    parts.append("</body></html>\n")
    return "".join(parts)


def _filler(size: int, offset: int) -> list[str]:
    paragraphs = _paragraphs()
    return [paragraphs[(offset + n) % _PARAGRAPHS] for n in range(size // _PARAGRAPH_BYTES)]


@lru_cache(maxsize=1)
def _paragraphs() -> tuple[str, ...]:
    """ASCII words that compress about as well as prose."""
    rng = Random(4)
    words = ["".join(rng.choices(_LETTERS, k=rng.randint(2, 9))) for _ in range(800)]
    return tuple(
        f"<p>{' '.join(rng.choices(words, k=120))}"[: _PARAGRAPH_BYTES - 5] + "</p>\n" for _ in range(_PARAGRAPHS)
    )


_HTML = "Content-Type: text/html; charset=utf-8"
_TEXT = "Content-Type: text/plain"
_BLOCK_BYTES = 65_536
_LAUGHS = 9
_LAUGH = b"ha" * 54  # times 10 ** 7 is about 1 GiB


def attack(hazard: Hazard, opening: bytes) -> ScriptedResponse:
    """The response to /hazard, or to the file that the hazard attacks with, which begins with the valid part `opening`."""
    return _ATTACKS[hazard](opening)


def _page(body: bytes, *fields: str) -> ScriptedResponse:
    return ScriptedResponse(200, (whole(200, [_HTML, *fields], body),))


def _rules(body: bytes, *fields: str) -> ScriptedResponse:
    return ScriptedResponse(200, (whole(200, [_TEXT, *fields], body),))


def _endless(opening: bytes, line: bytes, status: int = 200, blocks: int | None = None) -> ScriptedResponse:
    """`opening`, then `line` again and again, in as many `blocks`."""
    block = line * (_BLOCK_BYTES // len(line))
    more = repeat(block) if blocks is None else repeat(block, blocks)
    return ScriptedResponse(status, chain([opening], more), closes=True)


def _drip() -> Iterator[Step]:
    yield head(200, [_HTML])
    while True:
        yield b"x"
        yield 1.0


def _surplus() -> ScriptedResponse:
    """RFC 9112 section 9.3: bytes after a response must not be taken for the response to the next request."""
    unasked = whole(200, [_HTML], b'<a href="/decoy/smuggled">smuggled</a>')
    return ScriptedResponse(200, (whole(200, [_HTML], b"<h1>First</h1>") + unasked,))


def _robots_patterns(rules: bytes) -> ScriptedResponse:
    """The valid rules come first: the group's many patterns match nothing, but each must be tried."""
    return _rules(rules + b"".join(b"Disallow: /*" + b"a*" * 120 + b"b%d\n" % number for number in range(1_900)))


def _unrequested() -> ScriptedResponse:
    response = whole(200, [_HTML], b"<h1>First</h1>")
    return ScriptedResponse(200, chain([response, 0.1], repeat(b"x" * _BLOCK_BYTES)), closes=True)


def _reference() -> ScriptedResponse:
    number = b"&#" + b"1" * 4_301
    return _page(
        b"<html lang='%b'><title>%b</title><base href='/%b'><a href='%b'>x</a>" % (number, number, number, number)
    )


def _sitemap_bomb() -> ScriptedResponse:
    """The "billion laughs": each entity is ten times the one before (CVE-2003-1564)."""
    entities = b"".join(b'<!ENTITY l%d "%b">\n' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, _LAUGHS - 1))
    body = (
        b'<?xml version="1.0"?>\n<!DOCTYPE urlset [\n<!ENTITY l0 "%b">\n%b]>\n'
        b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        b"<url><loc>&l%d;</loc></url></urlset>\n"
    ) % (_LAUGH, entities, _LAUGHS - 2)
    return ScriptedResponse(200, (whole(200, ["Content-Type: application/xml"], body),))


_CHUNKED = head(200, [_HTML, "Transfer-Encoding: chunked"])

_SCRIPTS = (
    b'<div id="app"></div><script>for (let n = 0; n < 1000; n++) fetch("/hazard?" + n);'
    b"const kept = []; while (true) kept.push(new Uint8Array(1 << 24).fill(1))</script>"
)

_ATTACKS: dict[Hazard, Callable[[bytes], ScriptedResponse]] = {
    Hazard.GZIP_BOMB: lambda _: _page(bomb(Coding.GZIP), "Content-Encoding: gzip"),
    Hazard.BROTLI_BOMB: lambda _: _page(bomb(Coding.BROTLI), "Content-Encoding: br"),
    Hazard.ZSTD_BOMB: lambda _: _page(bomb(Coding.ZSTD), "Content-Encoding: zstd"),
    Hazard.NESTED_BOMB: lambda _: _page(encode(Coding.GZIP, bomb(Coding.GZIP)), "Content-Encoding: gzip, gzip"),
    Hazard.ENDLESS_BODY: lambda _: _endless(head(200, [_HTML]), b"<p>and so on "),
    Hazard.ENDLESS_HEAD: lambda _: _endless(b"HTTP/1.1 200 OK\r\n", b"X-More: and so on\r\n"),
    Hazard.HUGE_FIELD: lambda _: _page(b"<h1>Read me</h1>", f"X-Much: {'x' * (4 << 20)}"),
    Hazard.SCRIPTS: lambda _: _page(_SCRIPTS),
    Hazard.DRIP: lambda _: ScriptedResponse(200, _drip(), closes=True),
    Hazard.HUGE_CHUNK: lambda _: ScriptedResponse(200, (_CHUNKED + b"f" * 20 + b"\r\n<h1>Much</h1>",), closes=True),
    Hazard.SURPLUS: lambda _: _surplus(),
    Hazard.HUGE_LOCATION: lambda _: ScriptedResponse(301, (whole(301, [f"Location: /{'x' * (1 << 20)}"], b""),)),
    Hazard.MANY_LINKS: lambda _: _page(b"".join(b'<a href="/private/%d">%d</a>\n' % (n, n) for n in range(100_000))),
    Hazard.HUGE_ATTRIBUTE: lambda _: _page(b'<a href="/' + b"x" * (5 << 20) + b'">long</a>'),
    Hazard.DEEP_TAGS: lambda _: _page(b"<div>" * 200_000 + b"deep"),
    # The rules are followed by lines that have no meaning in robots.txt.
    Hazard.ROBOTS_BOMB: lambda rules: _rules(bomb(Coding.GZIP, rules), "Content-Encoding: gzip"),
    Hazard.ROBOTS_ENDLESS: lambda rules: _endless(head(200, [_TEXT]) + rules, b"# and so on\n"),
    Hazard.ROBOTS_PATTERNS: _robots_patterns,
    Hazard.SITEMAP_BOMB: lambda _: _sitemap_bomb(),
    Hazard.TRAILERS: lambda _: _endless(_CHUNKED + b"e\r\n<h1>First</h1>\r\n0\r\n", b"X-More: and so on\r\n"),
    Hazard.BLANK_LINE: lambda _: _endless(b"\n\r\n", b"x", status=0, blocks=256),
    Hazard.INTERIM: lambda _: _endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", status=0),
    Hazard.UNREQUESTED: lambda _: _unrequested(),
    Hazard.REFERENCE: lambda _: _reference(),
    Hazard.OPEN_TAG: lambda _: _page(b"<a " + b"a " * 880_000),
    Hazard.SURROGATE: lambda _: _page(rb'<script type="application/ld+json">{"name": "\ud800"}</script>'),
    Hazard.CHARSET: lambda _: ScriptedResponse(
        200, (whole(200, [f"Content-Type: text/html;charset={' ' * 16_000};"], b"<h1>Title</h1>"),)
    ),
}


def answer(resource: Resource | None, attempt: int, request: Mapping[str, str], now: float) -> ScriptedResponse:
    """The response to request number `attempt` for `resource`, 1 for the first.

    `request`: its header fields, by name in lower case; `now`: seconds since 1970. The response is a 404 if `resource` is
    None.
    """
    if resource is None:
        return ScriptedResponse(404, (whole(404, ["Content-Type: text/html"], b"<h1>Not found</h1>"),))
    if resource.hazard is not None:
        return attack(resource.hazard, resource.body or b"")
    if resource.trouble is not None and resource.trouble.strikes(attempt):
        return _troubled(resource.trouble, now)
    if resource.is_cut:
        return _cut(resource)
    return _sound(resource, request)


def _sound(resource: Resource, request: Mapping[str, str]) -> ScriptedResponse:
    body = resource.body if resource.body is not None else html(resource)
    fields = _fields(resource)
    if resource.coding is not Coding.IDENTITY and token(resource.coding) in request.get("accept-encoding", ""):
        body = encode(resource.coding, body)
        fields.append(f"Content-Encoding: {token(resource.coding)}")
    frame = chunked if resource.chunked else whole
    data = frame(resource.status, fields, body)
    return ScriptedResponse(resource.status, (resource.delay, data) if resource.delay else (data,))


def _fields(resource: Resource) -> list[str]:
    media = resource.media
    if resource.charset.value.endswith("/header") and media == "text/html":
        media = f"{media}; charset={resource.charset.encoding}"
    fields = [f"Content-Type: {media}"]
    if resource.location:
        fields.append(f"Location: {resource.location}")
    if resource.x_robots:
        fields.append(f"X-Robots-Tag: {resource.x_robots}")
    return fields


def _troubled(trouble: Trouble, now: float) -> ScriptedResponse:
    """An HTTP-date has whole seconds, so it asks for up to one second more than the other form."""
    fields = ["Content-Type: text/html"]
    retry_after: float | None = None
    if trouble.retry_after_s:
        date = int(now) + 1 + trouble.retry_after_s
        retry_after = date - now if trouble.as_date else float(trouble.retry_after_s)
        written = formatdate(date, usegmt=True) if trouble.as_date else str(trouble.retry_after_s)
        fields.append(f"Retry-After: {written}")
    return ScriptedResponse(trouble.status, (whole(trouble.status, fields, b"<h1>Not now</h1>"),), retry_after)


def _cut(resource: Resource) -> ScriptedResponse:
    """Content-Length is twice the number of bytes that are sent."""
    body = html(resource)
    promise = head(200, [*_fields(resource), f"Content-Length: {len(body)}"])
    return ScriptedResponse(200, (promise + body[: len(body) // 2],), closes=True)
