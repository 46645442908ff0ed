"""The tables of settings that belong to a crawl, one class each. `crawler.settings.model` puts them together and loads
them.

Running replicas follow a change of these settings (`crawler.app.settings_reload`), but for those that say why it has to
wait for a restart: a table for all its settings (`Table.restart`), a setting for itself (`_restart`).
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from crawler import __version__
from crawler.fetch.address_policy import WEB_PORTS
from frontier.urls import SESSION_PARAMS, TRACKING_PARAMS
from politeness.robots_text import is_product_token

HOME_PAGE = "https://pypi.org/project/peercrawl/"

NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class Table(BaseModel):
    """A table of the TOML file. `restart`: why a change of its settings waits for a restart of the replicas; empty: it does
    not."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    restart: ClassVar[str] = ""

    @classmethod
    def waits_because(cls, key: str) -> str:
        """Why a change of the setting `key` waits for a restart of the replicas, or "" if running replicas follow it."""
        extra = cls.model_fields[key].json_schema_extra
        return str(extra["restart"]) if isinstance(extra, dict) else cls.restart


def _restart(why: str) -> dict[str, JsonValue]:
    """For a setting whose change waits for a restart: the reason."""
    return {"restart": why}


_NEW_URLS = "replicas that differ would queue the same page under two URLs; stop them all first"
_LOADED = "code is loaded when a replica starts"


class PolitenessTable(Table):
    """How a site is treated."""

    delay: NotNegative = Field(
        1.0, description="Seconds from the end of one response of a domain to the next request to it, at least."
    )
    parallel: Annotated[int, Field(ge=1, le=64)] = Field(
        1,
        description="Requests to a domain in flight at once, for your own sites. More than one only while nothing asks for "
        "a delay: `delay` is 0 (or `crawler delay DOMAIN 0` was said), its robots.txt has no Crawl-delay, and no answer "
        "such as 429 or 503 made it back off within `backoff_forgiven`.",
    )
    crawl_delay_cap: NotNegative = Field(
        300.0, description="Crawl-delay of robots.txt is honoured up to this many seconds (Heritrix caps there, too)."
    )
    crawl_delay_above_cap: Literal["cap", "keep", "skip"] = Field(
        "cap",
        description="What happens where robots.txt asks for more than `crawl_delay_cap`: wait the cap (`cap`), wait what "
        "was asked, up to a day (`keep`), or leave the site out, its URLs denied for `crawl_delay` (`skip`).",
    )
    response_share: NotNegative = Field(
        1.0, description="A domain rests at least this many times as long as its last response took; 0 turns it off."
    )
    response_share_cap: NotNegative = Field(30.0, description="Seconds that `response_share` may ask for at most.")
    backoff_base: PositiveFloat = Field(
        60.0, description="Seconds a domain rests after its first 429, 503, time-out or refused connection."
    )
    backoff_max: PositiveFloat = Field(
        86_400.0, description="Seconds that backoff, doubling, and Retry-After reach at most."
    )
    backoff_forgiven: NotNegative = Field(
        1_800.0, description="After this many seconds without a failure a domain's backoff starts from its base again."
    )
    address_rate_limit: Literal["off", "replica", "cluster"] = Field(
        "cluster",
        description="Whether the domains behind one network address share a rate: with all replicas together "
        "(`cluster`), within each replica (`replica`), or not (`off`). Shared hosts serve thousands of domains from one "
        "machine, and only a limit that all replicas share keeps a crawl of many of them bearable for it.",
    )
    address_rate: PositiveFloat | None = Field(
        None,
        description="Requests a second to one address (of IPv6: one /64) on average; unset: as much as ten domains may "
        "be asked, 10 / `delay`, and no limit when `delay` is 0. Higher: quicker through the domains of a large host or "
        "content delivery network; lower: kinder to small machines with many domains.",
    )
    address_burst: PositiveInt = Field(
        5, description="Requests that an address may get at once after a pause; the average stays `address_rate`."
    )
    tries: PositiveInt = Field(4, le=15, description="Requests for a URL at most, before it becomes a dead letter.")
    robots_max_age: PositiveFloat = Field(
        86_400.0,
        le=86_400.0,
        description="Seconds a robots.txt is used before it is fetched again (RFC 9309 2.4: a day).",
    )


