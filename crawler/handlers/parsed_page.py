"""What a handler receives: a page with selectors (`ParsedPage`, which a loop over a crawl also yields), and a `Handle`
that takes items and changes which links are followed.

Nothing is sent or written at once. What the handler asked for takes effect when it returns: all of it or, if it raises,
nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Awaitable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack

import msgspec
from yarl import URL

from crawler.arguments import JsonDict, WrongArgument, checked
from crawler.errors import Refused
from crawler.handlers.values import SharedValues, check_loop, running_loop
from crawler.hooks import Handled, Wanted
from crawler.page import DATA_SET, MAX_ITEM_BYTES, TORN, Exchange, Item, Link, Outcome, Page
from crawler.parse import tree
from crawler.parse.coding import decode_body
from crawler.parse.encoding import MediaType, as_text
from crawler.parse.forms import Form
from crawler.parse.structured import json_ld_of, microdata_of, plain, rdfa_of, readable, values_at
from crawler.request import Request, RequestOptions
from frontier.domains import domain_of, host_of
from frontier.entries import check_priority, tag_of
from frontier.errors import BadInput, BadUrl
from frontier.urls import UrlPattern, canonicalize

if TYPE_CHECKING:
    from turbohtml import Document, Element

    Linked: TypeAlias = str | URL | Link | Element | Request | None
    """What leads to a page."""

MAX_DECODED = 64 << 20
"""Bytes of a decoded body, unless it was cut at `limits.max_decoded`."""

MAX_TREE = 4 << 20
MAX_TAGS = 100_000
"""Bytes and tags of a body that are parsed: a tree of so many takes a third of a second, and its text a tenth. That is also
all that is decoded of a page whose reading took too long."""


class ParsedPage(Page, frozen=True, dict=True, gc=True):
    """A `Page` with its contents. The body is decoded and parsed when it is first needed.

    In documents with many tags, formatting elements such as `b`, `i` and `strong` that may stay open become `span`, because
    the standard makes it expensive to parse them: select by class or by another element there.
    """

    @classmethod
    def of(cls, page: Page) -> ParsedPage:
        """Return `page` with selectors. Its URL is what was requested, without the key of the request."""
        parsed = cls(*[getattr(page, name) for name in Page.__struct_fields__])
        return msgspec.structs.replace(parsed, url=page.url.partition("#")[0]) if "#" in page.url else parsed

    @property
    def status(self) -> int:
        """The HTTP status, 0 without a response."""
        return self.exchange.status if self.exchange else 0

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that the response sets, by name, to send them with other requests."""
        return self.exchange.cookies if self.exchange else {}

    @property
    def body(self) -> bytes:
        """The body without its content coding, empty without a response."""
        if "body" not in self.__dict__:  # until Python 3.12, `cached_property` has one lock for the bodies of all pages
            self.__dict__["body"] = self._decoded()
        found: bytes = self.__dict__["body"]
        return found

    def _decoded(self, limit: int = MAX_DECODED) -> bytes:
        if (shown := self.shown) is None:
            return b""
        if "unread" in self.cut:
            limit = min(limit, MAX_TREE)
        if "decoded" in self.cut and self.rendered is None:
            limit = min(limit, self.decoded_size)
        return decode_body(shown.body, shown.content_coding, limit).data

    @property
    def text(self) -> str:
        """The body as text, without a byte order mark."""
        return as_text(self.body, self.charset)

    @property
    def static(self) -> ParsedPage:
        """The page as the server has sent it, before it was rendered in a browser."""
        if self.rendered is None:
            return self
        return ParsedPage.of(msgspec.structs.replace(self, rendered=None, charset=""))

    @property
    def screenshot(self) -> bytes:
        """The page in a browser as a PNG, empty without one (`render.screenshot`)."""
        return self.rendered.screenshot if self.rendered is not None else b""

    @checked
    def resources(self, type: str = "", match: str = "") -> list[ParsedPage]:
        """Return what the page has loaded in its browser, and what its handlers have fetched, in the order of the answers.
        `type`: only `script`, `stylesheet`, `xhr` for data that scripts have asked for, `frame`, `image`, `font`, or
        `fetch` for what handlers have. `match`: only those in whose URL this regular expression is found."""
        is_in = _pattern(match).is_in
        wanted = (extra.exchange for extra in self.extras if type in ("", extra.kind))
        return [_as_page(exchange) for exchange in wanted if is_in(exchange.url)]

    def json(self) -> Any:
        """Return the body as JSON, in UTF-8, UTF-16 or UTF-32, with or without a byte order mark; halves of characters
        become `?`. Raises ValueError if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeError):
            return plain(json.loads(self.body))

    @checked
    def csv(self, delimiter: str = ",", quotechar: str = '"') -> list[dict[str, Any]]:
        """Return the rows of the body as CSV, by the names in its first row. What a row has beyond these is a list, by the
        name `rest`, or `rest_` if there is such a name, and what it lacks is None."""
        rows = csv.DictReader(io.StringIO(self.text, newline=""), delimiter=delimiter, quotechar=quotechar)
        rows.restkey = "rest_" if "rest" in (rows.fieldnames or ()) else "rest"
        return list(rows)

    @property
    def document(self) -> Document:
        """The tree of the HTML document, of its first 4 MiB and 100,000 tags, or of the XML document, such as a feed
        (turbohtml)."""
        if "document" not in self.__dict__:
            is_xml = tree.is_xml(self.content_type)
            # A large body is not kept with its tree, unless a handler reads it.
            body = self.body if is_xml or "body" in self.__dict__ else self._decoded(MAX_TREE)
            if not TORN.isdisjoint(self.cut):
                body = tree.without_torn_end(body)
            xml = tree.parse_xml(body, self.charset) if is_xml else None
            body = tree.first_tags(body[:MAX_TREE], MAX_TAGS)
            self.__dict__["document"] = xml or tree.parse(body, self.charset or None)
        found: Document = self.__dict__["document"]
        return found

    @checked
    def select(self, css: str, within: Element | None = None) -> list[Element]:
        """Return the elements that match the CSS selector, in the order of the page. `within`: an element of the page in
        which to look."""
        return list(self._root(within).select(css))

    @checked
    def select_text(self, css: str, within: Element | None = None) -> str | None:
        """Return the text of the first element that matches, without white space around it; None if none does. `within`: an
        element of the page in which to look. Blocks are separated by a line end. Scripts, styles and templates are no
        text."""
        found = self._root(within).select_one(css)
        return None if found is None else tree.text_of(found).strip()

    @checked
    def select_attr(self, css: str, name: str, within: Element | None = None) -> str | None:
        """Return the attribute `name` of the first element that matches; None if none does or it has no such
        attribute. `within`: as in `select_text`."""
        found = self._root(within).select_one(css)
        value = None if found is None else found.attrs.get(name)
        return " ".join(value) if isinstance(value, list) else value

    def _root(self, within: Element | None) -> Document | Element:
        if within is None:
            return self.document
        if not hasattr(within, "select_one"):
            raise WrongArgument(f"within has to be an element of the page, not {type(within).__name__}")
        return within

    @checked
    def json_ld(self, path: str = "") -> list[Any]:
        """Return what `path` leads to in the JSON-LD of the page: a type and keys, such as `Product.offers.price`. Keys
        lead from the first object of the type among those that are nested the least. A type alone is for all its objects,
        and no path for the objects at the top. The items of lists take the place of these. JSON-LD that cannot be read is
        left out, and so is what follows after the first MiB."""
        if "_json_ld" not in self.__dict__:
            self.__dict__["_json_ld"] = json_ld_of(self.document).values
        return values_at(self.__dict__["_json_ld"], path)

    @checked
    def microdata(self, path: str = "") -> list[Any]:
        """Return what `path` leads to in the microdata of the page, as `json_ld` does."""
        return values_at(microdata_of(self.document, self.url), path)

    @checked
    def rdfa(self, path: str = "") -> list[Any]:
        """Return what `path` leads to in the RDFa of the page, as `json_ld` does."""
        return values_at(rdfa_of(self.document), path)

    @checked
    def xpath(self, expression: str) -> list[Any]:
        """Return what the XPath expression selects: elements, texts, the values of attributes, or one number."""
        found = self.document.xpath(expression)
        return found if isinstance(found, list) else [found]

    @property
    def base(self) -> str:
        """The URL to which relative links are joined: that of the page, or of its first `base` element with an href."""
        if "base" not in self.__dict__:
            href = self.select_attr("base[href]", "href") if b"<base" in self.body.lower() else None
            try:
                self.__dict__["base"] = canonicalize(href, self.url).href if href else self.url
            except BadUrl:
                self.__dict__["base"] = self.url
        found: str = self.__dict__["base"]
        return found

    @checked
    def form(self, css: str = "form") -> Form:
        """Return the first form that matches, with the values that a browser would send. Raises ValueError if there is
        none."""
        found = self.document.select_one(css)
        if found is None or found.tag != "form":
            raise ValueError(f"the page has no form {css!r}")
        return Form(self.document, found, self.base, self.charset)

    @checked
    def urls(self, pattern: str = "") -> list[str]:
        """Return the URLs of the links in which the regular expression `pattern` is found."""
        is_in = _pattern(pattern).is_in
        return [link.url for link in self.links if is_in(link.url)]


def _pattern(written: str) -> UrlPattern:
    try:
        return UrlPattern(written)
    except BadInput as error:
        raise ValueError(str(error)) from None


def page_of(exchange: Exchange) -> Page:
    """The page of `exchange`, which no line has, without what its response says."""
    reason = "ok" if 200 <= exchange.status < 300 else f"http_{exchange.status}"
    domain = domain_of(host_of(exchange.url))
    return Page(exchange.url, domain, 0, Outcome.DONE, reason, exchange.started_at, exchange=exchange)


def _as_page(exchange: Exchange) -> ParsedPage:
    media = MediaType.parse(exchange.header_text(b"content-type"))
    fields = {"content_type": media.essence, "charset": (media.charset or "").lower()}
    return ParsedPage.of(msgspec.structs.replace(page_of(exchange), **fields))


class Retry(Exception):
    """Raised by a handler to have its page fetched again, with what is missing as `reason`: after the delay that the
    settings give to failed tries, and at least `after` seconds. After the last of `politeness.tries` the page is dead."""

    @checked
    def __init__(self, reason: str = "", after: float = 0.0) -> None:
        if not 0 <= after <= LONGEST_RETRY_S:
            raise ValueError(f"a page is fetched again after 0 to {LONGEST_RETRY_S:,} seconds")
        super().__init__(reason)
        self.after = after


class Drop(Exception):
    """Raised by functions that see each request, response or item to drop it, for this `reason`."""

    @checked
    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


LONGEST_RETRY_S = 86_400
"""The longest `Retry.after`."""

MAX_ADDED, MAX_TAG_BYTES = 50_000, 8 << 20
"""Links that a handler may add to a page, and the bytes of their payloads and requests."""


class _Nothing(Awaitable[None]):
    """Something to await that has already happened."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE = _Nothing()


