"""The result of one visit to one URL. These values pass from the fetch to the sinks.

They cannot be part of a reference cycle, so they are created with `gc=False` and the garbage collector skips them (see
`crawler.app.replica`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import quote, unquote

import msgspec

from crawler.errors import NOT_THE_URLS_FAULT, FailureKind
from crawler.http_head import Secret, all_values, first_values
from frontier.entries import label_of, payload_of
from politeness.usage import NO_USAGE, Usage


class Outcome(StrEnum):
    """The outcome of a leased URL. `RETRY` means that it is tried again later; the others are final."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    DENIED = "denied"


Action = Literal["logout", "delete", "edit", "unsubscribe", "cart"]
"""What links do that are not followed where a rule sends secrets or keeps cookies (`crawler.scope.actions`)."""

ACTIONS: frozenset[str] = frozenset(get_args(Action))

KEPT_DENIALS = frozenset(
    {
        *("blocked", "dropped", "response_dropped", "forbidden_address", "forbidden_port"),
        *("excluded", "not_included", "depth", "outside"),
        *ACTIONS,
    }
)
"""The reasons of denied URLs that Redis keeps with the dead letters, so that they can be queued again. They come from the
operator's own settings, code and commands, which may change. URLs that a robots.txt denies are not kept: there may be
more of them than pages."""


_FAILED: frozenset[str] = frozenset(map(str, FailureKind)) - NOT_THE_URLS_FAULT - KEPT_DENIALS

FAILED_REQUESTS = _FAILED | {"response_dropped"}
"""The reasons of URLs that were requested, and whose pages have no response."""

DEAD_REASONS = _FAILED | {
    *("robots_unreachable", "usage_unreachable", "redirect_loop", "maybe_sent", "defect"),
    *("handler_failed", "handler_timeout", "handler_retry"),
}
"""The reasons of dead pages, without those that begin with `http_` and a status, or with `given_up_` and one of these."""


class LinkKind(StrEnum):
    """Where a link was found. The members are ordered by their value to a crawl, highest first.

    `SITEMAP` links to a sitemap (from robots.txt or a sitemap index), `LISTED` to a page that a sitemap lists; `FEED` to a
    feed that a page announces, `ITEM` to a page that a feed lists. `SCRIPT`: the scripts of a rendered page led there.
    """

    REDIRECT = "redirect"
    ANCHOR = "a"
    FRAME = "frame"
    LINK = "link"
    SITEMAP = "sitemap"
    LISTED = "listed"
    FEED = "feed"
    ITEM = "item"
    SCRIPT = "script"


Cut = Literal[
    "length", "time", "disconnect", "decoded", "coding", "links", "sitemap", "unread", "budget", "render", "defect"
]
"""Why part of a page is missing.

- `length`, `time`, `disconnect`: the body was truncated while it was received (`Exchange.truncated`)
- `decoded`: the decompressed body is longer than `limits.max_decoded`
- `coding`: the body could not be decompressed completely
- `links`: the page has more links than `limits.max_links`, or longer ones than `limits.max_link_bytes` in all;
  or it has millions of tags, of which only the first ones are read
- `sitemap`: the sitemap or feed breaks off, declares entities, or has too many or too long entries
- `unread`: parsing exceeded the time or memory limit of a document
- `budget`: its text was not extracted, because that of earlier pages of the domain took too long
- `render`: its browser was stopped before the page was complete, or could not render it
- `defect`: an unexpected exception occurred (`crawler.defects`)
"""

BROKEN_OFF: frozenset[Cut] = frozenset({"time", "disconnect", "coding"})
"""Those after which the end of the body is missing, and may be there at the next visit."""

TORN: frozenset[Cut] = BROKEN_OFF | {"length", "decoded"}
"""Those after which the end of the body is missing."""


Repaired = Literal["head", "framing", "coding", "sitemap"]
"""What of a response was malformed, and was read as browsers and other crawlers read it.

- `head`: the status line, or a header line
- `framing`: what says where the body ends
- `coding`: its content coding is not the one that it names, or has no such name
- `sitemap`: the markup of a sitemap
"""


class Link(msgspec.Struct, frozen=True, gc=False):
    """An outlink: the canonical absolute URL, and where in the page it was found. `lastmod`: when its page has changed, as
    a sitemap says, in seconds since 1970; 0 if it does not say."""

    url: str
    kind: LinkKind = LinkKind.ANCHOR
    lastmod: float = 0.0


