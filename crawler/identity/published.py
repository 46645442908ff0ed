"""What is published of an identity: by which URLs, in which field of an archive, as address ranges, and on the page that
explains the crawler to the owners of sites. Needs no optional package, because settings and archives are read without them.

The page says who runs the crawler, why, how to block it, and how to complain. The best practices for crawlers ask for such
a page at a URL in the User-Agent header: write its URL into `fetch.contact`. The address ranges follow
draft-illyes-webbotauth-jafar-00 (21 April 2026), which extends the format that large crawlers use (`googlebot.json` has the
same `creationTime` and `prefixes`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from ipaddress import IPv4Network, ip_network
from typing import Any
from urllib.parse import urlsplit

import msgspec

KEY_SET_FIELD = "http-message-signatures-directory"
"""The field of a warcinfo record with the public keys of the replica. An audit checks signatures with them."""

LONGEST_VALIDITY_S = 86_400
"""Seconds for which a signature may be valid: the draft recommends that it expires within 24 hours."""

LONGEST_HEAD = 65_536
"""Bytes of a request that are read to check its signature."""


def is_https_url(url: str) -> bool:
    """Whether `url` is an https URL that others can fetch, and that can be a string in a header: ASCII without quotes."""
    if not (url.isascii() and url.isprintable()) or any(sign in url for sign in ' "\\'):
        return False
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0 and parts.username is None  # another port may raise
        return parts.scheme == "https" and has_host and not parts.fragment
    except ValueError:
        return False


def address_ranges(networks: Sequence[str], service: str, now: float) -> dict[str, Any]:
    """Return the file for `networks` (CIDR or single addresses), from which the crawler `service` sends requests.
    `now`: when it is made, in seconds since 1970.

    `synctoken` changes only with the ranges, so that a reader need not compare them.
    """
    prefixes = [_prefix(network, service) for network in networks]
    return {
        "synctoken": hashlib.sha256(msgspec.json.encode(prefixes)).hexdigest()[:16],
        "creationTime": datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "prefixes": prefixes,
    }


def _prefix(network: str, service: str) -> dict[str, Any]:
    parsed = ip_network(network)
    name = "ipv4Prefix" if isinstance(parsed, IPv4Network) else "ipv6Prefix"
    return {name: str(parsed), "services": [service]}


class About(msgspec.Struct, frozen=True):
    """What the page says. `complaints`: URL or email address; `directory`: URL of the key directory, or "";
    `addresses_url`: where the address ranges are published, or "". `uses`: for what the pages are used, in the words of
    Content-Usage, if the crawl obeys what sites say about that."""

    product: str
    user_agent: str
    operator: str
    purpose: str
    complaints: str
    delay_s: float
    robots_max_age_s: float
    addresses: Sequence[str] = ()
    addresses_url: str = ""
    directory: str = ""
    obeys_crawl_delay: bool = True
    uses: Sequence[str] = ()


STYLE = (
    "body{font:1rem/1.5 sans-serif;max-width:42rem;margin:2rem auto;padding:0 1rem}pre{background:#eee;padding:.5rem}"
)


def page(about: About) -> str:
    """Return the page as HTML. It loads nothing from elsewhere."""
    product = escape(about.product)
    sections = [
        ("Who runs it", [f"<p>{escape(about.operator)}</p>"]),
        ("Why it crawls", [f"<p>{escape(about.purpose)}</p>"]),
        ("How to recognize it", list(_recognition(about))),
        ("How to block it or slow it down", list(_blocking(about))),
        (
            "How to complain",
            [f"<p>Write to {_link(about.complaints)}. Name your site and the time of the requests.</p>"],
        ),
    ]
    parts = [f"<h2>{heading}</h2>\n" + "\n".join(lines) for heading, lines in sections]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{product}, a web crawler</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{product}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def _recognition(about: About) -> Iterable[str]:
    yield f"<p>Its requests have this User-Agent header:</p>\n<pre>{escape(about.user_agent)}</pre>"
    if about.directory:
        yield (
            "<p>Each request is signed according to the draft Web Bot Auth (HTTP Message Signatures, RFC 9421). "
            f"The keys are at {_link(about.directory)}. A request without a valid signature is not from this crawler.</p>"
        )
    if about.addresses:
        items = "".join(f"<li><code>{escape(one)}</code></li>" for one in about.addresses)
        link = _link(about.addresses_url, ' rel="client-ranges"')
        where = f" The list as JSON is at {link}." if about.addresses_url else ""
        yield f"<p>Its requests come from these addresses.{where}</p>\n<ul>{items}</ul>"


def _blocking(about: About) -> Iterable[str]:
    product = escape(about.product)
    yield (
        f"<p>It obeys robots.txt (RFC 9309), and reads it again after {about.robots_max_age_s / 3600:g} hours. "
        "These lines keep it away from a whole site:</p>\n"
        f"<pre>User-agent: {product}\nDisallow: /</pre>"
    )
    yield (
        f"<p>After each response, it waits at least {about.delay_s:g} s before its next request to the domain, and longer "
        "if the site answers slowly or with errors."
        + " <code>Crawl-delay</code> in robots.txt makes it wait longer, too." * about.obeys_crawl_delay
        + "</p>"
    )
    if about.uses:
        yield (
            f"<p>It obeys <code>Content-Usage</code> in robots.txt and in headers. A page for which you refuse "
            f"<code>{escape(', '.join(about.uses))}</code> is not kept.</p>"
        )


def _link(target: str, attributes: str = "") -> str:
    shown = escape(target)
    if target.startswith(("https://", "http://", "mailto:")):
        return f'<a{attributes} href="{shown}">{shown}</a>'
    return f'<a href="mailto:{shown}">{shown}</a>' if "@" in target else shown
