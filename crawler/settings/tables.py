"""The tables of settings: the meaning, unit and default of each setting, and what happens when it is raised or lowered.

`[politeness]` to `[handlers]` belong to a crawl. Running replicas apply a change of these (`crawler.app.crawl_settings`),
except where it needs a restart: the reason is given for a whole table in `Table.restart`, or for a single setting as
`restart` in `Meta.extra`. `[replica]`, `[identity]` and `[[requests]]` belong to one replica and are never read from
Redis: whoever can write there must not choose where a machine sends its secrets, through which proxy, and with which keys
it signs.
"""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from crawler import __version__
from crawler.errors import UserError
from crawler.fetch.address_policy import WEB_PORTS, AddressPolicy, HostMap
from crawler.fetch.proxy import Proxy
from crawler.http_head import is_of_the_client
from crawler.identity.published import LONGEST_VALIDITY_S, is_https_url
from crawler.scope.extract_rules import (
    ExtractRule,
    FieldRule,
    FieldType,
    PageFact,
    check_field,
    check_match,
    check_name,
    check_path,
    check_regex,
    check_selector,
    check_xpath,
)
from crawler.scope.next_visit import parse_rules
from crawler.scope.page_steps import PageSteps
from crawler.scope.scope import Scope
from frontier.errors import BadInput
from frontier.keys import MOST_SHARDS
from frontier.redis_url import check_url
from frontier.urls import SESSION_PARAMS, TRACKING_PARAMS, UrlPattern, canonicalize
from politeness.robots_syntax import is_product_token
from politeness.usage import Category

NotNegative = Annotated[float, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(gt=0)]

LOADED = "code is loaded when a replica starts"
"""Why a change of a setting that names code needs a restart."""


def checked_by(check: Callable[[Any], object]) -> Meta:
    """Have `check` called with the value. It raises UserError or BadInput if the value cannot be used."""
    return Meta(extra={"check": check})


def restarts(reason: str) -> Meta:
    """Why a change of this key needs a restart, instead of the reason of its table."""
    return Meta(extra={"restart": reason})


class Table(msgspec.Struct, frozen=True):
    """A table of the TOML file. `restart`: why a change of its settings needs a restart of the replicas; empty if it does
    not.

    A key is declared as `name: Annotated[TYPE, Meta(...), "its meaning"] = DEFAULT`, with `checked_by` and `restarts` if
    need be. Only `crawler.settings.load` checks values. This module does not postpone annotations, which would be compiled
    again in each process."""

    restart: ClassVar[str] = ""

    @classmethod
    def waits_because(cls, key: str) -> str:
        """Why a change of the setting `key` needs a restart of the replicas, or "" if running replicas apply it."""
        return str(keys_of(cls)[key].extra.get("restart", cls.restart))