class Phases(NamedTuple):
    """How long opening a connection took, in seconds. `tls_s` is None over plain http."""

    dns_s: float
    connect_s: float
    tls_s: float | None


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """One HTTP exchange as transferred, with the transfer coding removed and the content coding kept.

    `request_head` and `response_head` are the start line and header lines with CRLF line ends and the closing empty
    line; `request_body` is what followed the first. `body` is the entity as received, still compressed if the server
    compressed it. `truncated` says why it is incomplete ("length", "time" or "disconnect", as in WARC 1.1 section 5.13);
    None if it is complete.
    """

    url: str
    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...]
    request_head: bytes
    response_head: bytes
    body: bytes
    address: str
    started_at: float  # seconds since 1970
    elapsed: float  # seconds from the start of the request to the last byte
    first_byte: float  # seconds from the start of the request to the response head
    truncated: str | None = None
    protocol: str = "http/1.1"
    tls: str | None = None  # cipher suite and version, None over plain http
    phases: Phases | None = None  # None when the connection was reused
    repaired: tuple[Repaired, ...] = ()
    encoding: str = ""  # of the body, as a rule says; empty: as the response says
    method: str = "GET"
    request_body: bytes = b""
    set_cookies: tuple[Secret, ...] = ()  # of the response; `headers` hide them, as records do

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of the header `name` (in lower case), or None."""
        return first_values(self.headers).get(name)

    def header_list(self, name: bytes) -> bytes | None:
        """All values of the header `name` (in lower case) as one list, or None."""
        return all_values(self.headers).get(name)

    def header_text(self, name: bytes) -> str:
        """`header_list` as text, empty without one."""
        return all_values(self.headers).get(name, b"").decode("latin-1")

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that the response sets, by name, to send them with other requests."""
        texts = [secret.text for secret in self.set_cookies]
        texts = texts or [value.decode("latin-1") for name, value in self.headers if name.lower() == b"set-cookie"]
        pairs = (text.partition(";")[0].partition("=") for text in texts)
        return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}

    @property
    def content_coding(self) -> str:
        """The codings of `body` as `content_coding` gives them; empty if there are none."""
        return content_coding(self.header_text(b"content-encoding"), self.header_text(b"content-type"), self.body)


GZIP = b"\x1f\x8b\x08"
"""How gzip data begins (RFC 1952 2.3.1)."""

MAYBE_GZIP = "gzip?"
"""The coding of a body that may have been compressed without saying so."""

_TEXT = re.compile(r"[\s,]*+(?:text/|[^;,]*(?:html|xml|json|unknown)|$)", re.IGNORECASE)


def content_coding(named: str, media: str, body: bytes) -> str:
    """The codings of `body`, first to last. `named`: those in Content-Encoding. Before them is `MAYBE_GZIP` if text, as the
    Content-Type `media` says, may be compressed although no coding is named, or twice although one is."""
    is_possible = "gzip" in named.lower() or body.startswith(GZIP)
    return f"{MAYBE_GZIP}, {named}" if is_possible and _TEXT.match(media) else named


FETCHED = "fetch"
"""The kind of what handlers and programs have fetched."""


class LooseExchange(Exchange, frozen=True, gc=False):
    """An exchange that a program has caused, and that belongs to no page. `kind`: as that of `Extra`."""

    kind: str = FETCHED

    @classmethod
    def of(cls, extra: Extra) -> LooseExchange:
        fields = (getattr(extra.exchange, name) for name in Exchange.__struct_fields__)
        return cls(*[*fields, extra.kind])


class Extra(msgspec.Struct, frozen=True, weakref=True):
    """An exchange that the handling of a page has caused besides that of the page. `kind`: WARC-Resource-Type, such as
    `fetch`."""

    exchange: Exchange
    kind: str


RenderOutcome = Literal["done", "time", "crashed", "memory", "hung", "gone"]
"""`time`: its DOM was taken when its time was over, or after an endless script was stopped; `crashed`: its process ended;
`memory`: its browser was killed because it needed too much; `hung`: or because it did not answer; `gone`: or ended."""


WhyRendered = Literal["always", "pattern", "shell", "sample", "shape"]
"""Why a page is rendered: all are; a pattern names it; it is the shell of an application; as a sample of its shape; because
pages of its shape need it."""


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """A page in a browser. `dom`: its exchange with the DOM, in UTF-8, as body; None if it gave none; `url`: where its
    scripts have brought it, without a request. `links`: URLs that its scripts led to by history, navigation, windows and
    downloads. `requests`: how many it made that were not refused at once, and `refused` how many were not answered, by
    reason. `screenshot`: a PNG, if one was wanted. `failed_steps`: those of `render.steps` whose element was not
    there. `why`: why it was rendered; `shape`: the shape of its URL if pages of that need a browser, or empty."""

    outcome: RenderOutcome
    elapsed: float
    dom: Exchange | None = None
    url: str = ""
    links: tuple[str, ...] = ()
    requests: int = 0
    refused: Mapping[str, int] = {}
    screenshot: bytes = b""
    failed_steps: tuple[str, ...] = ()
    why: WhyRendered = "always"
    shape: str = ""