class Download(msgspec.Struct, frozen=True):
    """A file that was downloaded from `url`. `path`: relative to the output folder; `size`: in bytes; `sha256`: its digest
    in hexadecimal digits."""

    url: str
    path: str
    content_type: str
    size: int
    sha256: str


class Requests(Protocol):
    """Makes requests for a handler: see `Handle.fetch` and `Handle.download`."""

    async def fetch(self, request: Request) -> ParsedPage: ...

    async def download(self, request: Request) -> Download: ...


_PLAIN = Request("")


class Handle:
    """Takes the items and links of one page. Its methods return at once: `await` is allowed, and not needed.
    `settings`: the table `[app]`, as the router's schema or as a dict; `state`: what functions for the start of the
    replica have put there."""

    def __init__(
        self,
        settings: Any = None,
        state: dict[str, Any] | None = None,
        requests: Requests | None = None,
        store: SharedValues | None = None,
    ) -> None:
        self.settings: Any = {} if settings is None else settings
        self.state: dict[str, Any] = {} if state is None else state
        self._store = store or SharedValues()
        self._items: list[Item] = []
        self._item_bytes = 0
        self._added: list[Wanted] = []
        self._tag_bytes = 0
        self._dropped: list[UrlPattern] = []
        self._stop: str | None = None
        self._requests = requests
        self._loop = running_loop()

    @property
    def store(self) -> SharedValues:
        """Values that all replicas share. Raises RuntimeError in a plain function, and in another event loop."""
        check_loop(self._loop)
        return self._store

    @checked
    def push(self, name: str, item: object) -> Awaitable[None]:
        """Add `item`, or each item of a list, to the data set `name`. It is a dict, or anything else that becomes a JSON
        object: a dataclass, or a msgspec.Struct. In it, sets become lists, times and other keys text, bytes base64, and
        NaN null. Raises ValueError for a name or an item that cannot be used, and TypeError for a value that cannot become
        JSON; then none is added."""
        items = [encoded_item(name, one) for one in (item if isinstance(item, (list, tuple)) else [item])]
        size = self._item_bytes + sum(len(one.json) for one in items)
        if size > MAX_ITEM_BYTES:
            raise ValueError(f"the items of a page may have {MAX_ITEM_BYTES:,} bytes")
        self._item_bytes = size
        self._items += items
        return _DONE

    @checked
    def enqueue(
        self,
        urls: Linked | Iterable[Linked],
        priority: float | None = None,
        *,
        label: str = "",
        payload: JsonDict | None = None,
        **request: Unpack[RequestOptions],
    ) -> Awaitable[None]:
        """Follow the links `urls`, relative to `page.base`, as far as the scope of the crawl allows: URLs as text or as
        `yarl.URL`, links of the page, its elements with an href or src, or `Request`s. None and elements without one are
        skipped. `priority`, from -1e11 to 1e11: a higher one is fetched earlier; None: that of other links. `label` and
        `payload`, a dict of at most 16 KiB as JSON, are those of the page when it is handled. A link that the page has
        gets all these. A URL that was queued before is requested once more for each new label and `unique_key`, and
        otherwise keeps its own. The others are options of a `Request`, for all `urls` that are none. Raises TypeError
        for anything else; then none is added."""
        options = Request("", **request) if request else _PLAIN
        if priority is not None:
            check_priority(priority)
        links: Iterable[Any] = [urls]
        if isinstance(urls, Iterable) and not isinstance(urls, (str, bytes, Mapping)) and not hasattr(urls, "attrs"):
            links = urls
        tag = tag_of(label, payload, options.request)
        added, tag_bytes = list[Wanted](), self._tag_bytes
        for link in links:
            if (url := _written(link)) is None:
                continue
            wanted = Wanted(url, priority, tag, options.key)
            if isinstance(link, Request):
                wanted = Wanted(url, priority, tag_of(label, payload, link.request), link.key)
            added.append(wanted)
            tag_bytes += len(wanted.tag)
            if len(self._added) + len(added) > MAX_ADDED or tag_bytes > MAX_TAG_BYTES:
                most = f"{MAX_ADDED:,} links to a page, with {MAX_TAG_BYTES >> 20} MiB of payloads and requests"
                raise ValueError(f"a handler may add {most}")
        self._added += added
        self._tag_bytes = tag_bytes
        return _DONE

    def fetch(self, url: Linked, **request: Unpack[RequestOptions]) -> Awaitable[ParsedPage]:
        """Request `url`, relative to `page.base`, and return the answer as a page. Waits for its turn at the domain, as all
        requests of the crawl do, while the time of the handler runs. `url`: as in `enqueue`, also a `Request`, of which
        `request` are the options otherwise. Any status is an answer, and redirects are followed. The answer is archived
        with the page. Raises `Refused` if the request may not be made, and `FetchFailed` if there is no answer. Only for
        `async def` handlers."""
        wanted = as_request(url, request)
        return self._able().fetch(wanted)

    def download(self, url: Linked, **request: Unpack[RequestOptions]) -> Awaitable[Download]:
        """Fetch `url` as `fetch` does, and save it in the output folder as a file that is named after its digest, once for
        all URLs with the same contents. Raises as `fetch`, and `Refused` for another status than 200 and for a body that
        is not complete."""
        wanted = as_request(url, request)
        return self._able().download(wanted)

    def _able(self) -> Requests:
        """What makes requests. Raises RuntimeError in a thread and in another event loop, and Refused without a crawl."""
        check_loop(self._loop)
        if self._requests is None:
            raise Refused("offline", "requests are made in a crawl only")
        return self._requests

    @checked
    def drop(self, pattern: str = "") -> Awaitable[None]:
        """Don't follow links whose URL matches the regular expression `pattern`. Without a pattern, follow none.
        Links passed to `enqueue` are followed all the same."""
        self._dropped.append(_pattern(pattern))
        return _DONE

    @checked
    def stop(self, reason: str = "") -> Awaitable[None]:
        """End the crawl on all replicas, within some seconds, as `crawler stop` does; `reason` goes into the log. Requests
        in flight end and are kept. A program that runs again goes on with what is queued; `crawler resume` lets others go
        on."""
        self._stop = reason
        return _DONE

    def result(self, handler: str = "") -> Handled:
        """Return what `handler` asked for."""
        return Handled(tuple(self._items), tuple(self._added), tuple(self._dropped), handler=handler, stop=self._stop)


