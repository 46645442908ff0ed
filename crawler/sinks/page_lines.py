"""One JSON line for each settled URL: what a data set needs, and the place of its record in the WARC file.

Denied and dead URLs also get a line, with a null status if there was no response, so the data has the reasons of all
settled URLs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from crawler.page import NO_CONTENT, Content, Item, Page, RejectedItem
from crawler.parse.text import plain
from crawler.sinks.time_formats import iso_time


class Place(msgspec.Struct, frozen=True):
    """The place of a page's response or revisit record, in bytes of the compressed file."""

    file: str
    offset: int
    length: int


class Line(msgspec.Struct, frozen=True):
    """A line. All fields are always present; None becomes null.

    A crawl knows all of `outcome` to `replica`; in rows from WARC files, those that the file does not contain are null.
    `description` to `soft_404` are null unless the settings ask for them. `extra` has the fields from page hooks. Times
    are UTC with milliseconds. `size`: bytes of the body as received; `decoded_size`: after content decoding. `links`:
    the URLs found, in the order of the page; null if the settings leave them out. `simhash`: 16 hexadecimal digits,
    because not all JSON readers support integers of 64 bits. `cut`: why part of the page is missing
    (`crawler.page.Cut`); also `text` if text and data after the first 4 MiB are missing, or took too long to extract,
    and `defect` if the line could not be written completely. `usage`: what the owner says about the use of the page,
    such as `train-ai=n, search=y`, null if nothing; `usage_statements`: where and in which words; `tdm_policy`: the URL
    of a licence offer. `visit`: what the visit found, null unless pages are visited again; `previous_visit`:
    `fetched_at` of the visit before; `next_visit`: when the next one is due, and `visit_state`: what is stored of the
    visits until then (`crawler.scope.next_visit`), null if there is none. `items`: those that a handler has and
    settings have found, by the name of their data set; null if there are none. `handler_error`: with which error it
    failed. `rejected`: the first items that were rejected, and why; `rejected_count`: how many were. `rejected_items`:
    those that were complete, as `RejectedLine`s, by the name of their data set; null if there are none. `label`,
    `payload`: those with which the URL was queued; null if there are none. `followed`: the links that its handler has
    had queued, by their tags (`frontier.entries`); null if it has not chosen them.
    """

    url: str
    domain: str
    status: int | None
    outcome: str | None
    reason: str | None
    depth: int | None
    tries: int | None
    settled_at: str | None
    fetched_at: str | None
    elapsed_ms: int | None
    content_type: str
    charset: str | None
    title: str | None
    lang: str | None
    canonical: str | None
    size: int | None
    decoded_size: int | None
    digest: str | None
    truncated: str | None
    noarchive: bool | None
    noindex: bool | None
    link_count: int | None
    links: list[str] | None
    warc: Place | None
    replica: str | None
    description: str | None = None
    text: str | None = None
    markdown: str | None = None
    json_ld: list[Any] | None = None
    opengraph: dict[str, str] | None = None
    simhash: str | None = None
    near_of: str | None = None
    soft_404: bool | None = None
    cut: list[str] | None = []
    via: str | None = None
    usage: str | None = None
    usage_statements: list[str] = []
    tdm_policy: str | None = None
    licenses: list[str] | None = []
    visit: str | None = None
    previous_visit: str | None = None
    extra: Any = None  # already encoded; a dict when the line is read
    items: Any = None  # the same
    handler_error: str | None = None
    rejected: list[str] = []
    rejected_count: int = 0
    rejected_items: Any = None  # as `items`
    label: str | None = None
    payload: Any = None  # as `items`
    followed: Mapping[str, Sequence[str]] | None = None
    next_visit: str | None = None
    visit_state: str | None = None


class RejectedLine(msgspec.Struct, frozen=True):
    """An item that was rejected because of what it has, and why."""

    reason: str
    item: msgspec.Raw


SHOWN = 20
"""Items in `Line.rejected`."""


class Row(NamedTuple):
    """What becomes a line. `digest`: of the body, empty without one; `extra`: fields from hooks, as JSON. `columns`: values
    that replace those from the page; None for unknown ones."""

    page: Page
    digest: str = ""
    place: Place | None = None
    extra: msgspec.Raw | None = None
    content: Content = NO_CONTENT
    columns: Mapping[str, Any] = {}


