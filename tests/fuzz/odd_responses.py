"""Sites that are sloppy, not hostile: a grammar of odd responses, each a sound one with one to three oddities.

A case is a host, and its number draws everything. Its page says `words`, at its front page or behind a redirect; a sitemap
lists pages. Oddities are grouped in layers, and a case has at most one of a layer. Those that need only be read as bytes
are apart from those that need the right characters (`text`, `type`).
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import brotli  # type: ignore[import-untyped]

Rng = random.Random


@dataclass
class Draft:
    """A response that layers change in the order of `LAYERS`. `lines`: of the head, without Content-Length. `framing`:
    the lines that frame the body, and the framed body. `target`: what the front page redirects to, with `location` as it is
    sent, and `hop` as further lines; `cookie`: what must come back for the page to be shown."""

    number: int
    status: bytes = b"HTTP/1.1 200 OK"
    kind: bytes = b"Content-Type: text/html; charset=utf-8"
    lines: list[bytes] = field(default_factory=lambda: [b"Server: council", b"X-Frame-Options: DENY"])
    words: list[str] = field(default_factory=list)
    body: bytes = b""
    framing: Callable[[bytes], tuple[list[bytes], bytes]] = lambda body: ([b"Content-Length: %d" % len(body)], body)
    before: bytes = b""
    ends: tuple[bytes, bytes] = (b"\r\n", b"\r\n")
    hop_status: bytes = b"HTTP/1.1 302 Found"
    hop: list[bytes] = field(default_factory=list)
    targets: tuple[bytes, ...] = ()
    cookie: bytes = b""
    at_front: bool = False

    @property
    def host(self) -> str:
        return f"h{self.number}.test"

    def response(self) -> bytes:
        framing, body = self.framing(self.body)
        end, last = self.ends
        return self.before + end.join([self.status, self.kind, *self.lines, *framing, b""]) + last + body

    def answer(self, path: bytes, cookie: bytes) -> bytes:
        """What the host sends for `path`."""
        if path.startswith(b"/robots.txt"):
            return NOT_FOUND
        is_shown = not self.cookie or self.cookie in cookie
        if self.hop and (path == b"/" and not (self.at_front and is_shown)):
            return b"\r\n".join([self.hop_status, *self.hop, b"Content-Length: 0", b"", b""])
        if path == b"/" or (path in self.targets and is_shown):
            return self.response()
        return NOT_FOUND


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nnone"

Change = Callable[[Draft, Rng], None]


# Words of a language, and the encodings in which they are published.
_LANGUAGES = {
    "图书馆开放时间：本馆周一至周五上午九点开放，下午六点关闭。读者请凭证入场。": ("gbk", "gb18030", "utf-8"),
    "圖書館開放時間：本館週一至週五上午九點開放，下午六點關閉。讀者請憑證入場。": ("big5", "utf-8"),
    "図書館の案内：当館は月曜日から金曜日まで午前九時に開館します。お気軽にお越しください。": (
        *("shift_jis", "euc_jp", "iso2022_jp", "utf-8", "utf-16"),
    ),
    "도서관 안내: 도서관은 월요일부터 금요일까지 아홉 시에 열립니다.": ("euc_kr", "utf-8"),
    "Библиотека открыта с понедельника по пятницу с девяти часов до шести часов вечера.": (
        *("windows-1251", "koi8-r", "iso8859-5", "cp866", "utf-8"),
    ),
    "Knihovna města je otevřena od pondělí do pátku, večer zavřeno. Žluťoučký kůň.": (
        *("windows-1250", "iso8859-2", "utf-8"),
    ),
    "Η βιβλιοθήκη είναι ανοιχτή από Δευτέρα έως Παρασκευή στις εννέα.": ("windows-1253", "iso8859-7", "utf-8"),
    "La bibliothèque municipale est ouverte à tous, sauf l’été et à Noël; entrée: 5 €.": (
        *("windows-1252", "utf-8", "utf-16"),
    ),
    "الكتب متاحة للجميع في المكتبة من الاثنين إلى الجمعة في التاسعة صباحا": ("windows-1256", "utf-8"),
    "הספרייה פתוחה לציבור מיום ראשון עד יום חמישי בשעה תשע": ("windows-1255", "utf-8"),
    "ห้องสมุดเปิดให้บริการตั้งแต่วันจันทร์ถึงวันศุกร์": ("cp874", "utf-8"),
}
_LABELS = {"gbk": "gb2312", "iso2022_jp": "iso-2022-jp", "cp874": "windows-874", "euc_jp": "euc-jp", "euc_kr": "euc-kr"}


_DECLARED = ("header", "quoted", "spaced", "wrong label", "meta", "late meta", "none")


def _text(how: str, draft: Draft, rng: Rng) -> None:
    """The page in a language, and its encoding as `how` says it."""
    words = rng.choice(list(_LANGUAGES))
    encoding = rng.choice(_LANGUAGES[words])
    label = _LABELS.get(encoding, encoding.replace("iso8859", "iso-8859"))
    draft.words.append(words)
    kind, meta = "text/html", ""
    if how == "header":
        kind = f"text/html; charset={label}"
    elif how == "quoted":
        kind = f"text/html; charset={rng.choice(chr(34) + chr(39))}{label.upper()}{rng.choice(chr(34) + chr(39))}"
    elif how == "spaced":
        kind = f"text/html ;CHARSET = {label}"
    elif how == "wrong label":
        kind = f"text/html; charset={rng.choice(('none', 'utf8mb4', 'default', '', 'binary', 'en', 'x-unknown'))}"
    if how == "meta" and encoding != "utf-16":
        meta = rng.choice(
            (f"<meta charset={label}>", f'<META http-equiv=content-type content="text/html;charset={label}">')
        )
    if how == "late meta" and encoding != "utf-16":
        meta = f'<!--{"x" * rng.choice((500, 900))}--><meta charset="{label}" />'
    draft.kind = b"Content-Type: " + kind.encode()
    draft.body = _page(draft, meta).encode(encoding)


def _page(draft: Draft, meta: str = "") -> str:
    first, *others = draft.words
    return f"<!DOCTYPE html><html><head>{meta}<title>{first}</title></head><body>" + "".join(
        f"<p>{words}</p>" for words in [*others, "Minutes of the council meeting.", f"last {first}"]
    )


def _field(line: Callable[[Rng], bytes], draft: Draft, rng: Rng) -> None:
    draft.lines.insert(rng.randint(0, len(draft.lines)), line(rng))
    draft.kind, draft.lines[0] = (draft.kind, draft.lines[0]) if rng.random() < 0.7 else (draft.lines[0], draft.kind)


def _bytes(rng: Rng, least: int, most: int, choices: bytes) -> bytes:
    return bytes(rng.choices(choices, k=rng.randint(least, most)))


_ANY = bytes(set(range(1, 256)) - {10, 13})
_NAMES = (b"X-Cache", b"Pragma", b"Via", b"X-XSS-Protection", b"Age", b"Link", b"ETag", b"Last-Modified", b"Vary")


def _inserted(rng: Rng, odd: bytes) -> bytes:
    line = rng.choice(_NAMES) + b": no-cache"
    at = rng.randint(0, len(line))
    return line[:at] + odd + line[at:]


_FIELDS: dict[str, Callable[[Rng], bytes]] = {
    "no colon": lambda rng: rng.choice((b"X-XSS-Protection=1;", b"nosniff", b"<script>", b"OK", b"-", b"{}", b"HTTP/1.1")),
    "quoted line": lambda rng: b'"X-XSS-Protection: 0"', "space in name": lambda rng: b"X Powered By: PHP",
    "space before colon": lambda rng: rng.choice(_NAMES) + rng.choice((b" ", b"\t", b"  ")) + b": a",
    "empty name": lambda rng: b": value", "only a colon": lambda rng: b":", "no space": lambda rng: b"X-A:b",
    "empty value": lambda rng: rng.choice(_NAMES) + b":",
    "folded": lambda rng: b"X-Long: first\r\n" + rng.choice((b" ", b"\t")) + b"second: x",
    "folded without colon": lambda rng: b"Content-Security-Policy: default-src 'self';\r\nimg-src *;\r\nscript-src 'self'",
    "CR in value": lambda rng: b"X-Note: one\rtwo", "CR at the end": lambda rng: b"X-Note: one\r",
    "NUL": lambda rng: _inserted(rng, b"\0"),
    "control character": lambda rng: _inserted(rng, _bytes(rng, 1, 2, b"\x01\x07\x08\x0b\x0c\x1b\x1f\x7f")),
    "high bytes": lambda rng: _inserted(rng, _bytes(rng, 1, 4, bytes(range(128, 256)))),
    "UTF-8": lambda rng: _inserted(rng, rng.choice(("Αθήνα", "’", "é", "\u200b", "\ufeff")).encode()),
    "any bytes": lambda rng: _inserted(rng, _bytes(rng, 1, 8, _ANY)),
    "only bytes": lambda rng: _bytes(rng, 1, 30, _ANY).lstrip(b" \t") or b"x",
    "punctuation in name": lambda rng: b"X%bA: b" % _bytes(rng, 1, 2, b'"(),/;<=>?@[\\]{}'),
    "many": lambda rng: b"\r\n".join(b"X-%d: y" % number for number in range(rng.choice((60, 95)))),
    "long": lambda rng: b"X-Long: " + b"x" * rng.choice((5_000, 8_200, 16_000, 30_000)),
    "twice": lambda rng: b"X-Twice: a\r\nX-Twice: b",
    "type twice": lambda rng: b"Content-Type: text/html; charset=utf-8",
    "bad date": lambda rng: b"Last-Modified: " + rng.choice((b"0", b"-1", b"now", b"Thu, 99 Xxx 20260 25:61:61 GMT")),
    "bad tag": lambda rng: b"ETag: " + rng.choice((b'"', b'W/"', b"abc", b'"a"b"', b"\xff", b'""')),
    "bad cookie": lambda rng: b"Set-Cookie: " + rng.choice((b"\xb3\xd2=1", b"=", b";", b"", b"a=b; expires=0", b"=;=;")),
    "bad link": lambda rng: b"Link: " + rng.choice((b"<", b"a; rel=next", b"<a>; rel", b"<a>, <b", b"\xff")),
    "bad age": lambda rng: rng.choice((b"Age: -1", b"Age: 9999999999999999999999", b"Retry-After: soon", b"Expires: 0")),
    "bad upgrade": lambda rng: rng.choice((b"Upgrade: h2,h2c", b"Connection: Upgrade", b"Alt-Svc: clear", b"Upgrade:")),
    "keep-alive": lambda rng: rng.choice((b"Connection: keep-alive", b"Keep-Alive: timeout=x", b"Connection:")),
    "trailer": lambda rng: b"Trailer: X-Checksum",
    "range": lambda rng: rng.choice((b"Content-Range: bytes 0-9/10", b"Accept-Ranges: none", b"Content-Range: x")),
    "disposition": lambda rng: rng.choice((b"Content-Disposition: inline", b"Content-Disposition: inline; filename=\xe9")),
    "location": lambda rng: rng.choice((b"Location: /elsewhere", b"Content-Location: /elsewhere", b"Location:")),
}  # fmt: skip

_STATUSES = {
    "HTTP/1.0": b"HTTP/1.0 200 OK", "HTTP/2": b"HTTP/2 200", "HTTP/2.0": b"HTTP/2.0 200 OK",
    "HTTP/1.2": b"HTTP/1.2 200 OK", "HTTP/3": b"HTTP/3 200 OK", "lower": b"http/1.1 200 OK",
    "mixed": b"Http/1.1 200 OK", "ICY": b"ICY 200 OK", "no reason": b"HTTP/1.1 200",
    "space, no reason": b"HTTP/1.1 200 ", "two spaces": b"HTTP/1.1  200 OK", "two spaces after": b"HTTP/1.1 200  OK",
    "tab": b"HTTP/1.1\t200 OK", "space before": b" HTTP/1.1 200 OK", "latin reason": b"HTTP/1.1 200 Tr\xe8s bien",
    "UTF-8 reason": "HTTP/1.1 200 好".encode(), "NUL in reason": b"HTTP/1.1 200 O\0K",
    "control in reason": b"HTTP/1.1 200 O\x01K", "long reason": b"HTTP/1.1 200 " + b"x" * 3_000,
    "colon in reason": b"HTTP/1.1 200 OK: yes", "joined": b"HTTP/1.1 200OK", "decimal": b"HTTP/1.1 200.0 OK",
    "leading zero": b"HTTP/01.1 200 OK", "HTTP/1": b"HTTP/1 200 OK", "HTTP/1.10": b"HTTP/1.10 200 OK",
    "two lines": b"HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK",
    **{str(code): b"HTTP/1.1 %d Yes" % code for code in (201, 202, 203, 206, 207, 226, 250, 299)},
}  # fmt: skip

_TYPES = (
    *("text/html", "TEXT/HTML", "text/html;", "text/html; charset", "text/html; charset=", "text/html;;charset=utf-8"),
    *(
        "text/html, text/html",
        "text/html; charset=utf-8, text/html",
        "text/html charset=utf-8",
        "text/html; charset=utf8",
    ),
    *("text/html; boundary=x", "application/xhtml+xml", "html", "text", "", "text/", "/", "unknown/unknown", "*/*"),
    *(
        "application/unknown",
        "text/htm",
        "text/xhtml",
        " text/html",
        "text/html\t",
        '"text/html"',
        'text/html; a="b;c"',
    ),
    *(
        "content/html",
        "text/html; charset=utf-8; charset=utf-16",
        "text/html;charset=UTF-8;",
        "none",
        "null",
        "text\\html",
    ),
    *("text/vnd.wap.wml", "application/vnd.wap.xhtml+xml", "text/html; version=1", "text/html; q=0.9"),
    *("application/xhtml", "text/html; charset=unicode"),
)


def _type(value: str, draft: Draft, rng: Rng) -> None:
    draft.kind = b"Content-Type: " + value.encode()


def _chunks(body: bytes, size: bytes = b"%x", end: bytes = b"\r\n", last: bytes = b"0\r\n\r\n") -> bytes:
    half = len(body) // 2
    return b"".join(size % len(part) + end + part + b"\r\n" for part in (body[:half], body[half:])) + last


def _lengths(*values: str) -> Callable[[bytes], tuple[list[bytes], bytes]]:
    """The lines of Content-Length with `values`, in which N is the length."""
    return lambda body: ([b"Content-Length: " + value.replace("N", str(len(body))).encode() for value in values], body)


def _chunked(*lines: bytes, **how: bytes) -> Callable[[bytes], tuple[list[bytes], bytes]]:
    return lambda body: ([line.replace(b"=N", b"%d" % len(body)) for line in lines], _chunks(body, **how))


_TE = b"Transfer-Encoding: chunked"
_FRAMINGS: dict[str, Callable[[bytes], tuple[list[bytes], bytes]]] = {
    "length twice": _lengths("N", "N"), "length list": _lengths("N, N"),
    "length list and twice": _lengths("N,N", "N"), "plus": _lengths("+N"), "zeros": _lengths("00N"),
    "unit": _lengths("N bytes"), "comma": _lengths("N,"), "semicolon": _lengths("N;"), "decimal": _lengths("N.0"),
    "quoted length": _lengths('"N"'), "spaces": _lengths("  N\t"), "empty length": _lengths(""),
    "text": _lengths("none"), "undefined": _lengths("undefined"), "negative": _lengths("-1"),
    "differing": _lengths("N", "5"), "hex": _lengths("0xN"), "equal with zeros": _lengths("N", "0N"),
    "none": _lengths(), "space in length": _lengths("1 N"), "chunked": _chunked(_TE),
    "upper": _chunked(b"Transfer-Encoding: CHUNKED"), "chunked twice": _chunked(_TE, _TE),
    "chunked list": _chunked(b"Transfer-Encoding: chunked, chunked"),
    "with length": _chunked(_TE, b"Content-Length: =N"), "length first": _chunked(b"Content-Length: =N", _TE),
    "identity, chunked": _chunked(b"Transfer-Encoding: identity, chunked"),
    "space before colon": _chunked(b"Transfer-Encoding : chunked"),
    "comma after": _chunked(b"Transfer-Encoding: chunked,"), "comma first": _chunked(b"Transfer-Encoding: ,chunked"),
    "parameter": _chunked(b"Transfer-Encoding: chunked;q=1"),
    "quoted coding": _chunked(b'Transfer-Encoding: "chunked"'),
    "identity": lambda body: ([b"Transfer-Encoding: identity", b"Content-Length: %d" % len(body)], body),
    "identity alone": lambda body: ([b"Transfer-Encoding: identity"], body),
    "empty coding": lambda body: ([b"Transfer-Encoding:", b"Content-Length: %d" % len(body)], body),
    "unknown coding": lambda body: ([b"Transfer-Encoding: none", b"Content-Length: %d" % len(body)], body),
    "chunked, but is not": lambda body: ([_TE, b"Content-Length: %d" % len(body)], body),
    "gzip, chunked": lambda body: ([b"Transfer-Encoding: gzip, chunked"], _chunks(gzip.compress(body))),
    "no last chunk": _chunked(_TE, last=b""), "no end": _chunked(_TE, last=b"0\r\n"),
    "trailers": _chunked(_TE, last=b"0\r\nX-A: b\r\n\r\n"),
    "odd trailers": _chunked(_TE, last=b"0\r\nnonsense\r\n\r\n"), "spaces after size": _chunked(_TE, size=b"%x  "),
    "zeros before size": _chunked(_TE, size=b"000%x"), "upper size": _chunked(_TE, size=b"%X"),
    "space before size": _chunked(_TE, size=b" %x"), "extension": _chunked(_TE, size=b"%x;a=b"),
    "odd extension": _chunked(_TE, size=b"%x;\xff\x01"), "LF": _chunked(_TE, end=b"\n"),
    "zeros at the end": _chunked(_TE, last=b"0000\r\n\r\n"), "0x": _chunked(_TE, size=b"0x%x"),
    "more behind": _chunked(_TE, last=b"0\r\n\r\nmore"),
    "more than the length": lambda body: ([b"Content-Length: %d" % len(body)], body + b"\r\n\r\n<!-- more -->"),
    "less than the length": lambda body: ([b"Content-Length: %d" % (len(body) + 9)], body),
}  # fmt: skip


def _framing(how: Callable[[bytes], tuple[list[bytes], bytes]], draft: Draft, rng: Rng) -> None:
    draft.framing = how


def _raw_deflate(body: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


def _as_it_is(body: bytes) -> bytes:
    return body


_NO_CODINGS = ("none", "utf-8", "binary", "aws-chunked", "chunked", "8bit", "text/html", "x-unknown", "UTF8,")
_CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress), "x-gzip": ("x-gzip", gzip.compress), "upper": ("GZIP", gzip.compress),
    "deflate": ("deflate", zlib.compress), "raw deflate": ("deflate", _raw_deflate), "br": ("br", brotli.compress),
    "spaces": (" gzip ", gzip.compress), "comma": ("gzip,", gzip.compress), "parameter": ("gzip; q=1", gzip.compress),
    "quoted": ('"gzip"', gzip.compress), "identity": ("identity", _as_it_is), "empty": ("", _as_it_is),
    "unnamed gzip": ("", gzip.compress), "gzip twice": ("gzip", lambda body: gzip.compress(gzip.compress(body))),
    "list": ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body))),
    "list, once": ("gzip, gzip", gzip.compress),
    "deflate, gzip": ("deflate, gzip", lambda body: gzip.compress(zlib.compress(body))),
    "gzip, is plain": ("gzip", _as_it_is), "br, is plain": ("br", _as_it_is),
    "deflate, is plain": ("deflate", _as_it_is), "zstd, is plain": ("zstd", _as_it_is),
    "gzip, is deflate": ("gzip", zlib.compress), "deflate, is gzip": ("deflate", gzip.compress),
    "br, is gzip": ("br", gzip.compress), "gzip, is br": ("gzip", brotli.compress),
    **{name: (name, _as_it_is) for name in _NO_CODINGS},
    "none, gzip": ("none, gzip", gzip.compress), "utf-8, is gzip": ("utf-8", gzip.compress),
    "gzip, more behind": ("gzip", lambda body: gzip.compress(body) + b"\0" * 9),
    "garbage behind": ("gzip", lambda body: gzip.compress(body) + b"garbage"),
    "two members": ("gzip", lambda body: gzip.compress(body[:99]) + gzip.compress(body[99:])),
    "no checksum": ("gzip", lambda body: gzip.compress(body)[:-8]),
    "wrong checksum": ("gzip", lambda body: gzip.compress(body)[:-8] + b"12345678"),
    "wrong size": ("gzip", lambda body: gzip.compress(body)[:-4] + b"\1\1\1\1"),
    "no zlib checksum": ("deflate", lambda body: zlib.compress(body)[:-4]),
}  # fmt: skip


def _coding(how: tuple[str, Callable[[bytes], bytes]], draft: Draft, rng: Rng) -> None:
    name, code = how
    draft.lines.append(b"Content-Encoding: " + name.encode())
    draft.body = code(draft.body)


_BEFORE = {
    "100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "103": b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n",
    "102": b"HTTP/1.1 102 Processing\r\n\r\n", "several": b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
    "199": b"HTTP/1.1 199 Hm\r\n\r\n", "blank line": b"\r\n", "LF": b"\n", "two blank lines": b"\r\n\r\n",
    "BOM": b"\xef\xbb\xbf", "100 with length": b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
}  # fmt: skip
_ENDS = {
    "LF": (b"\n", b"\n"), "LF, then CRLF": (b"\n", b"\r\n"), "CRLF, then LF": (b"\r\n", b"\n"), "CR": (b"\r", b"\r"),
    "space in the last": (b"\r\n", b" \r\n\r\n"), "CR CR LF": (b"\r\r\n", b"\r\r\n"),
}  # fmt: skip

# Location as it is sent, in which HOST stands for the host, and the targets of which one must be asked for.
_LOCATIONS: dict[str, tuple[bytes, tuple[bytes, ...]]] = {
    "absolute": (b"http://HOST/t", (b"/t",)), "path": (b"/t", (b"/t",)), "relative": (b"t", (b"/t",)),
    "dot": (b"./t", (b"/t",)), "dots": (b"../t", (b"/t",)), "no scheme": (b"//HOST/t", (b"/t",)),
    "upper": (b"HTTP://HOST/t", (b"/t",)), "port": (b"http://HOST:80/t", (b"/t",)),
    "empty port": (b"http://HOST:/t", (b"/t",)), "one slash": (b"http:/t", (b"/t",)),
    "no slash": (b"http:t", (b"/t",)), "three slashes": (b"http:///HOST/t", (b"/t",)),
    "user": (b"http://a@HOST/t", (b"/t",)), "dot after host": (b"http://HOST./t", (b"/t",)),
    "spaces": (b"  /t  ", (b"/t",)), "tab": (b"\t/t\t", (b"/t",)), "space inside": (b"/a t", (b"/a%20t", b"/a+t")),
    "tab inside": (b"/a\tt", (b"/at", b"/a%09t")), "query": (b"?a=1", (b"/?a=1",)), "fragment": (b"/t#x", (b"/t",)),
    "empty fragment": (b"/t#", (b"/t",)), "backslash": (b"\\t", (b"/t", b"/%5Ct", b"/\\t")),
    "backslashes": (b"http:\\\\HOST\\t", (b"/t",)),
    "UTF-8": ("/café".encode(), (b"/caf%C3%A9", b"/caf%c3%a9", "/café".encode())),
    "latin": (b"/caf\xe9", (b"/caf%E9", b"/caf%e9", b"/caf\xe9")),
    "latin query": (b"/t?q=caf\xe9", (b"/t?q=caf%E9", b"/t?q=caf%e9", b"/t?q=caf\xe9")),
    "tilde": (b"/%7Et", (b"/%7Et",)), "lower escape": (b"/caf%c3%a9", (b"/caf%c3%a9",)),
    "escaped slash": (b"/a%2fb", (b"/a%2fb",)), "two slashes": (b"/a//t", (b"/a//t",)),
    "dots inside": (b"/a/../t", (b"/t", b"/a/../t")), "bad escape": (b"/a%zz", (b"/a%zz", b"/a%25zz")),
    "bar": (b"/a|t", (b"/a|t", b"/a%7Ct")), "braces": (b"/{t}", (b"/{t}", b"/%7Bt%7D")),
    "brackets": (b"/t?a[]=1", (b"/t?a[]=1", b"/t?a%5B%5D=1")), "caret": (b"/a^t", (b"/a^t", b"/a%5Et")),
    "quote": (b"/a't", (b"/a't", b"/a%27t")), "double quote": (b'/a"t', (b'/a"t', b"/a%22t")),
    "angle": (b"/a<t>", (b"/a<t>", b"/a%3Ct%3E")), "semicolon": (b"/t;a=1", (b"/t;a=1",)),
    "colon": (b"/a:t", (b"/a:t",)), "at": (b"/@t", (b"/@t",)), "empty query": (b"/t?", (b"/t?", b"/t")),
    "ampersands": (b"/t?&&a=1&", (b"/t?&&a=1&",)), "order": (b"/t?b=1&a=2", (b"/t?b=1&a=2",)),
    "entity": (b"/t?a=1&amp;b=2", (b"/t?a=1&amp;b=2",)), "plus": (b"/a+t", (b"/a+t",)),
    "escaped letter": (b"/%74", (b"/%74",)), "double escape": (b"/a%2520t", (b"/a%2520t",)),
    "CR inside": (b"/t\rx", (b"/t", b"/t%0Dx", b"/tx")), "NUL inside": (b"/t\0", (b"/t", b"/t%00")),
    "control inside": (b"/t\x01", (b"/t%01", b"/t\x01")), "long": (b"/" + b"t" * 1_500, (b"/" + b"t" * 1_500,)),
    "upper host": (b"http://UPPER/t", (b"/t",)), "equal": (b"/t?a=b=c", (b"/t?a=b=c",)),
    "comma": (b"/t,u", (b"/t,u",)), "session": (b"/t;jsessionid=1A", (b"/t;jsessionid=1A", b"/t")),
}  # fmt: skip


def _location(how: tuple[bytes, tuple[bytes, ...]], draft: Draft, rng: Rng) -> None:
    value, draft.targets = how
    host = draft.host.encode()
    line = b"Location: " + value.replace(b"HOST", host).replace(b"UPPER", host.upper())
    draft.hop = [line]
    draft.hop_status = b"HTTP/1.1 " + rng.choice(
        (b"301 Moved", b"302 Found", b"303 See", b"307 Temporary", b"308 Permanent")
    )


_HOPS: dict[str, tuple[bytes, list[bytes]]] = {
    "lower name": (b"302 Found", [b"location: /t"]), "space before colon": (b"302 Found", [b"Location : /t"]),
    "no space": (b"302 Found", [b"Location:/t"]), "twice": (b"302 Found", [b"Location: /t", b"Location: /t"]),
    "empty first": (b"302 Found", [b"Location:", b"Location: /t"]), "300": (b"300 Choices", [b"Location: /t"]),
    "odd line": (b"302 Found", [b"nonsense", b"Location: /t"]),
    "body type": (b"302 Found", [b"Content-Type: \xff", b"Location: /t"]),
    "coded": (b"302 Found", [b"Content-Encoding: gzip", b"Location: /t"]), "no reason": (b"302", [b"Location: /t"]),
    "folded": (b"302 Found", [b"Location:\r\n /t"]),
    "refresh, too": (b"302 Found", [b"Refresh: 9; url=/u", b"Location: /t"]),
    "bad cookie": (b"302 Found", [b"Set-Cookie: \xff", b"Location: /t"]),
    "lengths": (b"302 Found", [b"Content-Length: 0", b"Location: /t"]),
}  # fmt: skip


def _hop(how: tuple[bytes, list[bytes]], draft: Draft, rng: Rng) -> None:
    status, draft.hop = how
    draft.hop_status, draft.targets = b"HTTP/1.1 " + status, (b"/t",)


# Set-Cookie, and what the Cookie field must then contain.
_COOKIES: dict[str, tuple[bytes, bytes]] = {
    "plain": (b"s=1; path=/", b"s=1"), "equal signs": (b"s=a==; path=/", b"s=a=="),
    "quotes": (b's="a b"; path=/', b's="a b"'), "space": (b"s=a b; path=/", b"s=a b"),
    "comma": (b"s=a,b; path=/", b"s=a,b"), "JSON": (b's={"a":1}; path=/', b's={"a":1}'),
    "escape": (b"s=a%3Db; path=/", b"s=a%3Db"), "no path": (b"s=1", b"s=1"),
    "domain": (b"s=1; domain=HOST; path=/", b"s=1"), "dot domain": (b"s=1; domain=.HOST; path=/", b"s=1"),
    "upper domain": (b"s=1; DOMAIN=UPPER; Path=/", b"s=1"),
    "date with dashes": (b"s=1; expires=Fri, 01-Jan-2038 00:00:00 GMT; path=/", b"s=1"),
    "short year": (b"s=1; expires=Fri, 01-Jan-38 00:00:00 GMT; path=/", b"s=1"),
    "odd date": (b"s=1; expires=2038; path=/", b"s=1"),
    "age wins": (b"s=1; max-age=900; expires=Thu, 01 Jan 1970 00:00:00 GMT; path=/", b"s=1"),
    "bad age": (b"s=1; max-age=x; path=/", b"s=1"), "latin": (b"s=caf\xe9; path=/", b"s=caf\xe9"),
    "UTF-8": ("s=é; path=/".encode(), "s=é".encode()), "bracket name": (b"s[1]=a; path=/", b"s[1]=a"),
    "dot name": (b"s.t=a; path=/", b"s.t=a"), "colon name": (b"s:t=a; path=/", b"s:t=a"),
    "at name": (b"s@t=a; path=/", b"s@t=a"), "slash name": (b"s/t=a; path=/", b"s/t=a"),
    "brace name": (b"s{t}=a; path=/", b"s{t}=a"), "space name": (b"s t=a; path=/", b"s t=a"),
    "latin name": (b"\xe9=a; path=/", b"\xe9=a"), "empty value": (b"s=; path=/", b"s="),
    "no equal sign": (b"token; path=/", b"token"), "spaces around": (b" s = 1 ; path=/", b"s=1"),
    "semicolons": (b"s=1;; path=/;;", b"s=1"), "no spaces": (b"s=1;path=/;httponly", b"s=1"),
    "same site": (b"s=1; path=/; SameSite=Lax; HttpOnly", b"s=1"),
    "unknown attribute": (b"s=1; path=/; foo; bar=baz; priority=high", b"s=1"),
    "relative path": (b"s=1; path=x", b"s=1"), "empty path": (b"s=1; path=", b"s=1"),
    "empty domain": (b"s=1; domain=; path=/", b"s=1"),
    "long": (b"s=" + b"x" * 3_000 + b"; path=/", b"s=" + b"x" * 3_000),
    "reserved name": (b"path=1; path=/", b"path=1"), "dollar": (b"$s=1; path=/", b"$s=1"),
    "open quote": (b's="a; path=/', b's="a'), "tab": (b"s=a\tb; path=/", b"s=a\tb"),
    "version": (b"s=1; Version=1; path=/", b"s=1"), "backslash": (b's="a\\"b"; path=/', b's="a\\"b"'),
    "capitals": (b"S=1; PATH=/; EXPIRES=FRI, 01 JAN 2038 00:00:00 GMT", b"S=1"),
    "two fields": (b"r=0; path=/\r\nSet-Cookie: s=1; path=/", b"s=1"),
    "replaced": (b"s=0; path=/\r\nSet-Cookie: s=1; path=/", b"s=1"),
}  # fmt: skip


def _cookie(how: tuple[bytes, bytes], draft: Draft, rng: Rng) -> None:
    value, draft.cookie = how
    host = draft.host.encode()
    value = value.replace(b"HOST", host).replace(b"UPPER", host.upper())
    draft.at_front = rng.random() < 0.5
    draft.targets = () if draft.at_front else (b"/t",)
    draft.hop = [b"Set-Cookie: " + value, b"Location: " + (b"/" if draft.at_front else b"/t")]


def _status(line: bytes, draft: Draft, rng: Rng) -> None:
    draft.status = line


def _before(data: bytes, draft: Draft, rng: Rng) -> None:
    draft.before = data


def _ends(ends: tuple[bytes, bytes], draft: Draft, rng: Rng) -> None:
    draft.ends = ends


LAYERS: dict[str, dict[str, Change]] = {
    "text": {how: partial(_text, how) for how in _DECLARED},
    "type": {value or "empty": partial(_type, value) for value in _TYPES},
    "coding": {name: partial(_coding, how) for name, how in _CODINGS.items()},
    "framing": {name: partial(_framing, how) for name, how in _FRAMINGS.items()},
    "field": {name: partial(_field, line) for name, line in _FIELDS.items()},
    "status": {name: partial(_status, line) for name, line in _STATUSES.items()},
    "before": {name: partial(_before, data) for name, data in _BEFORE.items()},
    "ends": {name: partial(_ends, ends) for name, ends in _ENDS.items()},
    "hop": {
        **{f"to {name}": partial(_location, how) for name, how in _LOCATIONS.items()},
        **{name: partial(_hop, how) for name, how in _HOPS.items()},
        **{f"cookie {name}": partial(_cookie, how) for name, how in _COOKIES.items()},
    },
}

NEEDS_TEXT = frozenset(("text", "type"))


@dataclass(frozen=True)
class Case:
    """`odd`: the names of its oddities, with their layers. `answer`: the response to a path and a Cookie field. `words`:
    what its page says, nothing for a sitemap. `needs_text`: it counts as read only if its characters are right."""

    number: int
    odd: frozenset[str]
    answer: Callable[[bytes, bytes], bytes]
    words: tuple[str, ...] = ()
    needs_text: bool = False

    @property
    def host(self) -> str:
        return f"h{self.number}.test"


def page_case(number: int, odd: frozenset[str], seed: int) -> Case:
    """The page with these oddities, such as {"coding: none"}."""
    draft = Draft(number)
    draft.words.append(f"Page {number} x")
    layers = {name.partition(": ")[0]: name.partition(": ")[2] for name in odd}
    rng = Rng(f"{seed} {number}")
    if "text" not in layers:
        draft.body = _page(draft).encode()
    for layer, changes in LAYERS.items():
        if layer in layers:
            changes[layers[layer]](draft, rng)
    draft.words.append(f"last Page {number} x")
    return Case(number, odd, draft.answer, tuple(draft.words), not NEEDS_TEXT.isdisjoint(layers))


# What stands between two entries of a sitemap.
_BETWEEN = {
    "ampersand": "<url><loc>http://HOST/find?kind=shoe&size=42</loc></url>\n",
    "entity": "<url><loc>http://HOST/caf&eacute;</loc></url>\n",
    "nbsp": "<url><loc>http://HOST/x</loc><title>A&nbsp;B</title></url>\n",
    "control": "<url><loc>http://HOST/x\x02y</loc></url>\n", "NUL": "<url><loc>http://HOST/x\0y</loc></url>\n",
    "less than": "<url><loc>http://HOST/x</loc><note>a < b</note></url>\n",
    "unclosed url": "<url><loc>http://HOST/x</loc>\n", "unclosed loc": "<url><loc>http://HOST/x</url>\n",
    "bad UTF-8": "<url><loc>http://HOST/caf\udce9</loc></url>\n", "surplus end": "</url>\n",
    "surplus ends": "</div></p>\n", "empty loc": "<url><loc></loc></url><url><loc/></url>\n",
    "no loc": "<url></url>\n", "HTML": "<br><p>Hello<img src=x>\n",
    "attribute without value": "<url checked><loc>http://HOST/x</loc></url>\n",
    "bad attribute": '<url a="<" b=c><loc>http://HOST/x</loc></url>\n', "quotes": '<url a="b>\n',
    "comment": "<!-- a -- b -->\n", "open comment": "<!-- a ->\n", "instruction": "<?php echo 1 ?>\n",
    "bad instruction": "<?>\n", "CDATA end": "]]>\n", "open CDATA end": "<![CDATA[ x ]] >\n",
    "bad reference": "&#0;&#xFFFFFF;&;\n", "text": "Warning: Division by zero in x.php on line 3\n",
    "not a URL": "<url><loc>not a url</loc></url>\n",
    "two locs": "<url><loc>http://HOST/x</loc><loc>http://HOST/y</loc></url>\n",
    "markup in loc": "<url><loc><b>http://HOST/x</b></loc></url>\n", "declaration": '<?xml version="1.0"?>\n',
    "doctype": "<!DOCTYPE html>\n", "nested urlset": "<urlset>\n", "end of root": "</urlset>\n",
}  # fmt: skip


_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
_BEFORE_ROOT = {
    "BOM": "\ufeff" + _DECLARATION, "two BOMs": "\ufeff\ufeff" + _DECLARATION, "blank line": "\n" + _DECLARATION,
    "blank lines": "\r\n\r\n  " + _DECLARATION, "no declaration": "",
    "comment first": "<!-- made by x -->\n" + _DECLARATION,
    "words first": "Warning: include(x.php) failed\n" + _DECLARATION,
    "HTML first": "<br />\n<b>Notice</b>: x<br />\n" + _DECLARATION, "doctype": _DECLARATION + "<!DOCTYPE urlset>\n",
    "doctype with entity": _DECLARATION + "<!DOCTYPE urlset [<!ELEMENT urlset ANY>]>\n",
    "style": _DECLARATION + '<?xml-stylesheet type="text/xsl" href="/main-sitemap.xsl"?>\n',
    "wrong encoding": '<?xml version="1.0" encoding="UTF-16"?>\n',
    "unknown encoding": '<?xml version="1.0" encoding="utf8mb4"?>\n', "version": '<?xml version="1.1"?>\n',
    "odd version": '<?xml version="2.0"?>\n', "single quotes": "<?xml version='1.0' encoding='utf-8'?>\n",
    "two declarations": _DECLARATION * 2, "NUL first": "\0" + _DECLARATION,
    "upper declaration": '<?XML version="1.0"?>\n', "empty encoding": '<?xml version="1.0" encoding=""?>\n',
    "comment": _DECLARATION + "<!-- a -- b -->\n", "no version": '<?xml encoding="utf-8"?>\n',
}  # fmt: skip


_NAMESPACE = ' xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


@dataclass(frozen=True)
class _Sitemap:
    """The parts of a sitemap. `entry`: of each URL, `between`: once, at a random place, `finish`: changes its bytes."""

    before: str = _DECLARATION
    opening: str = f"<urlset{_NAMESPACE}>\n"
    entry: str = "<url><loc>URL</loc></url>\n"
    between: str = ""
    closing: str = "</urlset>\n"
    kind: str = "application/xml"
    encoding: str = "utf-8"
    finish: Callable[[bytes, Rng], bytes] = lambda document, rng: document

    def document(self, host: str, rng: Rng) -> bytes:
        entries = [self.entry.replace("URL", f"http://{host}/p{number}") for number in range(9)]
        entries.insert(rng.randint(1, 8), self.between.replace("HOST", host))
        text = "".join((self.before, self.opening, *entries, self.closing))
        return self.finish(text.encode(self.encoding, "surrogateescape"), rng)


def _splattered(document: bytes, rng: Rng) -> bytes:
    """With some random bytes behind the first entry."""
    at = rng.randint(document.index(b"</url>"), document.rindex(b"<url>"))
    return document[:at] + _bytes(rng, 1, 5, _ANY) + document[at:]


SITEMAPS = {
    "sound": _Sitemap(),
    **{name: _Sitemap(between=between) for name, between in _BETWEEN.items()},
    **{f"{name} before": _Sitemap(before=before) for name, before in _BEFORE_ROOT.items()},
    **{
        f"type {kind or 'none'}": _Sitemap(kind=kind)
        for kind in ("text/html", "text/plain", "text/css", "image/png", "")
    },
    "no namespace": _Sitemap(opening="<urlset>\n"),
    "other namespace": _Sitemap(opening='<urlset xmlns="http://www.google.com/schemas/sitemap/0.84">\n'),
    "prefix": _Sitemap(
        opening='<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9">\n',
        entry="<s:url><s:loc>URL</s:loc></s:url>\n",
        closing="</s:urlset>",
    ),
    "unbound prefix": _Sitemap(
        entry="<url><loc>URL</loc><image:image><image:loc>/i.png</image:loc></image:image></url>\n"
    ),
    "upper": _Sitemap(opening="<URLSET>", entry="<Url><LOC>URL</LOC></Url>\n", closing="</URLSET>"),
    "CDATA": _Sitemap(entry="<url><loc><![CDATA[URL]]></loc></url>\n"),
    "white space": _Sitemap(entry="<url>\n<loc>\n  URL\n\t</loc>\n</url>\n"),
    "attribute": _Sitemap(entry="<url><loc type=x>URL</loc></url>\n"),
    "bad dates": _Sitemap(
        entry="<url><loc>URL</loc><lastmod>yesterday & more</lastmod><priority>high</priority></url>\n"
    ),
    "not closed": _Sitemap(closing=""),
    "cut": _Sitemap(closing="<url><lo"),
    "more behind": _Sitemap(closing="</urlset><script>var x = 1 < 2 && 3;</script>\n<!-- cached -->\0"),
    "second root": _Sitemap(closing="</urlset><urlset></urlset>"),
    "utf-16": _Sitemap('<?xml version="1.0" encoding="utf-16"?>\n', encoding="utf-16"),
    "latin-1": _Sitemap('<?xml version="1.0" encoding="iso-8859-1"?>\n', between="<!-- \xe9 -->", encoding="latin-1"),
    "text": _Sitemap("", "", "URL\n", "", "", "text/plain"),
    "text with notes": _Sitemap("", "", "URL\n", "# ours\n\n  \nnot a url\n", "", "text/plain"),
    "text with BOM": _Sitemap("\ufeff", "", "URL\r\n", "", "", "text/plain"),
    "gzip": _Sitemap(finish=lambda document, rng: gzip.compress(document)),
    "cut gzip": _Sitemap(finish=lambda document, rng: gzip.compress(document)[:-8]),
    "any bytes": _Sitemap(finish=_splattered),
}


def sitemap_case(number: int, name: str, seed: int) -> Case:
    """A host whose robots.txt names one of `SITEMAPS`."""
    host, chosen = f"h{number}.test", SITEMAPS[name]
    document = chosen.document(host, Rng(f"{seed} {number}"))
    kind = f"Content-Type: {chosen.kind}\r\n".encode() if chosen.kind else b""
    robots = f"Sitemap: http://{host}/sitemap.xml\n".encode()
    answers = {
        b"/": _sound(b"Content-Type: text/html\r\n", b"<title>front</title>"),
        b"/robots.txt": _sound(b"Content-Type: text/plain\r\n", robots),
        b"/sitemap.xml": _sound(kind, document),
    }
    return Case(number, frozenset((f"sitemap: {name}",)), lambda path, cookie: answers.get(path, NOT_FOUND))


def _sound(fields: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (fields, len(body), body)


def cases(number: int, seed: int) -> Iterator[Case]:
    """So many cases: first each oddity by itself, then random sets of two or three, and sitemaps."""
    single = [f"{layer}: {name}" for layer, changes in LAYERS.items() for name in changes]
    rng, at = Rng(seed), 0
    for name in SITEMAPS:
        yield sitemap_case(at, name, seed)
        at += 1
    for name in single:
        yield page_case(at, frozenset((name,)), seed)
        at += 1
    while at < number:
        if rng.random() < 0.1:
            yield sitemap_case(at, rng.choice(list(SITEMAPS)), seed)
        else:
            layers = rng.sample(list(LAYERS), rng.choice((1, 2, 2, 3)))
            if NEEDS_TEXT.issubset(layers):  # the type would replace what declares the encoding
                layers.remove("type")
            yield page_case(at, frozenset(f"{layer}: {rng.choice(list(LAYERS[layer]))}" for layer in layers), seed)
        at += 1