def as_request(link: Linked, options: RequestOptions) -> Request:
    """The request for `link`, with these options unless it is a request. Raises ValueError if it has no URL."""
    if isinstance(link, Request):
        return link
    if not (written := _written(link)):
        raise ValueError("there is no URL: it is None or empty, or an element without href and src")
    return Request(written, **options)


def encoded_item(name: str, item: object) -> Item:
    """Return `item` of the data set `name` as it is written. Raises ValueError and TypeError."""
    if not DATA_SET.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a data set: use letters, digits, _, - and .")
    try:
        encoded = readable(msgspec.json.encode(item))
    except UnicodeEncodeError:  # half of a surrogate pair
        encoded = msgspec.json.encode(plain(msgspec.to_builtins(item)))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WrongArgument(f"the item cannot become JSON: {error}") from error
    if not encoded.startswith(b"{"):
        raise ValueError(f"an item has to be a dict, not {type(item).__name__}")
    if b"\n" in encoded:  # only within a msgspec.Raw, and an item must be in one line
        encoded = msgspec.json.encode(msgspec.json.decode(encoded))
    return Item(name, encoded)


def _written(link: Linked) -> str | None:
    if link is None or isinstance(link, str):
        return link
    if isinstance(link, (Link, Request)):
        return link.url
    if isinstance(link, URL):
        return str(link)
    if hasattr(link, "attrs"):  # an element: turbohtml is imported only for documents that are parsed
        href = link.attrs.get("href", link.attrs.get("src"))
        return href if isinstance(href, str) else None
    raise WrongArgument(
        f"a URL has to be text, a yarl.URL, a link or element of a page, or a Request, not {type(link).__name__}"
    )