class PageLines:
    """Makes the lines of one replica, with the links of each page if `with_links`."""

    def __init__(self, with_links: bool, replica: str) -> None:
        self._with_links = with_links
        self._replica = replica
        self._encoder = msgspec.json.Encoder()

    def encode(self, row: Row, report: Callable[[str, Exception], None]) -> bytes:
        """Encode the line of `row`. If that raises, `report` is called with the URL and the error, and the line has no
        values from the site or from hooks, and the cut `defect`."""
        try:
            line = self._line(row)
            try:
                return self._encoder.encode(line) + b"\n"
            except (UnicodeEncodeError, OverflowError, RecursionError):
                # JSON-LD may contain lone surrogates, integers above 64 bits, and deeply nested values.
                return self._encoder.encode(_encodable(line)) + b"\n"
        except Exception as error:
            report(row.page.url, error)
            return self._encoder.encode(self._line(minimal_row(row))) + b"\n"

    def _line(self, row: Row) -> Line:
        page, exchange, content = row.page, row.page.exchange, row.content
        line = Line(
            url=page.url,
            domain=page.domain,
            status=exchange.status if exchange else None,
            outcome=page.outcome.value,
            reason=page.reason,
            depth=page.depth,
            tries=page.tries,
            settled_at=iso_time(page.settled_at),
            fetched_at=iso_time(exchange.started_at) if exchange else None,
            elapsed_ms=round(exchange.elapsed * 1000) if exchange else None,
            content_type=page.content_type,
            charset=page.charset,
            title=page.title,
            lang=page.lang,
            canonical=page.canonical,
            size=len(exchange.body) if exchange else 0,
            decoded_size=page.decoded_size,
            digest=row.digest,
            truncated=exchange.truncated if exchange else None,
            noarchive=page.noarchive,
            noindex=page.noindex,
            link_count=len(page.links),
            links=[link.url for link in page.links] if self._with_links else None,
            warc=row.place,
            replica=self._replica,
            description=content.description,
            text=content.text,
            markdown=content.markdown,
            json_ld=content.json_ld,
            opengraph=content.opengraph,
            simhash=None if content.simhash is None else f"{content.simhash:016x}",
            near_of=content.near_of,
            soft_404=content.soft_404,
            cut=[*page.cut, *content.cut],
            via=page.via or None,
            usage=str(page.usage) or None,
            usage_statements=list(page.usage.statements),
            tdm_policy=page.usage.tdm_policy or None,
            licenses=list(page.licenses),
            visit=page.visit or None,
            previous_visit=iso_time(page.previous_at) if page.previous_at else None,
            extra=row.extra,
            items=_by_name(page.items) if page.items else None,
            handler_error=page.handler_error or None,
            rejected=list(map(str, page.rejected[:SHOWN])),
            rejected_count=page.rejected_count,
            rejected_items=_complete(page.rejected) if page.rejected else None,
            label=page.label or None,
            payload=_payload(page.tag),
            followed=page.followed if self._with_links else None,
            next_visit=iso_time(page.next_at) if page.next_at else None,
            visit_state=page.visit_state or None,
        )
        return msgspec.structs.replace(line, **row.columns) if row.columns else line


def _by_name(items: Sequence[Item]) -> msgspec.Raw:
    """The `items` as a JSON object: name of the data set -> its items."""
    named: dict[str, list[msgspec.Raw]] = {}
    for item in items:
        named.setdefault(item.name, []).append(msgspec.Raw(item.json))
    return msgspec.Raw(msgspec.json.encode(named))


def _payload(tag: str) -> msgspec.Raw | None:
    _, brace, text = tag.partition("{")
    return msgspec.Raw(f"{brace}{text}".encode()) if brace else None


def _complete(rejected: Sequence[RejectedItem]) -> msgspec.Raw | None:
    """Those of the `rejected` items that are complete, as a JSON object like that of `_by_name`."""
    named: dict[str, list[RejectedLine]] = {}
    for one in rejected:
        if one.json:
            named.setdefault(one.name, []).append(RejectedLine(str(one), msgspec.Raw(one.json)))
    return msgspec.Raw(msgspec.json.encode(named)) if named else None


def _encodable(line: Line) -> Line:
    """`line`, with question marks for lone surrogates, integers above 64 bits as text, and nothing nested too deeply."""
    fields = msgspec.structs.asdict(line)
    return Line(**{name: plain(value) for name, value in fields.items()})


def minimal_row(row: Row) -> Row:
    """`row` without all values from the site or a hook, marked with the cut `defect`, for a line that cannot be encoded."""
    page = msgspec.structs.replace(
        row.page, content_type="", charset="", title="", lang="", canonical="", links=(), cut=("defect",), via=""
    )
    return Row(page, row.digest, row.place, columns=row.columns)