class ScopeTable(Table):
    """Which links belong to the crawl."""

    kind: Literal["seeds", "domains", "hosts", "any"] = Field(
        "seeds",
        description="`seeds`: the registrable domains of the seeds; `domains` or `hosts`: those listed; "
        "`any`: the whole web.",
    )
    domains: tuple[str, ...] = Field((), description='For `kind = "domains"` or `"hosts"`: their names.')
    include: tuple[str, ...] = Field((), description="If given, a URL must match one of these regular expressions.")
    exclude: tuple[str, ...] = Field((), description="A URL that matches one of these is out of scope.")
    max_depth: Count | None = Field(None, le=255, description="Links from a seed at most; unset: any number.")
    max_hops: Count = Field(10, le=15, description="Redirects in a row at most.")
    sitemaps: bool = Field(True, description="Fetch the sitemaps that robots.txt names, and follow what sitemaps list.")
    strip_params: tuple[str, ...] = Field(
        TRACKING_PARAMS,
        description="Query parameters dropped from every URL, because servers do not read them; `*` ends a prefix.",
        json_schema_extra=_restart(_NEW_URLS),
    )
    session_params: tuple[str, ...] = Field(
        SESSION_PARAMS,
        description="Parameters dropped from query and path where their value looks like a session id. Changing either "
        "list in mid-crawl makes the same pages new.",
        json_schema_extra=_restart(_NEW_URLS),
    )
    nofollow: bool = Field(True, description="Obey rel=nofollow and the nofollow of meta robots and X-Robots-Tag.")


class LimitsTable(Table):
    """What a crawl may use up."""

    max_pages: Count = Field(
        0,
        description="Pages that the whole crawl fetches at most: URLs that end as done, error pages such as a 404 "
        "included; 0: any number.",
    )
    domain_cap: Count = Field(0, description="URLs accepted per domain at most; 0: any number. Drops are counted.")
    max_body: PositiveInt = Field(
        10_485_760, description="Bytes of a body as received; what is beyond is cut off and the record says so."
    )
    max_decoded: PositiveInt = Field(
        33_554_432,
        description="Bytes of a body after decompression; bounds what a compression bomb can do. All of it is read for "
        "links. What takes more than some milliseconds is read in a process of its own, one document at a time.",
    )
    max_links: PositiveInt = Field(10_000, description="Links taken from a page at most. Drops are counted.")


class FrontierTable(Table):
    """The queue."""

    shards: Annotated[int, Field(ge=1, le=16_384)] = Field(
        1_024,
        description="Partitions of the frontier, fixed for the crawl's life: 32 or more per replica you will ever run.",
        json_schema_extra=_restart("it places every key of the crawl"),
    )
    lease: PositiveFloat = Field(
        30.0,
        description="Seconds a domain stays with a replica that falls silent. Lower: quicker take-over, more renewals.",
        json_schema_extra=_restart("a holder must reckon with the length that it asked for"),
    )
    batch: Annotated[int, Field(ge=1, le=1_000)] = Field(
        32, description="URLs in a lease at most. Higher: fewer round trips; lower: priorities hold more strictly."
    )
    scorer: str = Field(
        "",
        description="`module:function` (url, depth, kind) -> float, higher is earlier; default: breadth first.",
        json_schema_extra=_restart(_LOADED),
    )


class FetchTable(Table):
    """How requests are made."""

    restart: ClassVar[str] = "connections that are open were made with it"

    user_agent: str = Field(
        "peercrawl",
        description="Product name in User-Agent, and the token that robots.txt groups match.",
        json_schema_extra=_restart("robots.txt files were read and records written under it"),
    )
    contact: str = Field(
        HOME_PAGE, description="Where a webmaster can reach you: a URL or mail address, sent in User-Agent."
    )
    timeout: PositiveFloat = Field(60.0, description="Seconds for a whole response; a longer one is cut off there.")
    connect_timeout: PositiveFloat = Field(15.0, description="Seconds for name resolution, connection and TLS.")
    read_timeout: PositiveFloat = Field(20.0, description="Seconds without a byte before a response is given up.")
    verify_tls: bool = Field(True, description="Whether certificates must be valid.")
    allow_private: bool = Field(
        False, description="Whether private, loopback and other non-public addresses may be connected to."
    )
    allow: tuple[str, ...] = Field(
        (),
        description="Networks such as `10.1.0.0/16` that may be connected to though they are not public; the rest of "
        "your network stays out of reach.",
    )
    ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = Field(
        tuple(sorted(WEB_PORTS)), description="Ports that a URL may name; others are denied for `forbidden_port`."
    )
    host_map: tuple[str, ...] = Field(
        (), description="`PATTERN=ADDRESS:PORT`: connect there for hosts that match, for tests and staging."
    )

    @field_validator("user_agent")
    @classmethod
    def _is_product_token(cls, name: str) -> str:
        if not is_product_token(name):
            raise ValueError(
                f"{name!r} cannot stand in a robots.txt: use letters, - and _ only (RFC 9309 2.2.1); the version is added"
            )
        return name

    @property
    def user_agent_header(self) -> str:
        return f"{self.user_agent}/{__version__} (+{self.contact})"