DATA_SET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""Names of data sets, which become names of files."""

MAX_ITEM_BYTES = 8 << 20
"""Bytes of all items of a page, as JSON."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """An item that a handler or a rule has found on a page: the name of its data set, and its fields as a JSON object."""

    name: str
    json: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as they will be read from the output."""
        return msgspec.json.decode(self.json, type=dict[str, Any])


RejectReason = Literal["missing", "type", "changed", "size", "unread", "dropped"]
"""Why an item was not written. `missing`: it lacks a required field; `type`: a value is not of the type of its field;
`changed`: a value of a handler is of another type than the settings declare; `size`: the page has more items than it may
have, or longer ones; `unread`: the page took too long to read; `dropped`: a function of the router has dropped it."""


LONGEST_WORD = 60
"""Characters of a field by which rejected items are counted."""

_PLAIN = "!$&'()*+,-./:;<=>?@[]^_`{|}~"
"""Characters that need no escape there, besides letters and digits."""


class RejectedItem(msgspec.Struct, frozen=True, gc=False):
    """An item that was not written, because of its `field`; empty if not because of one. `value`: the beginning of what the
    page has there; `detail`: more about the reason; `json`: the whole item, if it was complete."""

    name: str
    field: str
    reason: RejectReason
    value: str = ""
    detail: str = ""
    json: bytes = b""

    @property
    def word(self) -> str:
        """By what it is counted: data set, field and reason, without spaces. `rejection_of` reads it."""
        return f"{self.name}:{quote(self.field[:LONGEST_WORD], _PLAIN)}:{self.reason}"

    def __str__(self) -> str:
        place = f"{self.name}: {self.field}" if self.field else self.name
        found = f"{place}: {self.reason} {self.value!r}" if self.value else f"{place}: {self.reason}"
        return f"{found} ({self.detail})" if self.detail else found


def rejection_of(word: str) -> tuple[str, str]:
    """Return the data set in `RejectedItem.word`, and field and reason for people."""
    name, _, rest = word.partition(":")
    field, _, reason = rest.rpartition(":")
    return name, f"{unquote(field)} {reason}".lstrip()


class CopyAge(NamedTuple):
    """The age of a page's copy when the page was visited again, in seconds. `late_s`: the part of it since the visit was
    due."""

    age_s: float
    late_s: float


TextForm = Literal["off", "text", "markdown"]


class Content(msgspec.Struct, frozen=True):
    """The content of a page. Values are None if the settings do not ask for them, or if the page has none.

    `json_ld`: the blocks, unchanged; `opengraph`: keys without "og:". `near_of`: the URL of an earlier page with nearly
    the same text; `is_dropped`: whether the body is therefore not stored. `cut`: see `crawler.sinks.lines.Line`.
    `text_by`: where the main text is from (`crawler.parse.main_text.MainText.by`), or `plain`: the body is text.
    `published`: when the page says that it was published, as it is written there. `simhash`: the fingerprint of the
    text to compare (`crawler.parse.text.text_to_compare`). Only for comparing pages (`is_judged`): `compared`, the
    beginning of that text, and `heading`, the first heading.
    """

    description: str | None = None
    text: str | None = None
    markdown: str | None = None
    text_by: str | None = None
    published: str | None = None
    json_ld: list[Any] | None = None
    opengraph: dict[str, str] | None = None
    simhash: int | None = None
    near_of: str | None = None
    soft_404: bool | None = None
    is_dropped: bool = False
    is_judged: bool = False
    cut: tuple[str, ...] = ()
    compared: str = ""
    heading: str = ""


NO_CONTENT = Content()

UNREADABLE = Content(cut=("defect",))
"""The content of a page whose extraction raised an unexpected exception."""


