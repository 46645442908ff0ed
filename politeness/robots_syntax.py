"""Parses a robots.txt: into records, into the groups that concern one crawler, and paths into a form to compare. Pure.

Before a comparison, both sides are brought into one form (RFC 9309 2.2.2): escapes of characters that need none are
decoded, and bytes that need one are encoded. By that section, reserved characters equal their escapes. It encodes them;
here the common form is the plain character, so that the length of a rule is what its author sees, and `Disallow: /a,b` is
no longer than `Disallow: /a/b`. A character that delimits parts of a URL differs from its escape: `/` in the path, `?`
before the query, `=` and `&` within it, and `*` and `$`, which have a meaning in rules (2.2.3).

No regular expression here has nested or adjacent repetitions, so each takes linear time.

A robots.txt may have 512 KiB, mostly groups for other crawlers, comments, and rules that other rules replace. An `Excerpt`
holds only what a decision can depend on, in a form that can be stored: `robots_match.Rules` built from it decides about
every URL as the whole file would.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Final, Literal

import msgspec
from protego import Protego, RequestRate

from politeness.usage import offer_url


class BadRecord(Exception):
    """Raised when stored bytes are not a robots.txt record of this version. The file has to be fetched again."""


MAX_BODY: Final = 512 * 1024
"""Maximum number of bytes of a robots.txt that are read. RFC 9309 2.5 requires at least 500 KiB."""

MAX_LINE: Final = 8 * 2083 - 1
"""Bytes of a line that are read. The rest of the line is ignored. Google's parser has the same limit: eight times the
longest URL that browsers accepted, less the byte that ends a C string."""

MAX_EXTENSIONS: Final = 16
"""Number of Crawl-delay and of Request-rate lines of a group that are read. Each takes longer to parse than a rule."""

MAX_SITEMAPS: Final = 10_000
"""The most Sitemap records that are read: as many as the links of a page, by default."""

MAX_SITEMAP_BYTES: Final = 2_048
"""The longest Sitemap value that is read: the limit that sitemaps.org sets for URLs."""

MAX_LICENSES: Final = 16
"""The most License records that are read. Each line of the output has all of them."""

Field = Literal["agent", "allow", "disallow", "delay", "rate", "sitemap", "usage", "signal", "license"]

_FIELDS: Final[dict[bytes, Field]] = {
    b"user-agent": "agent",
    b"useragent": "agent",
    b"user agent": "agent",
    b"allow": "allow",
    b"disallow": "disallow",
    # Misspellings that Google's parser accepts, too. Their authors want to keep crawlers out.
    b"dissallow": "disallow",
    b"dissalow": "disallow",
    b"disalow": "disallow",
    b"diasllow": "disallow",
    b"disallaw": "disallow",
    b"crawl-delay": "delay",
    b"crawl delay": "delay",
    b"request-rate": "rate",
    b"request rate": "rate",
    b"sitemap": "sitemap",
    b"sitemaps": "sitemap",
    b"site-map": "sitemap",
    b"content-usage": "usage",
    b"content-signal": "signal",
    b"content-signals": "signal",
    b"license": "license",
}
_FIRST: Final = frozenset(b"\t\v\f ") | {byte for name in _FIELDS for byte in (name[0], name.upper()[0])}
"""The first bytes of records. Lines that begin otherwise, such as comments, are skipped without parsing."""


def is_product_token(text: str) -> bool:
    """Whether `text` is a valid product token: letters, `-` and `_` only (RFC 9309 2.2.1)."""
    return re.fullmatch(r"[A-Za-z_-]+", text) is not None


def cut_body(body: bytes, max_bytes: int = MAX_BODY) -> bytes:
    """The complete lines within the first `max_bytes` bytes of `body`.

    A body of exactly `max_bytes` may have been cut before, so its last line is removed if it has no end: half a path
    would deny or allow more than its author wrote. An incomplete first line is kept.
    """
    if len(body) < max_bytes:
        return body
    body = body[:max_bytes]
    end = max(body.rfind(b"\n"), body.rfind(b"\r")) + 1
    return body[:end] if end else body


class Section:
    """All groups of one name, merged (RFC 9309 2.2.1)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = False  # a group of this name exists, perhaps without rules
        self.rules: list[tuple[int, Field, bytes]] = []
        self.delays: list[str] = []
        self.rates: list[str] = []
        self.usage: dict[tuple[bytes, bool], int] = {}  # value, whether a Content-Signal -> the first line with it