class ArchiveTable(Table):
    """What a crawl leaves behind."""

    restart: ClassVar[str] = "files that are open were begun with it"

    warc: bool = Field(True, description="Write WARC 1.1 files.")
    pages: bool = Field(True, description="Write a JSON line for each settled URL.")
    noarchive: bool = Field(
        True, description="Obey noarchive of meta robots and X-Robots-Tag: such a page leaves its JSON line alone."
    )
    compression: Literal["gzip", "zstd"] = Field(
        "gzip", description="Of the WARC files. zstd: a little smaller; FastWARC reads it, pywb and warcio do not."
    )
    links: bool = Field(True, description="List each page's links in its JSON line.")
    metadata: bool = Field(True, description="Write a WARC metadata record for each page, with its links.")
    via: bool = Field(
        False,
        description="Tell in each line and metadata record on which page the URL was first found. Costs that page's URL in "
        "Redis for each queued URL.",
    )
    index: bool = Field(True, description="Write a CDXJ index for each WARC file, by which pywb replays it.")
    text: Literal["off", "text", "markdown"] = Field(
        "off", description="Keep each page's main text, or its main content as Markdown, in its line. Costs CPU."
    )
    structured: bool = Field(False, description="Keep each page's JSON-LD and OpenGraph data in its line. Costs CPU.")
    simhash: bool = Field(
        False,
        description="Keep a 64-bit fingerprint of each page's main text, by which near copies are found. Costs CPU.",
    )
    near_duplicates: Literal["off", "mark", "drop"] = Field(
        "off",
        description="Pages whose main text is nearly that of an earlier page of the replica: `mark` names that page in "
        "their line, `drop` also leaves out their WARC records and text. Costs CPU.",
    )
    soft_404: Literal["off", "mark", "drop"] = Field(
        "off", description="The same for pages that say, with status 200, that there is no such page. Costs CPU."
    )
    near_remembered: Count = Field(
        131_072, description="Pages that a replica compares with for `near_duplicates`, at about 200 bytes each."
    )
    parquet: bool = Field(False, description="Make a Parquet file of each finished file of JSON lines; needs pyarrow.")
    upload: str = Field(
        "", description="`s3://bucket/prefix`, `gs://`, `az://` or a folder: copy finished files there; needs obstore."
    )
    keep_local: bool = Field(
        True, description="Keep files that were uploaded; else they go when the copy was verified."
    )
    on_page: tuple[str, ...] = Field(
        (),
        description="Page hooks, `package.module:function` or the name of an installed one; see docs/how-to/extend.md.",
        json_schema_extra=_restart(_LOADED),
    )
    sinks: tuple[str, ...] = Field(
        (),
        description="Further sinks, `package.module:factory` or the name of an installed one; see docs/how-to/extend.md.",
        json_schema_extra=_restart(_LOADED),
    )
    max_bytes: PositiveInt = Field(1_073_741_824, description="Bytes of a WARC file before the next one begins.")
    max_age: PositiveFloat = Field(3_600.0, description="Seconds a file stays open at most.")
    fsync: bool = Field(
        False, description="Wait for the disk before a URL is settled; without, a power failure can cost pages."
    )
    revisits: Count = Field(
        16_384, description="Bodies remembered to write a revisit record for the next identical one; 0: none."
    )


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class DutyTable(Table):
    """A periodic duty, done by exactly one replica in each interval: `[[schedule]]`."""

    restart: ClassVar[str] = "duties begin with the replica"

    every: str = Field(..., description="Length of the interval: a number and s, m, h or d, such as `6h`.")
    seeds: str = Field("", description="Seed file to read again; new lines are queued. Needed on every machine.")
    sitemap: str = Field("", description="URL of a sitemap to fetch again.")

    @property
    def every_s(self) -> float:
        """The interval in seconds."""
        found = _DURATION.fullmatch(self.every.strip())
        assert found is not None  # checked by `_is_whole`
        return float(found[1]) * _SECONDS[found[2]]

    @model_validator(mode="after")
    def _is_whole(self) -> DutyTable:
        if not _DURATION.fullmatch(self.every.strip()) or self.every_s < 1:
            raise ValueError("`every` must be a number and s, m, h or d, such as 6h, and at least 1s")
        if bool(self.seeds) == bool(self.sitemap):
            raise ValueError("give either `seeds` or `sitemap`")
        return self