class Key(msgspec.Struct, frozen=True):
    """How a key was declared. A `default` of None also means that it may be unset. `type`: that of its value, or of an
    item if it `is_list`, or of each value if it `is_map`, whose keys are free: a Table, bool, int, float, str, Path or
    a Literal; `about`: all that is in an Annotated."""

    default: Any
    is_list: bool
    type: Any
    about: tuple[Any, ...]
    is_map: bool = False

    @property
    def is_table(self) -> bool:
        return isinstance(self.type, type) and issubclass(self.type, Table)

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts of a Literal."""
        return get_args(self.type)

    @property
    def meaning(self) -> str:
        return next(text for text in self.about if isinstance(text, str))

    @property
    def extra(self) -> dict[str, Any]:
        return {name: value for extra in self.meta_values("extra") for name, value in extra.items()}

    @property
    def item_type(self) -> Any:
        return Annotated[(self.type, *self.about)]

    def meta_values(self, name: str) -> list[Any]:
        """The values of `name`, such as "ge", in the Metas of the declaration."""
        return [value for meta in self.about if (value := getattr(meta, name, None)) is not None]


@functools.cache
def keys_of(table: type[Table]) -> dict[str, Key]:
    """The keys of `table`. A field whose name begins with an underscore is not a key."""
    fields = (field for field in msgspec.structs.fields(table) if not field.name.startswith("_"))
    return {field.name: _key(field.type, field.default) for field in fields}


def _key(kind: Any, default: Any) -> Key:
    about: list[Any] = []
    is_list = is_map = False
    while (origin := get_origin(kind)) not in (None, Literal):  # Annotated, tuple, dict, or None beside another type
        about += getattr(kind, "__metadata__", ())
        kind = get_args(kind)[1 if origin is dict else 0]
        is_list, is_map = is_list or origin is tuple, is_map or origin is dict
    return Key(default, is_list, kind, tuple(about), is_map)


HOME_PAGE = "https://pypi.org/project/peercrawl/"

_NEW_URLS = "replicas with different values would queue the same page under two URLs; stop them all first"


class PolitenessTable(Table, frozen=True, kw_only=True):
    """Delays, backoff and robots.txt: how the crawler limits the load on each site."""

    delay: Annotated[
        NotNegative,
        "Minimum number of seconds between the end of a response from a domain and the next request to it. "
        "Higher: gentler on the site; lower: faster. Set 0 only for your own sites.",
    ] = 1.0
    parallel: Annotated[
        int,
        Meta(ge=1, le=64),
        "Maximum number of requests in flight to one domain, for your own sites. A value above 1 applies "
        "only while no delay is in force: `delay` is 0 (or `crawler delay DOMAIN 0` was run), robots.txt has no "
        "Crawl-delay, and no response such as 429 or 503 has caused a backoff within `backoff_forgiven`.",
    ] = 1
    shared: Annotated[
        bool,
        "Whether to share the delay of each domain with the other crawls on the same Redis that set this, too: then only "
        "one of them makes a request to a domain at a time, and the next one waits until the delay has ended. `parallel` "
        "is 1 then, and each request takes two more calls to Redis.",
    ] = False
    crawl_delay_cap: Annotated[
        NotNegative,
        "Maximum Crawl-delay of robots.txt, in seconds, that is respected; of longer ones, only this much. Heritrix has "
        "the same cap. 0: Crawl-delay is ignored.",
    ] = 300.0
    response_share: Annotated[
        NotNegative,
        "The delay of a domain is at least this many times the duration of its last response. Higher: "
        "gentler on slow sites; 0: off. It is also off for the whole crawl if `delay` is 0, and for a domain with "
        "`crawler delay DOMAIN 0`.",
    ] = 1.0
    response_share_cap: Annotated[NotNegative, "Maximum delay, in seconds, that `response_share` can cause."] = 30.0
    backoff_base: Annotated[
        PositiveFloat,
        "Backoff of a domain, in seconds, after its first 429, 503, timeout, or connection that is refused or breaks. It "
        "doubles with each further failure. After 16 failures in a row, the URLs of the domain become dead letters with "
        "the reason `given_up_` and that of the last failure.",
    ] = 60.0
    backoff_max: Annotated[PositiveFloat, "Maximum backoff in seconds, which also limits Retry-After."] = 86_400.0
    backoff_forgiven: Annotated[
        NotNegative, "Seconds without a failure after which the backoff of a domain starts from its base again."
    ] = 1_800.0
    address_rate_limit: Annotated[
        Literal["off", "replica", "crawl"],
        "Whether all domains at one network address share a rate limit: across all replicas of the crawl "
        "(`crawl`), within each replica (`replica`), or not at all (`off`). Shared hosts serve thousands of domains "
        "from one machine, and only a limit across all replicas protects it when many of them are crawled.",
    ] = "crawl"
    address_rate: Annotated[
        PositiveFloat | None,
        "Average number of requests per second to one address (for IPv6, one /64). Unset: the rate of ten "
        "domains, 10 / `delay`, or no limit when `delay` is 0. Higher: the domains of a large host or content delivery "
        "network are crawled faster; lower: gentler on small machines with many domains.",
    ] = None
    address_burst: Annotated[
        PositiveInt,
        "Number of requests that may be sent to an address at once after a pause. The average rate stays "
        "`address_rate`.",
    ] = 5
    tries: Annotated[
        PositiveInt,
        Meta(le=15),
        "Maximum number of requests for a URL before it becomes a dead letter. Once so many attempts in a row to fetch "
        "the robots.txt of an origin have failed, its URLs become dead letters, too; if the host does not exist (an "
        "authoritative DNS answer), the limit is 2.",
    ] = 4
    robots_max_age: Annotated[
        PositiveFloat,
        Meta(le=86_400.0),
        "Seconds for which a robots.txt is used before it is fetched again. RFC 9309 2.4 allows at most a day.",
    ] = 86_400.0
    purpose: Annotated[
        tuple[Category, ...],
        "What the pages are for: `search`, `train-ai` or `ai-use`, the categories of the IETF's AI "
        "preferences. Pages whose owner refuses one of them are not fetched, or not kept if this is only known from the "
        "response; their URLs are denied with the reason `usage`. Empty: preferences are recorded, but not obeyed.",
    ] = ()
    tdmrep: Annotated[
        Literal["auto", "always", "never"],
        "Whether to fetch /.well-known/tdmrep.json, the reservations of the TDM Reservation Protocol, with "
        "each robots.txt: one more request to each origin a day. `auto`: only if `purpose` has `train-ai` or `ai-use`, "
        "because the protocol says nothing about search.",
    ] = "auto"


_Patterns = Annotated[tuple[str, ...], checked_by(lambda patterns: Scope.of(include=patterns))]


LinkKindName = Literal["canonical", "next", "prev", "alternate", "feed", "src", "srcset", "data-src", "json-ld"]


class ScopeTable(Table, frozen=True, kw_only=True):
    """Which links belong to the crawl. Changes apply to URLs that are queued already, too, except those of `max_hops` and
    of a `kind` that becomes `seeds`; to seeds, only `exclude` applies."""

    kind: Annotated[
        Literal["seeds", "domains", "hosts", "any"],
        "Which sites are in scope. `seeds`: the registrable domains of the seeds; `domains` or `hosts`: "
        "those listed in `domains`; `any`: the whole web.",
    ] = "seeds"
    domains: Annotated[
        tuple[str, ...],
        checked_by(lambda names: Scope.of(names=names)),
        'The domains or hosts in scope, for `kind = "domains"` or `"hosts"`.',
    ] = ()
    include: Annotated[
        _Patterns, "Regular expressions. If any are given, a URL must match one of them to be in scope."
    ] = ()
    exclude: Annotated[_Patterns, "Regular expressions. A URL that matches one of them is out of scope."] = ()
    max_depth: Annotated[
        Annotated[Count, Meta(le=255)] | None, "Maximum number of links from a seed to a page. Unset: no limit."
    ] = None
    max_hops: Annotated[
        Count, Meta(le=20), "Maximum number of consecutive redirects, and of sitemap indexes that name each other."
    ] = 20
    sitemaps: Annotated[bool, "Fetch the sitemaps that robots.txt names, and queue the URLs that they list."] = True
    guess_sitemaps: Annotated[
        bool,
        "Fetch /sitemap.xml from hosts of seeds whose robots.txt names no sitemap. Off: one request less to each of them.",
    ] = True
    links: Annotated[
        tuple[LinkKindName, ...],
        "Which links to follow besides those of `a` elements and frames. `canonical`, `next`, `prev` and `alternate` "
        "(translations and other versions): in `link` elements, Link headers and sitemaps. `feed`: what RSS, Atom and "
        "JSON feeds list, and the feeds that seeds announce. `src`, `srcset` and `data-src`: images and media. "
        "`json-ld`: each `url` in data for search engines.",
    ] = ("canonical", "next", "prev", "alternate", "feed")
    strip_params: Annotated[
        tuple[str, ...],
        restarts(_NEW_URLS),
        "Query parameters to remove from every URL, because they do not change the page. A name that "
        "ends in `*` is a prefix.",
    ] = TRACKING_PARAMS
    session_params: Annotated[
        tuple[str, ...],
        restarts(_NEW_URLS),
        "Parameters to remove from the query and the path if their value looks like a session id. If you "
        "change this or `strip_params` during a crawl, pages whose URLs change are fetched again.",
    ] = SESSION_PARAMS
    actions: Annotated[
        Literal["avoid", "follow"],
        "Links that look as if they log out, delete, edit, unsubscribe or fill a cart. `avoid`: they are denied where a "
        "rule in `[[requests]]` sends secrets or keeps cookies. Elsewhere, those with a query come last, as do other views "
        "of a page, such as its history. `follow`: they are treated like other links.",
    ] = "avoid"
    nofollow: Annotated[bool, "Respect `rel=nofollow`, and `nofollow` in meta robots and X-Robots-Tag."] = True


class LimitsTable(Table, frozen=True, kw_only=True):
    """Upper limits on what a crawl fetches and stores."""

    max_pages: Annotated[
        Count,
        "Maximum number of pages that the whole crawl fetches. Every URL that ends as done counts, "
        "including error pages such as a 404. A page whose handler fails is dead and does not count. 0: no limit.",
    ] = 0
    max_time: Annotated[
        NotNegative,
        "Seconds after which the crawl ends. Time in which no replica runs, or all are paused or wait for room on "
        "their disks, does not count. The crawl ends up to two seconds later. 0: no limit.",
    ] = 0.0
    max_bytes: Annotated[
        Count,
        "Number of received bytes of pages after which the whole crawl ends. It is read each second, with more than 250 "
        "shards every 4 ms for each; what is received until then and in the next two seconds comes on top. 0: no limit.",
    ] = 0
    max_failed: Annotated[
        Count,
        "Number of dead URLs at which the whole crawl ends, read as often as `max_bytes`. 0: no limit.",
    ] = 0
    max_requests: Annotated[
        Count,
        "Number of requests at which the whole crawl ends, read as often as `max_bytes`. Retries count, pages whose "
        "handler fails, what pages embed or load, and what handlers fetch; requests for robots.txt do not. 0: no limit.",
    ] = 0
    max_items: Annotated[
        Count,
        "Number of items, of all data sets together, at which the whole crawl ends, read as often as `max_bytes`. "
        "0: no limit.",
    ] = 0
    domain_cap: Annotated[
        Count,
        "Maximum number of URLs accepted per domain in the whole crawl; the rest are dropped and counted. Links from "
        "pages of other domains fill half of it at most. 0: no limit.",
    ] = 0
    put_off_share: Annotated[
        float,
        Meta(ge=0, le=1),
        "Share of the pages of a domain, and at least ten, that are fetched of URLs that are put off: once 30 pages "
        "with a path and parameters like theirs were fetched, and 80 % of them say noindex and lead to nothing new, "
        "have the body of another page or are near duplicates, such URLs come last. Those beyond the share, and beyond "
        "what those with new text earn, are denied with the reason `put_off`. 1: nothing is put off.",
    ] = 0.1
    max_body: Annotated[
        PositiveInt,
        "Maximum size of a response body as received, in bytes. A longer body is truncated, and its "
        "record is marked as truncated.",
    ] = 10_485_760
    max_decoded: Annotated[
        PositiveInt,
        "Maximum size of a body after decompression, in bytes. Limits the effect of a compression bomb. "
        "All of it is searched for links; a document that may take more than 50 milliseconds is parsed in a separate "
        "process (`replica.text_processes`).",
    ] = 33_554_432
    max_links: Annotated[
        PositiveInt, "Maximum number of links taken from a page; the rest are dropped and counted."
    ] = 10_000
    max_link_bytes: Annotated[
        PositiveInt,
        "Maximum length of all links taken from a page together, in bytes; the rest are dropped and "
        "counted. A sitemap may have as many more as its own size. Links may be much longer than the page, because each "
        "may repeat a long base URL. They are sent to Redis and written to the archive.",
    ] = 1_048_576


class FrontierTable(Table, frozen=True, kw_only=True):
    """The queue of URLs in Redis."""

    shards: Annotated[
        int,
        Meta(ge=1, le=MOST_SHARDS),
        restarts("every key of the crawl depends on it"),
        "Number of partitions of the frontier; use at least 32 for each replica that you may ever run. "
        "Only `crawler reshard` can change it later. Higher: load is spread more evenly; lower: fewer calls to Redis. "
        "With the embedded server, the default is 64.",
    ] = 1_024
    lease: Annotated[
        float,
        Meta(ge=1),
        restarts("a replica relies on the lease time that it requested"),
        "Seconds for which a domain stays leased to a replica that has stopped responding. Lower: "
        "another replica takes over sooner, but leases are renewed more often.",
    ] = 30.0
    batch: Annotated[
        int,
        Meta(ge=1, le=1_000),
        "Maximum number of URLs in a lease. Higher: fewer round trips to Redis; lower: priorities are "
        "followed more strictly.",
    ] = 32
    replicas_ack: Annotated[
        int,
        Meta(ge=0, le=5),
        "Number of replicas of a Redis node that must have received a page's links before the page counts as "
        "settled (WAIT). Set it to 1 for a Redis Cluster whose nodes have replicas: a page is then never settled on one "
        "node while a failover of another forgets its links. Links wait while a node has fewer replicas. On a single "
        "server, 0 is as safe, because links and settlements are replicated in order.",
    ] = 0
    pack_above: Annotated[
        Count,
        "Number of queued URLs of a domain from which on those of the lowest priority are packed into compressed "
        "blocks, which take an eighth of the memory of Redis. At least two leases (frontier.batch) stay unpacked. Higher: "
        "less CPU time for long queues; below 100: much more, and less is saved; 0: nothing is packed.",
    ] = 1_000
    scorer: Annotated[
        str,
        restarts(LOADED),
        "Function that computes the priority of a URL, as `module:function`: (url, depth, kind) -> "
        "float, from -1e11 to 1e11. URLs with a higher value are fetched earlier. Empty: breadth first.",
    ] = ""


def _check_product_token(name: str) -> None:
    if not is_product_token(name):
        raise UserError(
            f"{name!r} cannot be used in robots.txt: use letters, - and _ only (RFC 9309 2.2.1); the version is added"
        )


def _check_contact(contact: str) -> None:
    if not contact.strip() or not contact.isascii() or not contact.isprintable():
        raise UserError(
            "is sent in the User-Agent header: write a URL or an email address, in ASCII and without line breaks"
        )


class FetchTable(Table, frozen=True, kw_only=True):
    """How requests are made."""

    restart: ClassVar[str] = "open connections were made with the old value"

    user_agent: Annotated[
        str,
        checked_by(_check_product_token),
        restarts("robots.txt files and records already use the old name"),
        "Product name in the User-Agent header, and the token by which robots.txt groups are matched.",
    ] = "peercrawl"
    contact: Annotated[
        str,
        checked_by(_check_contact),
        "URL or email address at which webmasters can reach you, sent in the User-Agent header. Set it for "
        "every crawl beyond your own hosts: without it, commands that start a crawl print a warning, and refuse one with "
        '`scope.kind = "any"`.',
    ] = HOME_PAGE
    timeout: Annotated[
        PositiveFloat, "Time limit for a whole response, in seconds. A response that takes longer is truncated."
    ] = 60.0
    connect_timeout: Annotated[
        PositiveFloat, "Time limit for name resolution, connection and TLS handshake, in seconds."
    ] = 15.0
    read_timeout: Annotated[PositiveFloat, "Seconds without a received byte after which a request is aborted."] = 20.0
    verify_tls: Annotated[bool, "Whether TLS certificates must be valid."] = True
    allow_private: Annotated[
        bool,
        "Whether to allow connections to private, loopback, shared and unique-local addresses. Link-local ones "
        "and those of cloud metadata need `allow`.",
    ] = False
    allow: Annotated[
        tuple[str, ...],
        checked_by(AddressPolicy.of),
        "Non-public networks, such as `10.1.0.0/16`, or `localhost`, to which connections are allowed. The rest of "
        "your network stays blocked.",
    ] = ()
    ports: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=65_535)], ...],
        "Ports that a URL may use. A URL with another port is denied with the reason `forbidden_port`.",
    ] = tuple(sorted(WEB_PORTS))
    host_map: Annotated[
        tuple[str, ...],
        checked_by(HostMap.parse),
        "Entries `PATTERN=ADDRESS:PORT`: connect to that address for hosts that match the pattern. For "
        "tests and staging.",
    ] = ()

    @property
    def user_agent_header(self) -> str:
        return f"{self.user_agent}/{__version__} (+{self.contact})"


class RecrawlTable(Table, frozen=True, kw_only=True):
    """Visiting pages again. Off unless there are rules."""

    rules: Annotated[
        tuple[str, ...],
        Meta(examples=[["type=image/* never", "adaptive min=1h max=30d start=1d"]]),
        checked_by(parse_rules),
        "Which pages are visited again, and how often. The first rule that matches a page counts; a page that none "
        "matches is not visited again. A rule has conditions (`match=` a regular expression for the URL, `host=` a "
        "host with its subdomains, `type=` a media type such as `image/*`) and one policy: `never`, `every=6h`, or "
        "`adaptive`, which estimates from the visits so far how often each page changes, with `min=` (1h), `max=` (30d), "
        "`start=` (1d) and `gain=` (30m). `gain`: how much longer a page must be up to date because of a visit. Higher: "
        "fewer visits. With `cache`, a page is not visited while its response says that it is fresh. With `text`, "
        "a page has changed only if its main text has. Uses more CPU. "
        "Empty: no page is visited again.",
    ] = ()
    share: Annotated[
        float,
        Meta(ge=0, le=1),
        "Share of a domain's turns for pages that are visited again while new pages are queued. Higher: the copy is "
        "fresher; lower: new pages are found sooner. If only one kind is queued, it gets all turns.",
    ] = 0.5


UPLOAD_SCHEMES = ("s3", "gs", "az", "abfs", "file")
"""The schemes of `archive.upload`. A text without a scheme is a folder."""


def _check_destination(url: str) -> None:
    scheme, mark, rest = url.partition("://")
    before, slashes, _ = url.partition("//")
    lacks_colon = slashes and before in UPLOAD_SCHEMES
    if lacks_colon or (mark and (scheme not in UPLOAD_SCHEMES or not rest)):
        raise UserError("write it as s3://BUCKET/PREFIX, gs://, az:// or the path of a folder")


class ArchiveTable(Table, frozen=True, kw_only=True):
    """The files that a crawl writes."""

    restart: ClassVar[str] = "open files were started with the old value"

    warc: Annotated[bool, "Write WARC 1.1 files."] = True
    pages: Annotated[bool, "Write a JSON line for each URL that is settled."] = True
    noarchive: Annotated[
        bool, "Respect `noarchive` in meta robots and X-Robots-Tag: write only the JSON line of such a page."
    ] = True
    requisites: Annotated[
        bool,
        "Also fetch and archive what pages embed: style sheets, images, scripts, fonts, media and frames, of any host, so "
        "that replay looks like the site. They are no pages: they have no JSON line, do not count in `limits.max_pages`, "
        "and their links are not followed. Each is fetched once, before further pages and at the rate of its site.",
    ] = False
    compression: Annotated[
        Literal["gzip", "zstd"],
        "Compression of the WARC files. `zstd` is slightly smaller; FastWARC reads it, pywb and warcio do not.",
    ] = "gzip"
    links: Annotated[bool, "Include the links of each page in its JSON line."] = True
    metadata: Annotated[bool, "Write a WARC metadata record, with the links, for each page."] = True
    via: Annotated[
        bool,
        "Include in each JSON line and metadata record the page on which the URL was first found. Stores "
        "that page's URL in Redis with each queued URL.",
    ] = False
    index: Annotated[bool, "Write a CDXJ index for each WARC file, which pywb needs for replay."] = True
    text: Annotated[
        Literal["off", "text", "markdown"],
        "Include the main text of each page, or its main content as Markdown, in its JSON line. Takes about 20 ms of "
        "CPU for a page in `replica.text_processes`, beside the crawl; `crawler export` can do the same later.",
    ] = "off"
    structured: Annotated[
        bool, "Include the JSON-LD and OpenGraph data of each page in its JSON line. Uses more CPU."
    ] = False
    simhash: Annotated[
        bool, "Include a 64-bit fingerprint of the main text of each page, for finding near duplicates. Uses more CPU."
    ] = False
    near_duplicates: Annotated[
        Literal["off", "mark", "drop"],
        "How to treat pages whose main text is nearly the same as that of an earlier page of the replica. "
        "`mark`: name that page in the JSON line; `drop`: also omit the WARC records and the text if title and heading "
        "are the same, too. Uses more CPU.",
    ] = "off"
    soft_404: Annotated[
        Literal["off", "mark", "drop"],
        "How to treat error pages that are sent with status 200 instead of 404. `mark`: mark the JSON "
        "line; `drop`: also omit the WARC records and the text if an earlier error page of the site has the "
        "same title and text. Uses more CPU.",
    ] = "off"
    near_remembered: Annotated[
        Count,
        "Number of pages that a replica remembers for `near_duplicates`. Each takes about 200 bytes of "
        "memory. Higher: copies are found across more pages.",
    ] = 131_072
    parquet: Annotated[bool, "Convert each finished file of JSON lines to a Parquet file. Requires pyarrow."] = False
    upload: Annotated[
        str,
        checked_by(_check_destination),
        "Destination to which finished files are copied: `s3://bucket/prefix`, `gs://`, `az://` or a "
        "folder. Requires obstore.",
    ] = ""
    keep_local: Annotated[
        bool, "Keep local files after upload. If false, delete each file once its copy has been verified."
    ] = True
    on_page: Annotated[
        tuple[str, ...],
        restarts(LOADED),
        "Page hooks: `package.module:function`, or the name of an installed hook. See docs/how-to/extend.md.",
    ] = ()
    sinks: Annotated[
        tuple[str, ...],
        restarts(LOADED),
        "Additional sinks: `package.module:factory`, or the name of an installed sink. See docs/how-to/extend.md.",
    ] = ()
    max_bytes: Annotated[PositiveInt, "Size of a WARC file, in bytes, at which the next file is started."] = (
        1_073_741_824
    )
    max_age: Annotated[
        PositiveFloat, "Maximum time, in seconds, for which an output file stays open before the next one is started."
    ] = 3_600.0
    fsync: Annotated[
        bool, "Flush files to disk before a URL is settled. Slower; without it, a power failure can lose pages."
    ] = False
    revisits: Annotated[
        Count,
        "Number of response bodies that are remembered, so that a later identical body is written as a "
        "revisit record. 0: write no revisit records.",
    ] = 16_384


class FieldTable(Table, frozen=True, kw_only=True, omit_defaults=True):
    """A field of an item of the `[[extract]]` before it, also written `NAME = { KEY = VALUE }` in `[extract.fields]`."""

    css: Annotated[
        str,
        checked_by(check_selector),
        "CSS selector of the elements whose text is the value; with `each`, within its element. With `each` and no source, "
        "the value is the text of the element itself.",
    ] = ""
    attr: Annotated[
        str, "Attribute that is the value, instead of the text. With `each` and no `css`, that of its element."
    ] = ""
    xpath: Annotated[
        str, checked_by(check_xpath), "XPath expression that selects elements, attributes or texts, instead of `css`."
    ] = ""
    json_ld: Annotated[
        str,
        checked_by(check_path),
        "Path of the value in the JSON-LD of the page: a type and keys, such as `Product.offers.price`. Of several "
        "objects of the type, the first of the least nested ones counts.",
    ] = ""
    microdata: Annotated[str, checked_by(check_path), "The same, in the microdata of the page (`itemprop`)."] = ""
    rdfa: Annotated[str, checked_by(check_path), "The same, in the RDFa of the page (`property`)."] = ""
    page: Annotated[PageFact | None, "Something that is known of the page."] = None
    value: Annotated[str, "This text, the same for all items."] = ""
    regex: Annotated[
        str,
        checked_by(check_regex),
        "Regular expression (PCRE2). The part of the value that it matches is used, its first group if it has one. "
        "Without another source, it is searched in the source text of the page.",
    ] = ""
    type: Annotated[
        FieldType,
        "What the value must be. `decimal`: a number such as 1,234.50 with any currency around it; `decimal_comma`: one "
        "such as 1.234,50; `url`: resolved to an absolute URL; `date`: written as in ISO 8601.",
    ] = "text"
    list: Annotated[bool, "Whether to take all values, as a list, instead of the first."] = False
    required: Annotated[bool, "Whether an item without this value is rejected."] = False

    def rule(self, name: str) -> FieldRule:
        return FieldRule(name, **asdict(self))


class ExtractTable(Table, frozen=True, kw_only=True):
    """Items of one data set, extracted without code: `[[extract]]`. See docs/how-to/extract-data.md."""

    name: Annotated[str, Meta(examples=["products"]), checked_by(check_name), "Data set of the items."]
    match: Annotated[
        str,
        Meta(examples=["/product/"]),
        checked_by(check_match),
        "Regular expression that is searched in the URL of a page. Empty: all pages.",
    ] = ""
    content_type: Annotated[str, "Media type of the pages, such as `text/html`, or `text/*`. Empty: any."] = "text/html"
    each: Annotated[
        str,
        Meta(examples=["li.product"]),
        checked_by(check_selector),
        "CSS selector of the elements that are an item each. Empty: the page is one item.",
    ] = ""
    fields: Annotated[
        dict[str, FieldTable],
        Meta(examples=[{"title": {"css": "h1", "required": True}}]),
        "Fields of an item, by name.",
    ]

    def __post_init__(self) -> None:
        if not self.fields:
            raise UserError("`fields` needs at least one field")
        for name, field in self.fields.items():
            try:
                check_field(field.rule(name), bool(self.each))
            except UserError as error:
                raise UserError(f"fields.{name}: {error}") from error

    def rule(self) -> ExtractRule:
        fields = tuple(field.rule(name) for name, field in self.fields.items())
        return ExtractRule(self.name, fields, self.match, self.content_type.lower(), self.each)


class HandlersTable(Table, frozen=True, kw_only=True):
    """The handlers of a crawl, which find items on its pages."""

    restart: ClassVar[str] = LOADED

    app: Annotated[
        str,
        "Router with the handlers: `package.module:router`, or the name of an installed one. See "
        "docs/how-to/extract-data.md.",
    ] = ""
    concurrency: Annotated[
        int,
        Meta(ge=1, le=1_000),
        "Maximum number of handlers that run at the same time in a replica. Those that wait for `crawl.fetch` or "
        "`crawl.download` do not count, unless their page is large, or this is 1. Higher: handlers that wait for other "
        "services do not hold up each other; lower: less memory.",
    ] = 16
    timeout: Annotated[
        PositiveFloat,
        "Seconds after which a handler has failed. Its page is then dead, with the reason `handler_timeout`, or fetched "
        "again, up to `politeness.tries` times, if a request of the handler waited for others. When `concurrency` "
        "handlers run already, the time until one with an answer may go on counts, too.",
    ] = 30.0
    tries: Annotated[
        PositiveInt,
        Meta(le=15),
        "Maximum number of requests for a page whose handler fails before it becomes a dead letter. Requests that "
        "failed for other reasons count, too. Higher: handlers that need other services get over their outages, but one "
        "with an error costs sites as many requests for each page.",
    ] = 1


def _check_patterns(patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        UrlPattern(pattern)


class RenderTable(Table, frozen=True, kw_only=True):
    """Rendering of pages in a browser. See docs/how-to/render-pages.md."""

    restart: ClassVar[str] = "browsers are started with these settings"

    mode: Annotated[
        Literal["off", "auto", "always"],
        "`auto`: render the pages that need it. `always`: all HTML pages, except those that `never` names. `off`: none, "
        "and `always` and `never` mean nothing. A rendered page costs hundreds of times the CPU of another one, and "
        "requests for its scripts and data.",
    ] = "off"
    always: Annotated[
        tuple[str, ...],
        checked_by(_check_patterns),
        "Regular expressions: render the pages in whose URL one is found, even if their robots.txt asks for a delay of "
        "more than 10 seconds.",
    ] = ()
    never: Annotated[
        tuple[str, ...],
        checked_by(_check_patterns),
        "Regular expressions: never render the pages in whose URL one is found.",
    ] = ()
    time: Annotated[
        float,
        Meta(gt=0, le=25),
        "Seconds for a page in the browser. Then it is taken as it is, or at most 5 seconds later as the server has sent "
        "it.",
    ] = 20.0
    settle: Annotated[
        float, Meta(ge=0, le=10), "Seconds without a request after which a loaded page counts as complete."
    ] = 0.5
    grow: Annotated[
        Count,
        "Pixels to which the window may grow, so that a page loads what it shows on scrolling. 0: do not scroll.",
    ] = 20_000
    load: Annotated[
        tuple[Literal["script", "stylesheet", "xhr", "frame", "image", "font"], ...],
        "What pages may load. `xhr`: data that scripts ask for. Add `image` and `font` for archives and screenshots.",
    ] = ("script", "stylesheet", "xhr", "frame")
    requests: Annotated[PositiveInt, Meta(le=200), "Maximum number of requests of a page. Others are refused."] = 150
    max_bytes: Annotated[PositiveInt, "Maximum size of all that a page loads, in bytes, decoded."] = 20 << 20
    memory: Annotated[
        int,
        Meta(ge=256 << 20),
        "Maximum memory for data of each process of a browser, in bytes. If all its processes need one and a half times as "
        "much, it is killed.",
    ] = 1 << 30
    parallel: Annotated[
        int, Meta(ge=1, le=6), "Maximum number of requests of a page that are in flight to a domain at the same time."
    ] = 2
    delay_share: Annotated[
        float,
        Meta(ge=0, le=1),
        "Part of the domain's delay that each request of a page adds to the delay after the page, so that the average load "
        "stays what it is.",
    ] = 0.1
    robots: Annotated[
        Literal["all", "pages"],
        "`all`: the robots.txt of each origin decides on the requests of a page, too. `pages`: only on pages; for your own "
        "sites.",
    ] = "all"
    post: Annotated[
        tuple[str, ...],
        "URLs, without a query, to which scripts may send POST requests, such as that of a GraphQL API. All other methods "
        "than GET and HEAD are refused.",
    ] = ()
    steps: Annotated[
        tuple[str, ...],
        checked_by(PageSteps),
        "What browsers do with pages before they are taken: `PATTERN -> STEP; STEP`, with a regular expression for URLs "
        "and the steps `click SELECTOR`, `repeat 5 click SELECTOR`, `remove SELECTOR`, `wait SELECTOR 5s` and `grow`.",
    ] = ()
    without: Annotated[
        Literal["wait", "static"],
        "While no browser works: `wait`: pages wait; `static`: take them as the server sends them.",
    ] = "wait"
    screenshot: Annotated[
        bool,
        "Take a screenshot of each rendered page, 1280 by 1024 pixels: for handlers, and as a record in the archive.",
    ] = False


GUARDED = frozenset(
    {
        *("archive.on_page", "archive.sinks", "frontier.scorer", "handlers.app"),  # code
        *("fetch.allow", "fetch.allow_private", "fetch.host_map", "fetch.ports", "fetch.verify_tls"),  # the network
        "archive.upload",  # where copies go
    }
)
"""Settings of a crawl that a replica takes from Redis only if its own machine allows them (`crawler.settings.guarded`)."""


HIGHEST_PORT = 65_535


def _check_address(listen: str) -> None:
    port = listen.rpartition(":")[2]
    if not port.isdecimal():
        raise UserError(f"{listen!r} is not an address: write it as ADDRESS:PORT, such as 127.0.0.1:9410")
    if int(port) > HIGHEST_PORT:
        raise UserError(f"{listen!r}: {port} is not a port: use 1 to {HIGHEST_PORT}, or 0 for any free port")


def _check_guarded(accept: tuple[str, ...]) -> None:
    for entry in accept:
        if entry.partition("=")[0] not in GUARDED:
            raise UserError(f"{entry!r} names none of {', '.join(sorted(GUARDED))}")


def _check_printable_name(name: str) -> None:
    if not name.isprintable():
        raise UserError(f"{name!r} has a character that cannot be printed")


class ReplicaTable(Table, frozen=True, kw_only=True):
    """The settings of one process."""

    restart: ClassVar[str] = "each process reads it when it starts"

    name: Annotated[
        str,
        checked_by(_check_printable_name),
        "Name of the replica in metrics (`peercrawl_build_info`) and in the log line of its start, which stays the same "
        "after a restart. With `--replicas N`, a number is appended. Empty: the host name.",
    ] = ""
    accept: Annotated[
        tuple[str, ...],
        checked_by(_check_guarded),
        "Guarded settings of the crawl that this replica takes from Redis: `archive.on_page` accepts any "
        "value, `archive.on_page=package.module:function` this one. Values in the replica's own file, environment and "
        "command line need no entry.",
    ] = ()
    redis: Annotated[
        str,
        checked_by(lambda url: url and check_url(url)),
        "URL of Redis or Valkey. Empty: use the embedded server in `data_dir`.",
    ] = ""
    data_dir: Annotated[Path, "Folder in which the embedded server keeps its data."] = Path(".crawler")
    out: Annotated[Path, "Folder for WARC files and JSON lines."] = Path("crawl-out")
    concurrency: Annotated[
        int,
        Meta(ge=1, le=10_000),
        "Maximum number of requests in flight, without those that have waited for a slow server for more than a quarter "
        "of a second, of which there may be four times as many. Higher: more sites are fetched at once, and memory use "
        "grows by one response body per request.",
    ] = 64
    text_processes: Annotated[
        int,
        Meta(ge=1, le=1_000),
        "Maximum number of processes beside the replica that extract the text of pages and read large documents, these "
        "in at most half of them. They start when they are needed, take the CPU time that the replica leaves, and 150 MB "
        "each. One extracts about 50 texts a second.",
    ] = 3
    interval: Annotated[
        PositiveFloat,
        "Seconds between two claims in the peer loop. A dead replica is removed after one to two and an eighth "
        "intervals. Lower: dead replicas are replaced sooner; higher: fewer calls to Redis. With the embedded "
        "server, the default is 0.5.",
    ] = 5.0
    capacity: Annotated[
        PositiveFloat,
        "Weight of this replica when shards are assigned. A replica with 2 gets twice the shards of one with 1.",
    ] = 1.0
    listen: Annotated[
        str,
        checked_by(_check_address),
        "ADDRESS:PORT at which the live page and /metrics are served; a PORT alone is on loopback. Port 0: use "
        "any free port. With `--replicas N`, ports count up from this one.",
    ] = "127.0.0.1:0"
    advertise: Annotated[
        str, "ADDRESS or ADDRESS:PORT at which other replicas reach `listen`. Empty: derived from `listen`."
    ] = ""
    hosts: Annotated[
        tuple[str, ...],
        "Host names under which the live page and /metrics may be addressed, such as that of a proxy. IP "
        "addresses, `localhost` and the name in `advertise` always work. Other names are refused, so that no web page can "
        "read the crawl's state through a browser in your network (DNS rebinding).",
    ] = ()
    browsers: Annotated[
        int,
        Meta(ge=1, le=64),
        "Browsers for pages that are rendered (`[render]`), each with one page at a time. Each takes about half a core and "
        "300 to 400 MB.",
    ] = 1
    browser: Annotated[
        str,
        "Path of the browser: a Chromium. Empty: the headless shell of Debian's package chromium-headless-shell, or else "
        "chromium or Chrome, from where they are usually installed.",
    ] = ""
    browser_isolation: Annotated[
        Literal["auto", "namespace", "flags"],
        "What keeps a browser from the network. `namespace`: the kernel (Linux only); `flags`: its own flags; `auto`: the "
        "first if this machine allows it. See docs/how-to/render-pages.md.",
    ] = "auto"
    grace: Annotated[
        NotNegative, "Seconds to wait for requests in flight when the replica stops. The rest are then cancelled."
    ] = 20.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        "Minimum severity of messages that are logged. `debug` logs each page. `crawler crawl` shows only "
        "warnings unless this is set.",
    ] = "info"
    log_format: Annotated[Literal["console", "json"], "Format of the log, which is written to standard error."] = (
        "console"
    )
    progress: Annotated[
        NotNegative,
        "Seconds between two lines of progress in the log. 0: none. Unless it is set, `crawler run` logs one "
        "every 5 seconds in a terminal.",
    ] = 30.0


def _check_https(url: str) -> None:
    if url and not is_https_url(url):
        raise UserError(
            f"{url!r} is not an https URL that others can fetch, such as https://crawler.example.com/keys.json"
        )


class IdentityTable(Table, frozen=True, kw_only=True):
    """How sites can check who sends the requests (Web Bot Auth)."""

    restart: ClassVar[str] = "each process reads it when it starts"

    keys: Annotated[
        tuple[Path, ...],
        "PEM files with Ed25519 keys; relative paths are looked up in the current folder. The first one signs every "
        "request; all are in the key directory. To change the key, publish the new one in second place first. "
        "Empty: requests are not signed.",
    ] = ()
    directory: Annotated[
        str,
        checked_by(_check_https),
        "URL at which the key directory is published, sent with every request: https, usually with the path "
        "`/.well-known/http-message-signatures-directory`.",
    ] = ""
    lifetime: Annotated[
        int,
        Meta(ge=10, le=LONGEST_VALIDITY_S),
        "Seconds for which the signature of a request is valid. Lower: less time to misuse one that was "
        "intercepted; higher: sites whose clocks are wrong accept it.",
    ] = 60


DIRECT = "direct"
"""The value of `proxy` for no proxy."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 5.6.2: a token."""

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_OTHERWISE = {
    "user-agent": "fetch.user_agent and fetch.contact set it",
    "accept-language": "accept_language sets it",
    "authorization": "it would be in the settings file and in records: use basic_env, bearer_env or headers_env",
    "cookie": "it would be in the settings file and in records: use headers_env, or cookies = true",
}
"""Fields that other settings set."""


