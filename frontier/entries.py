"""How Redis stores a queued URL: as one short text.

An entry is a header of six characters and the URL. If the crawl stores where URLs were found, a space follows, which no
canonical URL contains, and then the URL of that page. If a program has given the URL a tag, this follows in the same
place, after a tab: a label, a request that is no plain GET, and a payload. If redirects led to the URL, the mark of the URL
with which they began follows, after another tab. The entry of a page that was visited before ends in another space and the
state of its visits (`crawler.scope.next_visit`). The header holds how the URL was shortened (the key contains the domain,
so most URLs are stored without scheme and host), its depth, its tries, its redirect hops, and how often it was taken back.
`lua/expire_leases.lua` increments this last number, so its position is part of the key schema.

    s 02 0 0 0 /docs/index.html
    | |  | | |
    | |  | | +-- times taken back after its lease expired, one hexadecimal digit
    | |  | +---- redirect hops from the last link, one digit of those in HOPS
    | |  +------ tries so far, one hexadecimal digit
    | +--------- links from the seed, two hexadecimal digits
    +----------- how the URL begins, see _BEGINNINGS; in upper case: it is a page requisite
"""

from __future__ import annotations

import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec

MAX_DEPTH = 255
MAX_TRIES = 15
HOPS = "0123456789abcdefghijk"  # by number; browsers follow twenty

MOST_PRIORITY = 1e11
"""Priorities lie between minus this and this. Known pages in a queue have higher ones (`lua/known_pages.lua`)."""

QUEUED_VISIT = 1e12
"""Added to the priority of a known page while it is queued, as in `lua/known_pages.lua`."""

GUESSED = "?"
"""The chain of a seed for which https was guessed, because it had no scheme."""

GUESSED_SITEMAP = "?s"
"""The chain of a sitemap that nothing names."""

MAX_PAYLOAD = 16_384
"""Bytes of a payload as JSON, with each space as six characters. Redis keeps it as long as the URL is queued."""

MAX_REQUEST = 32_768
"""Bytes of a request as it is stored. With a payload and two URLs, it fits into the record of a known page (64 KiB)."""

_REQUEST = "~"
"""Begins a request in a tag. No label has it, and no request the mark after it."""

_SENT = "~!"
"""Begins a request that was sent, or was about to be, and must not be sent again."""

_LABEL = re.compile(r"[A-Za-z0-9_.-]{0,64}")

PushMode = Literal["new", "known", "foreign", "again", "moved", "requisite"]
"""When to queue a URL. `new`: if it is unseen. `known`: if it is unseen, but its domain is seen: the crawl has accepted
another URL of it. `foreign`: if it is unseen, but pages of other domains fill no more than half of the domain's cap.
`again`, for seeds, and for a URL to which redirects lead back: always. `moved`, for the target of a
known page that has moved: if it is unseen, or is neither open nor a known page. `requisite`, for what pages embed: if
it is unseen as a page and as a requisite."""

_BEGINNINGS = {"s": "https://", "w": "https://www.", "h": "http://", "i": "http://www."}
_CODES = {beginning: code for code, beginning in _BEGINNINGS.items()}
_WHOLE = "u"


def bounded(priority: float) -> float:
    """The priority that is stored for `priority`: the nearest possible one, and the lowest for NaN."""
    return min(MOST_PRIORITY, max(-MOST_PRIORITY, priority))  # max() returns its first argument if the second is NaN


_CREDENTIALS = frozenset({"authorization", "cookie"})
"""Fields whose values no output has, and that stay at their origin."""


class RequestData(msgspec.Struct, frozen=True, array_like=True):
    """How a URL is requested, if not with a plain GET. `may_repeat`: it may be sent twice; `is_private`: not recorded."""

    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    may_repeat: bool = False
    is_private: bool = False

    @property
    def is_sent_once(self) -> bool:
        """Whether it is sent at most once: it is not idempotent (RFC 9110 9.2.2), and may not be repeated."""
        return not self.may_repeat and self.method in ("POST", "PATCH")

    @property
    def has_secrets(self) -> bool:
        """Whether it must not be in the output of the crawl."""
        return self.is_private or not _CREDENTIALS.isdisjoint(name.lower() for name, _ in self.headers)

    @property
    def key(self) -> str:
        """What tells requests to a URL apart, empty if the URL alone does."""
        if self.method == "GET" and not self.body:
            return ""
        return f"{self.method}:{blake2b(self.body, digest_size=6).hexdigest()}"

    def redirected(self, status: int, is_same_origin: bool) -> RequestData:
        """The request that follows a redirect with `status` (RFC 9110 15.4). Credentials stay at their origin, and of a
        private request all that it has."""
        if self.is_private and not is_same_origin:
            return RequestData()
        is_get = (status == 303 and self.method not in ("GET", "HEAD")) or (
            status in (301, 302) and self.method == "POST"
        )
        gone = ["content-type"] if is_get else []
        gone += [] if is_same_origin else _CREDENTIALS
        headers = tuple(field for field in self.headers if field[0].lower() not in gone)
        return RequestData(headers=headers) if is_get else msgspec.structs.replace(self, headers=headers)


