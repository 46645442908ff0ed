"""Hosts, the domains that they belong to, and the shards that keep the domains."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    import tldextract

SHARD_SEED = 0
"""Pinned: another seed would move every domain to a shard where its queue is not."""

LONGEST_HOST = 253  # bytes without the final dot (RFC 1035 2.3.4, less the length bytes)
_LONGEST_LABEL = 63  # bytes (RFC 1035 2.3.4)
_LONGEST_SITE = len("https://") + LONGEST_HOST + len(".:65535")


def domain_of(host: str) -> str:
    """The domain of `host` (of a canonical URL, without a port): the unit of queueing, leasing and rate
    limiting.

    That is the registrable domain by the Public Suffix List, private suffixes included; an IP address, a
    single label and a host that is itself a public suffix are their own domain.
    """
    return registrable_domain(host) or host.lower()


@lru_cache(maxsize=8192)
def registrable_domain(host: str) -> str | None:
    """The public suffix of `host` and one label more, or None where there is none (`com`, `localhost`,
    `[::1]`).

    The algorithm is that of https://publicsuffix.org/list/: a suffix that is not listed counts as one label,
    so `www.d1.test` belongs to `d1.test`.
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


@cache
def _suffix_list() -> tldextract.TLDExtract:
    # Imported with the first host, for it brings `requests` along: 60 ms and 6 MB that commands without a URL can spare.
    import tldextract  # noqa: PLC0415

    # The snapshot inside the package: no download, no cache directory, no lock files.
    return tldextract.TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)


def shard_of(domain: str, shards: int) -> int:
    """The shard, 0 to `shards` - 1, that keeps `domain`: the same on every machine and in every release."""
    return xxhash.xxh3_64_intdigest(domain.encode(), SHARD_SEED) % shards


def site_of(prefix: str) -> tuple[str, str] | None:
    """Domain and origin for `prefix`, a serialised URL up to its path; None if DNS cannot carry its host.

    The user information and the final dot of the host are left out of the origin.
    """
    if "@" in prefix:
        prefix = prefix[: prefix.index("//") + 2] + prefix.rpartition("@")[2]
    return _site_of(prefix) if len(prefix) <= _LONGEST_SITE else None


@lru_cache(maxsize=8192)
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
