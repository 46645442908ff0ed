"""The tables of settings that belong to a crawl, one class each, but for `[archive]`, `[[extract]]` and
`[handlers]`, which have modules of their own. `crawler.settings.loading` combines and loads them.

Running replicas apply a change of these settings (`crawler.app.settings_reload`), except where the change needs a
restart. The reason is given for a whole table in `Table.restart`, or for a single setting as `restart` in `Meta.extra`.
"""

import re
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from crawler import __version__
from crawler.errors import UserError
from crawler.fetch.address_policy import WEB_PORTS, AddressPolicy, HostMap
from crawler.scope.next_visit import parse_rules
from crawler.scope.scope import Scope
from crawler.settings.table import LOADED, Count, NotNegative, PositiveFloat, PositiveInt, Table
from frontier.keys import MOST_SHARDS
from frontier.urls import SESSION_PARAMS, TRACKING_PARAMS, canonicalize
from politeness.robots_syntax import is_product_token
from politeness.usage_preferences import Category

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
    crawl_delay_cap: Annotated[
        NotNegative,
        "Maximum Crawl-delay of robots.txt, in seconds, that is respected as it is (Heritrix has the "
        "same cap); see `crawl_delay_above_cap`. 0: Crawl-delay is ignored.",
    ] = 300.0
    crawl_delay_above_cap: Annotated[
        Literal["cap", "keep", "skip"],
        "What to do when robots.txt asks for more than `crawl_delay_cap`. `cap`: wait for the cap; "
        "`keep`: wait as long as requested, up to a day; `skip`: do not crawl the site, and deny its URLs with the "
        "reason `crawl_delay`.",
    ] = "cap"
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


_Patterns = Annotated[tuple[str, ...], Meta(extra={"check": lambda patterns: Scope.of(include=patterns)})]


class ScopeTable(Table, frozen=True, kw_only=True):
    """Which links belong to the crawl."""

    kind: Annotated[
        Literal["seeds", "domains", "hosts", "any"],
        "Which sites are in scope. `seeds`: the registrable domains of the seeds; `domains` or `hosts`: "
        "those listed in `domains`; `any`: the whole web.",
    ] = "seeds"
    domains: Annotated[
        tuple[str, ...],
        Meta(extra={"check": lambda names: Scope.of(names=names)}),
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
        Count, Meta(le=15), "Maximum number of consecutive redirects, and of sitemap indexes that name each other."
    ] = 10
    sitemaps: Annotated[bool, "Fetch the sitemaps that robots.txt names, and queue the URLs that they list."] = True
    strip_params: Annotated[
        tuple[str, ...],
        Meta(extra={"restart": _NEW_URLS}),
        "Query parameters to remove from every URL, because they do not change the page. A name that "
        "ends in `*` is a prefix.",
    ] = TRACKING_PARAMS
    session_params: Annotated[
        tuple[str, ...],
        Meta(extra={"restart": _NEW_URLS}),
        "Parameters to remove from the query and the path if their value looks like a session id. If you "
        "change this or `strip_params` during a crawl, pages whose URLs change are fetched again.",
    ] = SESSION_PARAMS
    nofollow: Annotated[bool, "Respect `rel=nofollow`, and `nofollow` in meta robots and X-Robots-Tag."] = True


class LimitsTable(Table, frozen=True, kw_only=True):
    """Upper limits on what a crawl fetches and stores."""

    max_pages: Annotated[
        Count,
        "Maximum number of pages that the whole crawl fetches. Every URL that ends as done counts, "
        "including error pages such as a 404. A page whose handler fails is dead and does not count. 0: no limit.",
    ] = 0
    domain_cap: Annotated[
        Count,
        "Maximum number of URLs accepted per domain in the whole crawl; the rest are dropped and counted. 0: no limit.",
    ] = 0
    max_body: Annotated[
        PositiveInt,
        "Maximum size of a response body as received, in bytes. A longer body is truncated, and its "
        "record is marked as truncated.",
    ] = 10_485_760
    max_decoded: Annotated[
        PositiveInt,
        "Maximum size of a body after decompression, in bytes. Limits the effect of a compression bomb. "
        "All of it is searched for links; a document that may take more than 50 milliseconds is parsed in a separate "
        "process, one at a time.",
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
        Meta(ge=1, le=MOST_SHARDS, extra={"restart": "every key of the crawl depends on it"}),
        "Number of partitions of the frontier; use at least 32 for each replica that you may ever run. "
        "Only `crawler reshard` can change it later. Higher: load is spread more evenly; lower: fewer calls to Redis. "
        "With the embedded server, the default is 64.",
    ] = 1_024
    lease: Annotated[
        float,
        Meta(ge=1, extra={"restart": "a replica relies on the lease time that it requested"}),
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
        Meta(extra={"restart": LOADED}),
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
        Meta(
            extra={
                "check": _check_product_token,
                "restart": "robots.txt files and records already use the old name",
            }
        ),
        "Product name in the User-Agent header, and the token by which robots.txt groups are matched.",
    ] = "peercrawl"
    contact: Annotated[
        str,
        Meta(extra={"check": _check_contact}),
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
        Meta(extra={"check": AddressPolicy.of}),
        "Non-public networks, such as `10.1.0.0/16`, to which connections are allowed. The rest of your "
        "network stays blocked.",
    ] = ()
    ports: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=65_535)], ...],
        "Ports that a URL may use. A URL with another port is denied with the reason `forbidden_port`.",
    ] = tuple(sorted(WEB_PORTS))
    host_map: Annotated[
        tuple[str, ...],
        Meta(extra={"check": HostMap.parse}),
        "Entries `PATTERN=ADDRESS:PORT`: connect to that address for hosts that match the pattern. For "
        "tests and staging.",
    ] = ()

    @property
    def user_agent_header(self) -> str:
        return f"{self.user_agent}/{__version__} (+{self.contact})"


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class RecrawlTable(Table, frozen=True, kw_only=True):
    """Visiting pages again. Off unless there are rules."""

    rules: Annotated[
        tuple[str, ...],
        Meta(examples=[["type=image/* never", "adaptive min=1h max=30d start=1d"]], extra={"check": parse_rules}),
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


class ScheduleTable(Table, frozen=True, kw_only=True):
    """A periodic duty, done by exactly one replica in each interval: `[[schedule]]`."""

    restart: ClassVar[str] = "periodic duties are set up when a replica starts"

    every: Annotated[
        str, Meta(examples=["6h"]), "Length of the interval: a number and a unit (s, m, h or d), such as `6h`."
    ]
    seeds: Annotated[str, "Seed file to read again. New lines are queued. The file must exist on every machine."] = ""
    sitemap: Annotated[
        str,
        Meta(examples=["https://example.com/sitemap.xml"], extra={"check": lambda url: url and canonicalize(url)}),
        "URL of a sitemap to fetch again.",
    ] = ""

    @property
    def every_s(self) -> float:
        """The interval in seconds."""
        found = _DURATION.fullmatch(self.every.strip())
        assert found is not None  # checked by `__post_init__`
        return float(found[1]) * _SECONDS[found[2]]

    def __post_init__(self) -> None:
        if not _DURATION.fullmatch(self.every.strip()) or self.every_s < 1:
            raise UserError("`every` must be a number and a unit (s, m, h or d), such as 6h, and at least 1s")
        if bool(self.seeds) == bool(self.sitemap):
            raise UserError("give either `seeds` or `sitemap`")