def fields_of(lines: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return `lines` ("NAME: VALUE") as names and values. Raises UserError, which does not repeat a value."""
    fields = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name.strip()) and value.strip()):
            raise UserError('write each one as "NAME: VALUE"')
        fields.append((name.strip(), value.strip()))
    return fields


def check_value(value: str) -> str:
    """Return `value` if it can be that of a header field. Raises UserError, which does not repeat it."""
    if not value.isascii() or not value.isprintable() or not value.strip():
        raise UserError("is empty or has a line break, a control character or a character that is not in ASCII")
    return value


def _check_name(name: str, is_secret: bool) -> None:
    lower = name.lower()
    if is_of_the_client(lower) or lower in ("content-encoding", "content-type"):
        raise UserError(f"{name} is set by the crawler itself")
    if lower in _OTHERWISE and not (is_secret and lower in ("authorization", "cookie")):
        raise UserError(f"{name} cannot be set here: {_OTHERWISE[lower]}")


def _check_headers(lines: tuple[str, ...]) -> None:
    for name, value in fields_of(lines):
        _check_name(name, is_secret=False)
        try:
            check_value(value)
        except UserError as error:
            raise UserError(f"the value of {name} {error}") from None


def _check_secret_headers(lines: tuple[str, ...]) -> None:
    for name, variable in fields_of(lines):
        _check_name(name, is_secret=True)
        _check_variable(variable)


def _check_variable(name: str) -> None:
    if name and not _VARIABLE.fullmatch(name):
        raise UserError("write the name of an environment variable, not the secret itself")


def _check_proxy(url: str) -> None:
    if url not in ("", DIRECT) and Proxy.parse(url).user:
        raise UserError("has a password: put the URL into an environment variable, and name that in proxy_env")


def origin_of(text: str) -> str:
    """Return `text`, an origin, in its canonical form. Raises UserError."""
    expected = "write scheme, host and port alone, such as https://shop.example.com"
    try:
        url = canonicalize(text)
    except BadInput as error:
        raise UserError(f"{error}: {expected}") from error
    if url.href != f"{url.origin}/" or "@" in text:
        raise UserError(expected)
    return url.origin


_VARIABLE_CHECK = checked_by(_check_variable)


class RequestsTable(Table, frozen=True, kw_only=True):
    """A rule about the requests to some sites: `[[requests]]`. All rules that match a URL apply; of those that set the same
    thing, the first one counts. Secrets come from environment variables of the replica, and the rules name these."""

    restart: ClassVar[str] = "each process reads it when it starts"

    origin: Annotated[
        str,
        Meta(examples=["https://shop.example.com"]),
        checked_by(lambda text: text and origin_of(text)),
        "Scheme, host and port of the site to which the rule applies, exactly. Secrets need it. Empty: any.",
    ] = ""
    host: Annotated[str, "Host to which the rule applies, with its subdomains. Empty: any."] = ""
    match: Annotated[
        str,
        checked_by(UrlPattern),
        "Regular expression: the rule applies to URLs in which it is found. This holds for the URL of robots.txt as well. "
        "Empty: any.",
    ] = ""
    headers: Annotated[
        tuple[str, ...],
        Meta(examples=[["X-Team: search"]]),
        checked_by(_check_headers),
        "Header fields, `NAME: VALUE`. They are recorded in the archive.",
    ] = ()
    headers_env: Annotated[
        tuple[str, ...],
        checked_by(_check_secret_headers),
        "Header fields with secrets, `NAME: VARIABLE`, such as `X-Api-Key: SHOP_KEY`: the value is that of the environment "
        "variable. Needs `origin`. Records have `[redacted]` instead.",
    ] = ()
    accept_language: Annotated[
        str,
        checked_by(lambda value: value and check_value(value)),
        "Value of Accept-Language, such as `de, en;q=0.5`. Empty: `en,*;q=0.5`.",
    ] = ""
    basic_env: Annotated[
        str,
        _VARIABLE_CHECK,
        "Environment variable with `USER:PASSWORD`, sent as basic authorisation (RFC 7617). Needs `origin`.",
    ] = ""
    bearer_env: Annotated[
        str,
        _VARIABLE_CHECK,
        "Environment variable with a token, sent as bearer authorisation (RFC 6750). Needs `origin`.",
    ] = ""
    over_http: Annotated[
        bool, "Whether secrets may be sent to an `origin` with http, where everyone on the way can read them."
    ] = False
    cookies: Annotated[
        bool | None,
        "Whether to keep the cookies that sites set, and to send them back to their domain. They are in the memory of the "
        "replica alone, and are lost when it stops or another replica takes over the domain. Records have `[redacted]` "
        "instead of their values. Unset: as other rules say; without any, cookies are ignored.",
    ] = None
    weak_tls: Annotated[
        bool | None,
        "Whether to accept TLS 1.0 and 1.1, small keys, weak algorithms and unsafe renegotiation. Certificates are "
        "verified all the same. Unset: as other rules say; without any, they are refused.",
    ] = None
    encoding: Annotated[
        str,
        Meta(examples=["windows-1251"]),
        "Encoding of pages, whatever they declare, by its name in the Encoding standard. Empty: as they declare, or as "
        "it is recognised.",
    ] = ""
    proxy: Annotated[
        str,
        checked_by(_check_proxy),
        "URL of a proxy without a password: `http://HOST:PORT`, `https://HOST:PORT`, or `socks5://HOST:PORT` with "
        "`pip install 'peercrawl[socks]'`. `direct`: no proxy, whatever later rules say. Empty: as other rules say.",
    ] = ""
    proxy_env: Annotated[
        str,
        _VARIABLE_CHECK,
        "Environment variable with the URL of a proxy, which may have a password: `http://USER:PASSWORD@HOST:PORT`.",
    ] = ""
    proxy_dns: Annotated[
        bool,
        "Whether the proxy alone looks up the names of sites. The replica then does not know their addresses: it neither "
        "refuses names that lead into a private network nor limits the rate of an address. If false, the replica looks "
        "them up as well, and judges them before it asks the proxy.",
    ] = False

    @property
    def has_secrets(self) -> bool:
        """Whether it has a site get a secret."""
        return bool(self.headers_env or self.basic_env or self.bearer_env)

    def __post_init__(self) -> None:
        if self.basic_env and self.bearer_env:
            raise UserError("give either `basic_env` or `bearer_env`")
        if self.proxy and self.proxy_env:
            raise UserError("give either `proxy` or `proxy_env`")
        if self.host and not _HOST.fullmatch(self.host):
            raise UserError(f"`host` {self.host!r}: write the name of the host alone, such as shop.example.com")
        if self.origin and self.host:
            raise UserError("give either `origin` or `host`")
        named = {name.lower() for name, _ in fields_of(self.headers_env)}
        if "authorization" in named and (self.basic_env or self.bearer_env):
            raise UserError(
                "`headers_env` sets Authorization, and so does `basic_env` or `bearer_env`: give one of them"
            )
        if self.has_secrets and not self.origin:
            raise UserError("secrets need `origin`, the one site that gets them, such as https://shop.example.com")
        if self.has_secrets and self.origin.lower().startswith("http:") and not self.over_http:
            raise UserError(
                f"secrets would be readable on the way to {self.origin}: use https, or set over_http = true"
            )
