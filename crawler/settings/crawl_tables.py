"""The tables of settings that belong to a crawl, one class each, but for `[archive]`. `crawler.settings.loading` combines
and loads them.

Running replicas apply a change of these settings (`crawler.app.settings_reload`), except where the change needs a
restart. The reason is given for a whole table in `Table.restart`, or for a single setting by `needs_restart`.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from crawler import __version__
from crawler.fetch.address_policy import WEB_PORTS, AddressPolicy, HostMap
from crawler.scope.scope import Scope
from crawler.settings.table import LOADED, Count, NotNegative, Table, needs_restart, usable
from frontier.keys import MOST_SHARDS
from frontier.urls import SESSION_PARAMS, TRACKING_PARAMS, canonicalize
from politeness.robots_syntax import is_product_token
from politeness.usage_preferences import Category

HOME_PAGE = "https://pypi.org/project/peercrawl/"

_NEW_URLS = "replicas with different values would queue the same page under two URLs; stop them all first"


class PolitenessTable(Table):
    """Delays, backoff and robots.txt: how the crawler limits the load on each site."""

    delay: NotNegative = Field(
        1.0,
        description="Minimum number of seconds between the end of a response from a domain and the next request to it. "
        "Higher: gentler on the site; lower: faster. Set 0 only for your own sites.",
    )
    parallel: Annotated[int, Field(ge=1, le=64)] = Field(
        1,
        description="Maximum number of requests in flight to one domain, for your own sites. A value above 1 applies "
        "only while no delay is in force: `delay` is 0 (or `crawler delay DOMAIN 0` was run), robots.txt has no "
        "Crawl-delay, and no response such as 429 or 503 has caused a backoff within `backoff_forgiven`.",
    )
    crawl_delay_cap: NotNegative = Field(
        300.0,
        description="Maximum Crawl-delay of robots.txt, in seconds, that is respected as it is (Heritrix has the "
        "same cap); see `crawl_delay_above_cap`. 0: Crawl-delay is ignored.",
    )
    crawl_delay_above_cap: Literal["cap", "keep", "skip"] = Field(
        "cap",
        description="What to do when robots.txt asks for more than `crawl_delay_cap`. `cap`: wait for the cap; "
        "`keep`: wait as long as requested, up to a day; `skip`: do not crawl the site, and deny its URLs with the "
        "reason `crawl_delay`.",
    )
    response_share: NotNegative = Field(
        1.0,
        description="The delay of a domain is at least this many times the duration of its last response. Higher: "
        "gentler on slow sites; 0: off. It is also off for the whole crawl if `delay` is 0, and for a domain with "
        "`crawler delay DOMAIN 0`.",
    )
    response_share_cap: NotNegative = Field(
        30.0, description="Maximum delay, in seconds, that `response_share` can cause."
    )
    backoff_base: PositiveFloat = Field(
        60.0,
        description="Backoff of a domain, in seconds, after its first 429, 503, timeout or refused connection. It "
        "doubles with each further failure. After 16 failures in a row, the URLs of the domain become dead letters with "
        "the reason `given_up_` and that of the last failure.",
    )
    backoff_max: PositiveFloat = Field(
        86_400.0, description="Maximum backoff in seconds, which also limits Retry-After."
    )
    backoff_forgiven: NotNegative = Field(
        1_800.0, description="Seconds without a failure after which the backoff of a domain starts from its base again."
    )
    address_rate_limit: Literal["off", "replica", "crawl"] = Field(
        "crawl",
        description="Whether all domains at one network address share a rate limit: across all replicas of the crawl "
        "(`crawl`), within each replica (`replica`), or not at all (`off`). Shared hosts serve thousands of domains "
        "from one machine, and only a limit across all replicas protects it when many of them are crawled.",
    )
    address_rate: PositiveFloat | None = Field(
        None,
        description="Average number of requests per second to one address (for IPv6, one /64). Unset: the rate of ten "
        "domains, 10 / `delay`, or no limit when `delay` is 0. Higher: the domains of a large host or content delivery "
        "network are crawled faster; lower: gentler on small machines with many domains.",
    )
    address_burst: PositiveInt = Field(
        5,
        description="Number of requests that may be sent to an address at once after a pause. The average rate stays "
        "`address_rate`.",
    )
    tries: PositiveInt = Field(
        4,
        le=15,
        description="Maximum number of requests for a URL before it becomes a dead letter. If robots.txt cannot be fetched "
        "because the host does not exist (an authoritative DNS answer), the limit is 2.",
    )
    robots_max_age: PositiveFloat = Field(
        86_400.0,
        le=86_400.0,
        description="Seconds for which a robots.txt is used before it is fetched again. RFC 9309 2.4 allows at most "
        "a day.",
    )
    purpose: tuple[Category, ...] = Field(
        (),
        description="What the pages are for: `search`, `train-ai` or `ai-use`, the categories of the IETF's AI "
        "preferences. Pages whose owner refuses one of them are not fetched, or not kept if this is only known from the "
        "response; their URLs are denied with the reason `usage`. Empty: preferences are recorded, but not obeyed.",
    )
    tdmrep: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Whether to fetch /.well-known/tdmrep.json, the reservations of the TDM Reservation Protocol, with "
        "each robots.txt: one more request to each origin a day. `auto`: only if `purpose` has `train-ai` or `ai-use`, "
        "because the protocol says nothing about search.",
    )


class ScopeTable(Table):
    """Which links belong to the crawl."""

    kind: Literal["seeds", "domains", "hosts", "any"] = Field(
        "seeds",
        description="Which sites are in scope. `seeds`: the registrable domains of the seeds; `domains` or `hosts`: "
        "those listed in `domains`; `any`: the whole web.",
    )
    domains: tuple[str, ...] = Field(
        (), description='The domains or hosts in scope, for `kind = "domains"` or `"hosts"`.'
    )
    include: tuple[str, ...] = Field(
        (), description="Regular expressions. If any are given, a URL must match one of them to be in scope."
    )
    exclude: tuple[str, ...] = Field(
        (), description="Regular expressions. A URL that matches one of them is out of scope."
    )
    max_depth: Count | None = Field(
        None, le=255, description="Maximum number of links from a seed to a page. Unset: no limit."
    )
    max_hops: Count = Field(10, le=15, description="Maximum number of consecutive redirects.")
    sitemaps: bool = Field(
        True, description="Fetch the sitemaps that robots.txt names, and queue the URLs that they list."
    )
    strip_params: tuple[str, ...] = Field(
        TRACKING_PARAMS,
        description="Query parameters to remove from every URL, because they do not change the page. A name that "
        "ends in `*` is a prefix.",
        json_schema_extra=needs_restart(_NEW_URLS),
    )
    session_params: tuple[str, ...] = Field(
        SESSION_PARAMS,
        description="Parameters to remove from the query and the path if their value looks like a session id. If you "
        "change this or `strip_params` during a crawl, pages whose URLs change are fetched again.",
        json_schema_extra=needs_restart(_NEW_URLS),
    )
    nofollow: bool = Field(True, description="Respect `rel=nofollow`, and `nofollow` in meta robots and X-Robots-Tag.")

    @field_validator("include", "exclude")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return usable(patterns, lambda: Scope.of(include=patterns))

    @field_validator("domains")
    @classmethod
    def _are_hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return usable(names, lambda: Scope.of(names=names))


class LimitsTable(Table):
    """Upper limits on what a crawl fetches and stores."""

    max_pages: Count = Field(
        0,
        description="Maximum number of pages that the whole crawl fetches. Every URL that ends as done counts, "
        "including error pages such as a 404. 0: no limit.",
    )
    domain_cap: Count = Field(
        0, description="Maximum number of URLs queued per domain; the rest are dropped and counted. 0: no limit."
    )
    max_body: PositiveInt = Field(
        10_485_760,
        description="Maximum size of a response body as received, in bytes. A longer body is truncated, and its "
        "record is marked as truncated.",
    )
    max_decoded: PositiveInt = Field(
        33_554_432,
        description="Maximum size of a body after decompression, in bytes. Limits the effect of a compression bomb. "
        "All of it is searched for links; a document that may take more than 50 milliseconds is parsed in a separate "
        "process, one at a time.",
    )
    max_links: PositiveInt = Field(
        10_000, description="Maximum number of links taken from a page; the rest are dropped and counted."
    )
    max_link_bytes: PositiveInt = Field(
        1_048_576,
        description="Maximum length of all links taken from a page together, in bytes; the rest are dropped and "
        "counted. A sitemap may have as many more as its own size. Links may be much longer than the page, because each "
        "may repeat a long base URL. They are sent to Redis and written to the archive.",
    )


class FrontierTable(Table):
    """The queue of URLs in Redis."""

    shards: Annotated[int, Field(ge=1, le=MOST_SHARDS)] = Field(
        1_024,
        description="Number of partitions of the frontier; use at least 32 for each replica that you may ever run. "
        "Only `crawler reshard` can change it later. Higher: load is spread more evenly; lower: fewer calls to Redis. "
        "With the embedded server, the default is 64.",
        json_schema_extra=needs_restart("every key of the crawl depends on it"),
    )
    lease: float = Field(
        30.0,
        ge=1,
        description="Seconds for which a domain stays leased to a replica that has stopped responding. Lower: "
        "another replica takes over sooner, but leases are renewed more often.",
        json_schema_extra=needs_restart("a replica relies on the lease time that it requested"),
    )
    batch: Annotated[int, Field(ge=1, le=1_000)] = Field(
        32,
        description="Maximum number of URLs in a lease. Higher: fewer round trips to Redis; lower: priorities are "
        "followed more strictly.",
    )
    replicas_ack: Annotated[int, Field(ge=0, le=5)] = Field(
        0,
        description="Number of replicas of a Redis node that must have received a page's links before the page counts as "
        "settled (WAIT). Set it to 1 for a Redis Cluster whose nodes have replicas: a page is then never settled on one "
        "node while a failover of another forgets its links. Links wait while a node has fewer replicas. On a single "
        "server, 0 is as safe, because links and settlements are replicated in order.",
    )
    pack_above: Annotated[int, Field(ge=0)] = Field(
        1_000,
        description="Number of queued URLs of a domain above which those of the lowest priority are packed into compressed "
        "blocks, which take an eighth of the memory of Redis. Higher: less CPU time for long queues; 0: nothing is packed.",
    )
    scorer: str = Field(
        "",
        description="Function that computes the priority of a URL, as `module:function`: (url, depth, kind) -> "
        "float. URLs with a higher value are fetched earlier. Empty: breadth first.",
        json_schema_extra=needs_restart(LOADED),
    )


class FetchTable(Table):
    """How requests are made."""

    restart: ClassVar[str] = "open connections were made with the old value"

    user_agent: str = Field(
        "peercrawl",
        description="Product name in the User-Agent header, and the token by which robots.txt groups are matched.",
        json_schema_extra=needs_restart("robots.txt files and records already use the old name"),
    )
    contact: str = Field(
        HOME_PAGE,
        description="URL or email address at which webmasters can reach you, sent in the User-Agent header. Set it for "
        "every crawl beyond your own hosts: without it, commands that start a crawl print a warning, and refuse one with "
        '`scope.kind = "any"`.',
    )
    timeout: PositiveFloat = Field(
        60.0, description="Time limit for a whole response, in seconds. A response that takes longer is truncated."
    )
    connect_timeout: PositiveFloat = Field(
        15.0, description="Time limit for name resolution, connection and TLS handshake, in seconds."
    )
    read_timeout: PositiveFloat = Field(
        20.0, description="Seconds without a received byte after which a request is aborted."
    )
    verify_tls: bool = Field(True, description="Whether TLS certificates must be valid.")
    allow_private: bool = Field(
        False,
        description="Whether to allow connections to private, loopback, shared and unique-local addresses. Link-local ones "
        "and those of cloud metadata need `allow`.",
    )
    allow: tuple[str, ...] = Field(
        (),
        description="Non-public networks, such as `10.1.0.0/16`, to which connections are allowed. The rest of your "
        "network stays blocked.",
    )
    ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = Field(
        tuple(sorted(WEB_PORTS)),
        description="Ports that a URL may use. A URL with another port is denied with the reason `forbidden_port`.",
    )
    host_map: tuple[str, ...] = Field(
        (),
        description="Entries `PATTERN=ADDRESS:PORT`: connect to that address for hosts that match the pattern. For "
        "tests and staging.",
    )

    @field_validator("user_agent")
    @classmethod
    def _is_product_token(cls, name: str) -> str:
        if not is_product_token(name):
            raise ValueError(
                f"{name!r} cannot be used in robots.txt: use letters, - and _ only (RFC 9309 2.2.1); the version is added"
            )
        return name

    @field_validator("contact")
    @classmethod
    def _fits_in_a_header(cls, contact: str) -> str:
        if not contact.strip() or not contact.isascii() or not contact.isprintable():
            raise ValueError(
                "is sent in the User-Agent header: write a URL or an email address, in ASCII and without line breaks"
            )
        return contact

    @field_validator("allow")
    @classmethod
    def _are_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        return usable(networks, lambda: AddressPolicy.of(networks))

    @field_validator("host_map")
    @classmethod
    def _are_mappings(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        return usable(entries, lambda: HostMap.parse(entries))

    @property
    def user_agent_header(self) -> str:
        return f"{self.user_agent}/{__version__} (+{self.contact})"


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class ScheduleTable(Table):
    """A periodic duty, done by exactly one replica in each interval: `[[schedule]]`."""

    restart: ClassVar[str] = "periodic duties are set up when a replica starts"

    every: str = Field(
        ..., description="Length of the interval: a number and a unit (s, m, h or d), such as `6h`.", examples=["6h"]
    )
    seeds: str = Field(
        "", description="Seed file to read again. New lines are queued. The file must exist on every machine."
    )
    sitemap: str = Field(
        "", description="URL of a sitemap to fetch again.", examples=["https://example.com/sitemap.xml"]
    )

    @field_validator("sitemap")
    @classmethod
    def _is_url(cls, url: str) -> str:
        return usable(url, lambda: url and canonicalize(url))

    @property
    def every_s(self) -> float:
        """The interval in seconds."""
        found = _DURATION.fullmatch(self.every.strip())
        assert found is not None  # checked by `_is_whole`
        return float(found[1]) * _SECONDS[found[2]]

    @model_validator(mode="after")
    def _is_whole(self) -> ScheduleTable:
        if not _DURATION.fullmatch(self.every.strip()) or self.every_s < 1:
            raise ValueError("`every` must be a number and a unit (s, m, h or d), such as 6h, and at least 1s")
        if bool(self.seeds) == bool(self.sitemap):
            raise ValueError("give either `seeds` or `sitemap`")
        return self