class GroupReader:
    """Collects the groups of one product token and those of `*`. Only at the end of the file is it known which apply."""

    def __init__(self, product_token: str) -> None:
        self._token = product_token.lower()
        self._own = Section(product_token)
        self._any = Section("*")
        self._in_rules = False
        self._current: list[Section] = []  # those that the group being read belongs to
        self.sitemaps: dict[str, None] = {}  # in the order of the file
        self.licenses: dict[str, None] = {}

    def section(self) -> Section | None:
        """The groups that apply: those of the token, else those of `*`, else None (RFC 9309 2.2.1)."""
        return self._own if self._own.seen else self._any if self._any.seen else None

    def take(self, line: int, field: Field, value: bytes) -> None:
        if field == "agent":
            self._take_agent(value)
        elif field == "sitemap":
            if len(self.sitemaps) < MAX_SITEMAPS and len(value) <= MAX_SITEMAP_BYTES:
                self.sitemaps[readable(value)] = None
        elif field == "usage":
            self._in_rules = True  # a rule like the two below (draft-ietf-aipref-attach-05 3)
            for section in self._current if value else ():
                section.usage.setdefault((value, False), line)
        elif field == "signal":
            for section in self._current if value else ():
                section.usage.setdefault((value, True), line)
        elif field == "license":
            # RSL 1.0, "Adding RSL to robots.txt": the absolute URL of a licence, of no group.
            if (
                len(self.licenses) < MAX_LICENSES
                and len(value) <= MAX_SITEMAP_BYTES
                and (url := offer_url(readable(value)))
            ):
                self.licenses[url] = None
        elif field in ("allow", "disallow"):
            # Only rules end the list of user agents. Other records must not (RFC 9309 2.2.4).
            self._in_rules = True
            for section in self._current if value else ():
                section.rules.append((line, field, value))
        else:
            for section in self._current:
                values = section.delays if field == "delay" else section.rates
                # Protego would take characters such as U+00A0 for white space, which in a robots.txt is only ASCII.
                if len(values) < MAX_EXTENSIONS and value.isascii():
                    values.append(readable(value))

    def _take_agent(self, value: bytes) -> None:
        if self._in_rules:
            self._in_rules = False
            self._current = []
        name = _agent_name(value)
        section = self._own if name == self._token else self._any if name == "*" else None
        if section is not None and section not in self._current:
            section.seen = True
            self._current.append(section)


_NAME: Final = re.compile(rb"[A-Za-z0-9_-]+")


def _agent_name(value: bytes) -> str:
    """The product token at the start of a User-agent value in lower case, "*", or "" if there is none.

    A version or words after the token (`Bot/1.0`, `Bot of ours`) are not part of it. Digits are, although the grammar has
    none, because otherwise a group for `Bot2` would apply to `Bot`.
    """
    if value == b"*" or (value[:1] == b"*" and value[1:2].isspace()):
        return "*"
    name = _NAME.match(value)
    return name[0].decode("ascii").lower() if name else ""


def lines_of(body: bytes) -> list[bytes]:
    """The lines of a file, which end with CR, LF or CRLF (RFC 9309 2.2)."""
    return utf8(body).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def records(lines: Iterable[bytes], first: int = 1) -> Iterator[tuple[int, Field, bytes]]:
    """The known records in `lines`, with their line numbers. `first`: number of the first line."""
    for number, line in enumerate(lines, first):
        if not line or line[0] not in _FIRST:
            continue
        record = line[:MAX_LINE].partition(b"#")[0].strip()
        name, _, value = record.partition(b":")
        field = _FIELDS.get(name.strip().lower())
        if field is None or name == record:
            # `Disallow /x` and `Sitemap http://host/x` are not in the grammar, but two words without a colon are clear.
            words = record.split()
            if len(words) != 2:
                continue
            field, value = _FIELDS.get(words[0].lower()), words[1]
        if field is not None:
            yield number, field, value.strip()


