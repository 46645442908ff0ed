"""Maps hosts to their domains, and domains to shards."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

import xxhash

from frontier.errors import BadInput

SHARD_SEED = 0
"""Must not change: another seed would move every domain to a shard that does not hold its queue."""

SUFFIX_LIST = "PEERCRAWL_SUFFIX_LIST"
"""The environment variable that names a file with a newer Public Suffix List than the one in the package `tldextract`. It
must be the same for all replicas of a crawl until its end: domains name the queues."""

LONGEST_HOST = 253  # bytes without the final dot (RFC 1035 2.3.4, less the length bytes)
_LONGEST_LABEL = 63  # bytes (RFC 1035 2.3.4)
_PATH = re.compile(r"[/?#]")
_IPV4 = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}")
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
    labels = host.lower().split(".")
    if host.startswith("[") or "" in labels or _IPV4.fullmatch(host):
        return None
    size = max(1, _suffix_size(labels)) + 1
    return ".".join(labels[-size:]) if len(labels) >= size else None


def is_public_suffix(host: str) -> bool:
    """Whether `host` is on the Public Suffix List, private suffixes included, so that others register domains under it."""
    labels = host.lower().split(".")
    return _suffix_size(labels) == len(labels)


def _suffix_size(labels: Sequence[str]) -> int:
    """How many of the last of `labels` are a suffix on the Public Suffix List. 0 if there is none."""
    names, rules = [_unicode(label) if label.startswith("xn--") else label for label in labels], _rules()
    for size in range(len(names), 0, -1):
        name = ".".join(names[-size:])
        if f"!{name}" in rules:
            return size - 1
        if name in rules or f"*.{name.partition('.')[2]}" in rules:
            return size
    return 0


def _unicode(label: str) -> str:
    """`label` as the list writes it."""
    with contextlib.suppress(UnicodeError):
        return label[4:].encode().decode("punycode")
    return label


def suffix_list_date() -> str:
    """The date of the Public Suffix List in use as it states it, and its file if it is not the bundled one."""
    named = os.environ.get(SUFFIX_LIST)
    found = re.search(r"^// VERSION: (\S+)", _suffix_list_text(), re.MULTILINE)
    return (found[1] if found else "without a date") + (f" from {named}" if named else ", bundled")


def suffix_list_mark() -> str:
    """A hash of the rules of the Public Suffix List in use, and its date as `suffix_list_date` says it."""
    rules = sorted(_rules.__wrapped__())  # of the file as it is now, like its date
    return f"{xxhash.xxh3_64_hexdigest(chr(10).join(rules).encode())} {suffix_list_date()}"


@cache
def _rules() -> frozenset[str]:
    lines = map(str.rstrip, _suffix_list_text().split("\n"))
    return frozenset(line for line in lines if line and not line.startswith("//"))


def _suffix_list_text() -> str:
    named = os.environ.get(SUFFIX_LIST)
    if not named:
        package = find_spec("tldextract")  # not imported, because it imports `requests`: 100 ms and 19 MB
        assert package is not None
        assert package.origin is not None
        return Path(package.origin).with_name(".tld_set_snapshot").read_text("utf-8")
    try:
        text = Path(named).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise BadInput(f"{SUFFIX_LIST} names {named}, which cannot be read: {error}") from error
    if not re.search(r"^com$", text, re.MULTILINE) or "===BEGIN PRIVATE DOMAINS===" not in text:
        raise BadInput(f"{SUFFIX_LIST} names {named}, which is not the whole list of https://publicsuffix.org/list/")
    return text


def is_of(url: str, domain: str) -> bool:
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
    """Domain and origin of `prefix`, a serialised URL up to its path, without user and final dot. None if not valid."""
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