class Page(msgspec.Struct, frozen=True, gc=False):
    """A settled URL with everything that sinks may need; docs/reference/api.md describes the fields.

    `exchange` is None when nothing was received. `links` are the links found, before the scope check and deduplication.
    `is_withheld`: the owner refuses the purpose of the crawl, so nothing of the page is kept. `tag`: label and payload
    of the URL (`frontier.entries`); `followed`: the links that were queued, by their tags, if its handler has chosen
    them; None if they follow from `links`. `rejected`: items that were not written, all that were complete and the
    first others; `rejected_by`: the number of all, by `RejectedItem.word`. `text_digest`: the fingerprint of its main
    text, if that tells whether the page has changed. `content`: its text and data, if they were extracted before the
    page is written. `unfollowed`: links that are not followed, because they or the page say nofollow. `put_off`: if its
    shape brings nothing new, the name of the shape, and how many more of its pages, and of the useless ones, are to be
    counted. `is_requisite`: it is no page, but what pages embed.
    """

    url: str
    domain: str
    depth: int
    outcome: Outcome
    reason: str  # one word from a closed list: "ok", "redirect", "robots", "timeout", "http_500" ...
    settled_at: float  # seconds since 1970
    tries: int = 0
    exchange: Exchange | None = None
    content_type: str = ""  # media type without parameters, lower case
    charset: str = ""  # the encoding that the text was decoded with
    title: str = ""
    lang: str = ""
    canonical: str = ""
    links: tuple[Link, ...] = ()
    decoded_size: int = 0  # bytes after content decoding
    digest: str = ""  # "sha1:" and base32 of the entity as received
    noarchive: bool = False
    noindex: bool = False
    cut: tuple[Cut, ...] = ()
    via: str = (
        ""  # the URL of the page where this one was first found; empty for seeds, and unless `archive.via` is set
    )
    usage: Usage = NO_USAGE
    is_withheld: bool = False
    licenses: tuple[str, ...] = ()
    items: tuple[Item, ...] = ()
    handler_error: str = ""
    visit: str = ""
    previous_at: float = 0.0
    body_at: float = 0.0
    copy_age: CopyAge | None = None
    rejected: tuple[RejectedItem, ...] = ()
    rejected_by: Mapping[str, int] = {}
    tag: str = ""
    followed: Mapping[str, tuple[str, ...]] | None = None
    text_digest: str = ""
    next_at: float = 0.0
    visit_state: str = ""
    content: Content | None = None
    repaired: tuple[Repaired, ...] = ()
    unfollowed: int = 0
    detail: str = ""
    put_off: tuple[str, int, int] = ("", 0, 0)
    extras: tuple[Extra, ...] = ()
    is_requisite: bool = False
    rendered: Rendered | None = None

    @property
    def shown(self) -> Exchange | None:
        """The exchange with what the page shows: its DOM if it was rendered, otherwise what the server has sent."""
        return self.rendered.dom if self.rendered is not None and self.rendered.dom is not None else self.exchange

    def as_shown(self) -> Page:
        """Return this page as if the server had sent what it shows."""
        return msgspec.structs.replace(self, exchange=self.shown, rendered=None) if self.rendered is not None else self

    @property
    def received_bytes(self) -> int:
        """Bytes of its body, as received, of its DOM, and of its extra exchanges."""
        own = len(self.exchange.body) if self.exchange is not None else 0
        if self.rendered is not None and self.rendered.dom is not None:
            own += len(self.rendered.dom.body)
        return own + sum(len(extra.exchange.body) for extra in self.extras) if self.extras else own

    @property
    def rejected_count(self) -> int:
        """How many items were not written."""
        return sum(self.rejected_by.values())

    @property
    def label(self) -> str:
        """The label with which the URL was enqueued, or empty."""
        return label_of(self.tag)

    @property
    def payload(self) -> dict[str, Any]:
        """The payload with which the URL was enqueued, or empty."""
        return payload_of(self.tag)

    def has_type(self, wanted: str) -> bool:
        """Whether this is a page of the media type `wanted`, such as `text/html` or `image/*`; empty: any."""
        if wanted.endswith("/*"):
            return self.content_type.startswith(wanted[:-1])
        return not wanted or self.content_type == wanted

    def withheld(self) -> Page:
        """Return this page without anything that its response contains. It is denied unless it failed."""
        exchange = self.exchange and msgspec.structs.replace(self.exchange, body=b"", truncated=None)
        is_done = self.outcome is Outcome.DONE
        return Page(
            self.url,
            self.domain,
            self.depth,
            Outcome.DENIED if is_done else self.outcome,
            "usage" if is_done else self.reason,
            self.settled_at,
            self.tries,
            exchange,
            via=self.via,
            usage=self.usage,
            is_withheld=True,
            licenses=self.licenses,
            tag=self.tag,
            detail="" if is_done else self.detail,
            is_requisite=self.is_requisite,
        )

    def failed(self) -> Page:
        """Return this page as it is settled if a sink cannot handle it. It has no items: it may be queued again, and then
        has them. It is kept with the dead letters as it was before this visit, so nothing is planned."""
        cut = (*self.cut, "defect")
        none_planned = {"previous_at": 0.0, "next_at": 0.0, "visit_state": ""}
        return msgspec.structs.replace(self, outcome=Outcome.DEAD, reason="defect", cut=cut, items=(), **none_planned)


class Written(msgspec.Struct, frozen=True, gc=False):
    """What became of a group of pages that was written. `duplicates`: the URLs of pages whose body was already archived;
    `failed`: those of pages that a sink could not handle, to be settled as `Page.failed`; `bodiless`: the states of the
    visits of pages whose body was not archived, by URL: their next visits have no condition."""

    duplicates: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    bodiless: Mapping[str, str] = {}