def utf8(body: bytes) -> bytes:
    """`body` in UTF-8 without byte order mark (RFC 9309 2.2.2 permits UTF-16, RFC 8259 8.1 ignoring the mark)."""
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", "replace").encode("utf-8")
    for length in (3, 2, 1):
        if body.startswith(codecs.BOM_UTF8[:length]):
            return body[length:]
    return body


def readable(value: bytes) -> str:
    """A value as text. Bytes that are not UTF-8 are replaced."""
    return value.decode("utf-8", "replace")


def comparable(url: str) -> str:
    """The path and query of `url` in the form in which they are compared (RFC 9309 2.2.2). Accepts any text."""
    if plain := _AS_IT_IS.fullmatch(url):
        return plain[1]
    origin = _ORIGIN.match(url)
    path = url[origin.end() :] if origin else url
    if not path.startswith("/"):
        path = "/" + path
    return _normal(path.partition("#")[0].encode("utf-8", "surrogatepass"), _IN_URL)


_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"  # RFC 3986 2.3
_INTERCHANGEABLE = ":@!'()+,;[]"  # reserved, but equal to their escapes (module docstring)
_DIVIDERS = "/?=&"  # reserved, and not equal to their escapes

_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_AS_IT_IS: Final = re.compile(f"(?:{_ORIGIN.pattern})?(/[{re.escape(_UNRESERVED + _INTERCHANGEABLE + _DIVIDERS)}]*)")
_RULE_AS_IT_IS: Final = re.compile(f"[{re.escape(_UNRESERVED + _INTERCHANGEABLE + _DIVIDERS)}*]*".encode())


def _to_change(kept: str) -> re.Pattern[bytes]:
    """A pattern for escapes, and for bytes that must be encoded. A `%` that begins no escape stays."""
    return re.compile(b"%[0-9A-Fa-f]{2}|[^" + re.escape(kept).encode() + b"]")


_IN_URL: Final = _to_change(_UNRESERVED + _INTERCHANGEABLE + _DIVIDERS + "%")
_IN_RULE: Final = _to_change(_UNRESERVED + _INTERCHANGEABLE + _DIVIDERS + "%*")


def _forms(decoded: str) -> dict[bytes, bytes]:
    """The replacement for each escape and each byte: the character itself if it is in `decoded`, otherwise its escape."""
    forms = {}
    for byte in range(256):
        escape = b"%%%02X" % byte
        form = bytes([byte]) if chr(byte) in decoded else escape
        forms[bytes([byte])] = escape
        for spelling in {escape, escape.lower(), b"%%%x%X" % divmod(byte, 16), b"%%%X%x" % divmod(byte, 16)}:
            forms[spelling] = form
    return forms


_PATH_FORMS: Final = _forms(_UNRESERVED + _INTERCHANGEABLE)
_QUERY_FORMS: Final = _forms(
    _UNRESERVED + _INTERCHANGEABLE + "/?"
)  # RFC 3986 3.4: they delimit nothing after the first `?`


def comparable_rule(path: bytes) -> str:
    """The path of a rule in the form in which it is compared. `*`, and a `$` at its end, keep their meaning."""
    plain = path.removesuffix(b"$")
    form = plain.decode("ascii") if _RULE_AS_IT_IS.fullmatch(plain) else _normal(plain, _IN_RULE)
    return form + "$" if path.endswith(b"$") else form


def _normal(data: bytes, to_change: re.Pattern[bytes]) -> str:
    path, mark, query = data.partition(b"?")
    path = to_change.sub(lambda match: _PATH_FORMS[match[0]], path)
    query = to_change.sub(lambda match: _QUERY_FORMS[match[0]], query)
    return (path + mark + query).decode("ascii")


# The excerpt

SLICE: Final = 1_000
"""Lines or rules that are processed before other tasks get their turn: 1 to 3 ms."""

