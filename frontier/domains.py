"""Maps hosts to their domains, and domains to shards."""

from __future__ import annotations

import hashlib
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    import tldextract

SHARD_SEED = 0
"""Must not change: another seed would move every domain to a shard that does not hold its queue."""

LONGEST_HOST = 253  # bytes without the final dot (RFC 1035 2.3.4, less the length bytes)
_LONGEST_LABEL = 63  # bytes (RFC 1035 2.3.4)
_PATH = re.compile(r"[/?#]")
_LONGEST_SITE = len("https://") + LONGEST_HOST + len(".:65535")


def host_of(url: str) -> str:
    """The host of the canonical `url`; an IPv6 address keeps its brackets."""
    authority = url.partition("://")[2].partition("/")[0]
    name, colon, port = authority.rpartition(":")
    return name if colon and port.isdigit() else authority


def domain_of(host: str) -> str:
    """The domain of `host`, which is from a canonical URL and has no port. URLs are queued, leased and rate-limited by
    domain.

    This is the registrable domain by the Public Suffix List, including private suffixes. An IP address, a single label
    and a host that is itself a public suffix are their own domain.
    """
    return registrable_domain(host) or host.lower()


@lru_cache(maxsize=8192)
def registrable_domain(host: str) -> str | None:
    """The public suffix of `host` and one more label, or None if there is none (`com`, `localhost`, `[::1]`).

    The algorithm is that of https://publicsuffix.org/list/: an unlisted suffix counts as one label, so `www.d1.test`
    belongs to `d1.test`.
    """
    host = host.lower()
    if host.startswith("[") or "" in host.split("."):
        return None
    parts = _suffix_list()(host)
    if parts.ipv4 or not parts.domain:
        return None
    if parts.suffix:
        return f"{parts.domain}.{parts.suffix}"
    return f"{parts.subdomain.rpartition('.')[2]}.{parts.domain}" if parts.subdomain else None


def is_public_suffix(host: str) -> bool:
    """Whether `host` is on the Public Suffix List, private suffixes included, so that others register domains under it."""
    return _suffix_list()(host).suffix == host.lower()


@cache
def _suffix_list() -> tldextract.TLDExtract:
    # Imported on first use, because it imports `requests`: 60 ms and 6 MB that commands without a URL do not need.
    import tldextract  # noqa: PLC0415

    # Use the snapshot in the package: no download, no cache directory, no lock files.
    return tldextract.TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)


def is_of(url: str, domain: str) -> bool:
    """Whether `url` is one of `domain`."""
    if domain not in url:
        return False
    scheme, mark, rest = url.partition("://")
    site = site_of(scheme + mark + _PATH.split(rest, maxsplit=1)[0])
    return site is not None and site[0] == domain


def forgotten_mark(domain: str) -> str:
    """What stays of a forgotten domain, so that it is recognised: its SHA-1, as `lua/forgotten.lua` computes it."""
    return hashlib.sha1(domain.encode()).hexdigest()


def shard_of(domain: str, shards: int) -> int:
    """The shard of `domain`, 0 to `shards` - 1. It is the same on every machine and in every release."""
    return xxhash.xxh3_64_intdigest(domain.encode(), SHARD_SEED) % shards


def site_of(prefix: str) -> tuple[str, str] | None:
    """Domain and origin of `prefix`, a serialised URL up to its path. None if the host is not valid in DNS.

    The origin has no user information, and its host no final dot.
    """
    if "@" in prefix:
        prefix = prefix[: prefix.index("//") + 2] + prefix.rpartition("@")[2]
    return _site_of(prefix) if len(prefix) <= _LONGEST_SITE else None


@lru_cache(maxsize=32_768)  # of 400 bytes; a broad crawl meets the hosts of its links again after thousands of others
def _site_of(prefix: str) -> tuple[str, str] | None:
    scheme, _, host = prefix.partition("://")
    port = ""
    if not host.endswith("]"):
        name, colon, digits = host.rpartition(":")
        if colon:
            host, port = name, f":{digits}"
    if not host.startswith("["):
        host = host.removesuffix(".")
        if not _is_possible(host):
            return None
    return domain_of(host), f"{scheme}://{host}{port}"


def _is_possible(host: str) -> bool:
    return len(host) <= LONGEST_HOST and all(0 < len(label) <= _LONGEST_LABEL for label in host.split("."))