PLAIN = RequestData()
"""A plain GET."""

_requests = msgspec.msgpack.Decoder(RequestData)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A URL in the frontier. If several requests to it are told apart, it ends in `#` and the key of this one, which is not
    sent. `priority`: higher values are fetched earlier. `depth`, `tries` and `hops` stop at their
    maximum. `via`: URL of the page where it was found, or empty. `visit`: the state of its visits so far, in an
    even number of hexadecimal digits, or empty before the first. The first 14 digits grow with the time of the last visit
    (`lua/restore_visits.lua`). `tag`: what the program that queued it attached to it (`tag_of`), or empty. `chain`: the
    mark (`mark_of`) of the URL with which the redirects began that led here, `GUESSED`, `GUESSED_SITEMAP`, or empty; not
    kept when the page is visited again."""

    url: str
    domain: str
    priority: float = 0.0
    depth: int = 0
    tries: int = 0
    hops: int = 0
    taken_back: int = 0
    mode: PushMode = "new"  # how it is pushed; not stored, except that it is a requisite
    via: str = ""
    visit: str = ""
    tag: str = ""
    chain: str = ""

    @property
    def raw(self) -> str:
        """The text that Redis stores."""
        code, rest = _shortened(self.url, self.domain)
        code = code.upper() if self.mode == "requisite" else code
        depth, tries = min(self.depth, MAX_DEPTH), min(self.tries, MAX_TRIES)
        raw = f"{code}{depth:02x}{tries:x}{HOPS[min(self.hops, len(HOPS) - 1)]}{self.taken_back:x}{rest}"
        provenance = self.provenance
        if self.visit:
            return f"{raw} {provenance} {self.visit}"
        return f"{raw} {provenance}" if provenance else raw

    @property
    def provenance(self) -> str:
        """What is stored of where the URL is from: the page where it was found, its tag, and its chain of redirects."""
        if self.chain and not self.visit:
            return f"{self.via}\t{self.tag}\t{self.chain}"
        return f"{self.via}\t{self.tag}" if self.tag else self.via

    @property
    def is_requisite(self) -> bool:
        """Whether pages embed the URL, as an image or a style sheet, and nothing has linked to it as a page."""
        return self.mode == "requisite"

    @property
    def target(self) -> str:
        """The URL that is requested."""
        return self.url.partition("#")[0]

    @property
    def request(self) -> RequestData | None:
        """The request in its tag, None for a plain GET."""
        return request_of(self.tag) if _REQUEST in self.tag else None

    @property
    def was_sent(self) -> bool:
        """Whether its request may have been sent, and must not be sent again."""
        return _SENT in self.tag and _SENT in self.tag.partition("{")[0]

    def sent(self) -> Entry:
        """The entry of a request that is about to be sent."""
        return msgspec.structs.replace(self, tag=self.tag.replace(_REQUEST, _SENT, 1))

    def unsent(self) -> Entry:
        """The entry of a request that may be sent again."""
        return msgspec.structs.replace(self, tag=self.tag.replace(_SENT, _REQUEST, 1)) if self.was_sent else self

    @property
    def label(self) -> str:
        return label_of(self.tag)

    @property
    def label_key(self) -> str:
        """The key of the request that gives its URL the label if it was queued without, empty if there is none. No
        `unique_key` is one: `@` would be escaped."""
        return f"@{label}" if self.tag and "#" not in self.url and (label := self.label) else ""

    @property
    def seen_as(self) -> tuple[str, ...]:
        """The URLs whose fingerprints are in the seen-set because of it."""
        return (self.url, f"{self.url}#{key}") if (key := self.label_key) else (self.url,)

    def next_try(self, priority: float) -> Entry:
        """The entry for the next try."""
        return msgspec.structs.replace(self.unsent(), tries=self.tries + 1, priority=priority)


def check_priority(priority: float) -> None:
    """Raise ValueError for what cannot be the priority of a URL."""
    if type(priority) not in (int, float) or not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
        raise ValueError(f"a priority is a number from {-MOST_PRIORITY:g} to {MOST_PRIORITY:g}, not {priority!r}")


def tag_of(label: str, payload: Mapping[str, Any] | None, request: RequestData | None = None) -> str:
    """The tag for `label`, a word or empty, `payload`, a small JSON object or None, and `request`: it is a part of the
    entry, so it has no spaces, tabs and line ends. Raises ValueError for what cannot be stored, and TypeError for what
    JSON does not have."""
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r} cannot be a label: use up to 64 letters, digits, _, - and .")
    if request is not None:
        label += _stored(request)
    if payload is None:
        return label
    text = msgspec.json.encode(payload).decode().replace(" ", "\\u0020")  # JSON has spaces in strings only
    if not text.startswith("{"):
        raise ValueError(f"a payload has to be a dict, not {type(payload).__name__}")
    if len(text.encode()) > MAX_PAYLOAD:
        raise ValueError(f"a payload may have {MAX_PAYLOAD:,} bytes as JSON")
    return label + text


def _stored(request: RequestData) -> str:
    """The part of a tag with `request`, empty for a plain GET. Raises ValueError if it is too long."""
    if request == PLAIN:
        return ""
    stored = urlsafe_b64encode(zlib.compress(msgspec.msgpack.encode(request))).decode()
    if len(stored) > MAX_REQUEST:
        raise ValueError(
            f"a request may have {MAX_REQUEST:,} bytes once it is compressed, and this has {len(stored):,}"
        )
    return _REQUEST + stored


def mark_of(url: str) -> str:
    """A short mark of the canonical `url`. If two URLs had the same one, one of them might be requested once more."""
    return blake2b(url.encode(), digest_size=6).hexdigest()


def label_of(tag: str) -> str:
    """The label in `tag`, empty if it has none."""
    return tag.partition("{")[0].partition(_REQUEST)[0]


def request_of(tag: str) -> RequestData | None:
    """The request in `tag`, None for a plain GET."""
    stored = tag.partition("{")[0].partition(_REQUEST)[2].removeprefix("!")
    return _requests.decode(zlib.decompress(urlsafe_b64decode(stored))) if stored else None


def redirected(tag: str, key: str, status: int, is_same_origin: bool) -> tuple[str, str]:
    """The tag and the key of what a redirect leads to. A GET that follows another request has a key of its own."""
    request = request_of(tag)
    if request is None:
        return tag, key
    after = request.redirected(status, is_same_origin)
    if key and after.method != request.method:
        key += ":GET"
    label, brace, payload = tag.partition("{")
    return label.partition(_REQUEST)[0] + _stored(after) + brace + payload, key


def payload_of(tag: str) -> dict[str, Any]:
    """The payload in `tag`, empty if it has none."""
    _, brace, text = tag.partition("{")
    return msgspec.json.decode(brace + text, type=dict[str, Any]) if brace else {}


def _shortened(url: str, domain: str) -> tuple[str, str]:
    """The character for the beginning of `url`, and the rest of it, which is stored."""
    at = url.find(domain, len("http://"))
    code, path_at = _CODES.get(url[:at]), at + len(domain)
    return (code, url[path_at:]) if code and url.startswith("/", path_at) else (_WHOLE, url)


def parse_entry(raw: str, domain: str, priority: float) -> Entry:
    """The inverse of `Entry.raw`. Raises ValueError for a text that is not an entry."""
    rest, _, more = raw[6:].partition(" ")
    origin, _, visit = more.partition(" ")
    via, _, rest_of_origin = origin.partition("\t")
    tag, _, chain = rest_of_origin.partition("\t")
    code = raw[0].lower()
    url = rest if code == _WHOLE else _BEGINNINGS[code] + domain + rest
    mode: PushMode = "new" if raw[0] == code else "requisite"
    depth, tries, hops, taken_back = int(raw[1:3], 16), int(raw[3], 16), HOPS.index(raw[4]), int(raw[5], 16)
    return Entry(url, domain, priority, depth, tries, hops, taken_back, mode, via, visit, tag, chain)