_COMPRESSION: Final = 1
"""Higher levels of zlib save no more than 2 % of such data, and take up to 6 times as long."""


class Rule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An Allow or Disallow line: its number in the file, from 1, and its path as written."""

    line: int
    is_allow: bool
    path: bytes


class UsageRule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A Content-Usage line, or a Content-Signal line: its number in the file, from 1, and its value as written."""

    line: int
    value: bytes
    is_signal: bool = False


class Excerpt(msgspec.Struct, frozen=True, array_like=True):
    """What one robots.txt says to one product token.

    `group`: name of the group that applies: the product token, `*`, or None if no group applies. `rules`: its rules; no two
    have the same comparable path. `crawl_delay`: the longest Crawl-delay of the group in seconds, or None. `request_rate`:
    seconds per request by its slowest Request-rate, times of day ignored, or None. `sitemaps`: the Sitemap URLs as written,
    of all groups, at most `robots_syntax.MAX_SITEMAPS`. `usage`: the different Content-Usage lines of the group.
    `licenses`: licence offers (RSL), of all groups.
    """

    group: str | None
    rules: list[Rule]
    crawl_delay: float | None
    request_rate: float | None
    sitemaps: tuple[str, ...]
    usage: list[UsageRule] = []
    licenses: tuple[str, ...] = ()

    def pack(self) -> bytes:
        return zlib.compress(_encoder.encode(self), _COMPRESSION)

    @staticmethod
    def unpack(packed: bytes) -> Excerpt:
        """Raises BadRecord if `packed` was not made by `pack`."""
        try:
            return _decoder.decode(zlib.decompress(packed))
        except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadRecord(f"robots.txt excerpt is damaged: {error}") from error


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Excerpt)


def extract(body: bytes, product_token: str) -> Generator[None, None, Excerpt]:
    """Extract what `body` says to the crawler that calls itself `product_token` (see `robots_syntax.is_product_token`).

    Accepts any bytes, and skips what cannot be parsed, as RFC 9309 2.3.1.5 asks. The generator returns the excerpt. It
    yields after every few milliseconds of work: 500 KiB of short lines may take 0.3 s.
    """
    reader = GroupReader(product_token)
    lines = lines_of(body)
    for at in range(0, len(lines), SLICE):
        if at:
            yield
        for line, field, value in records(lines[at : at + SLICE], at + 1):
            reader.take(line, field, value)
    section = reader.section()
    if section is None:
        return Excerpt(None, [], None, None, tuple(reader.sitemaps), licenses=tuple(reader.licenses))
    rules: dict[str, Rule] = {}
    for number, (line, field, value) in enumerate(section.rules):
        if number and number % SLICE == 0:
            yield
        rule = Rule(line, field == "allow", value)
        path = comparable_rule(value)
        known = rules.setdefault(path, rule)
        if rule.is_allow and not known.is_allow:  # of equal paths Allow counts (RFC 9309 2.2.2), otherwise the first
            rules[path] = rule
    delay, rate = _longest_delay(section.delays), _slowest_rate(section.rates)
    usage = [UsageRule(line, value, is_signal) for (value, is_signal), line in section.usage.items()]
    return Excerpt(
        section.name, list(rules.values()), delay, rate, tuple(reader.sitemaps), usage, tuple(reader.licenses)
    )


def _longest_delay(values: Iterable[str]) -> float | None:
    delays = (Protego.parse(f"User-agent: *\nCrawl-delay: {value}").crawl_delay("*") for value in values)
    return max((delay for delay in delays if delay is not None), default=None)


def _slowest_rate(values: Iterable[str]) -> float | None:
    """The most seconds per request in Request-rates. One for some hours applies all day, which needs no time zone."""
    rates = (Protego.parse(f"User-agent: *\nRequest-rate: {value}").request_rate("*") for value in values)
    return max((_seconds_per_request(rate) for rate in rates if rate is not None), default=None)


def _seconds_per_request(rate: RequestRate) -> float:
    try:
        return rate.seconds / rate.requests
    except OverflowError:  # Protego reads numbers of any length
        return float("inf") if rate.seconds > rate.requests else 0.0
