"""The robots.txt files of a synthetic web, and what they deny.

The judge must not depend on the code under test or on any parser. So for each kind of file, the paths that it denies
are written by hand next to its text.
"""

from __future__ import annotations

from enum import StrEnum


class RobotsKind(StrEnum):
    """The response of a host to /robots.txt (RFC 9309 section 2.3)."""

    ABSENT = "absent"  # 404: unavailable, so all is allowed
    FORBIDDEN = "forbidden"  # 403: unavailable too
    ALLOW = "allow"
    FOLDER = "folder"  # denies /private/ but /private/open/, and .pdf
    DENY = "deny"  # denies everything
    DELAY = "delay"  # as FOLDER, with a Crawl-delay
    UNREACHABLE = "unreachable"  # 500 or 503 always, so all is denied
    FLAKY = "flaky"  # 503 twice, then as FOLDER
    MOVED = "moved"  # redirects to a host of another domain, which serves FOLDER for this one
    SHARED = "shared"  # the same, all hosts to one domain
    FIVE_HOPS = "five_hops"  # as FOLDER, at the end of five redirects
    SLOW = "slow"  # as FOLDER, slowly
    LARGE = "large"  # as FOLDER within the first 500 KiB, and more behind them
    GARBAGE = "garbage"  # 200 with bytes that mean nothing, so all is allowed
    BOM = "bom"  # as FOLDER, behind a byte order mark and with CR LF line ends


DENIES_ALL = frozenset({RobotsKind.DENY, RobotsKind.UNREACHABLE})
ALLOWS_ALL = frozenset({RobotsKind.ABSENT, RobotsKind.FORBIDDEN, RobotsKind.ALLOW, RobotsKind.GARBAGE})
FLAKY_FAILURES = 2
HOPS = 5

_FOLDER = """\
# Rules of this host
User-agent: some-other-bot
Disallow: /

User-Agent: *
Disallow: /private/
allow: /private/open/
Disallow: /*.pdf$
"""

_LARGE_BYTES = 700 * 1024


def denies(kind: RobotsKind, target: str) -> bool:
    """Whether a host with this kind of robots.txt denies `target` (path and query) to everyone.

    `UNREACHABLE` denies everything, and `FLAKY` is judged by its final rules. /robots.txt itself is always allowed (RFC
    9309 2.2.2).
    """
    if target == "/robots.txt" or kind in ALLOWS_ALL:
        return False
    if kind in DENIES_ALL:
        return True
    # The longest match wins (RFC 9309 2.2.2), so a PDF in /private/open/ is allowed.
    if target.startswith("/private/open/"):
        return False
    return target.startswith("/private/") or target.endswith(".pdf")


def text(kind: RobotsKind, crawl_delay_s: float, sitemap: str) -> bytes:
    """The text of the file, for kinds with status 200. `sitemap`: a URL, or empty if there is none."""
    if kind is RobotsKind.GARBAGE:
        return bytes(range(256)) * 8
    rules = {
        RobotsKind.ALLOW: "User-agent: *\nDisallow:\n",
        RobotsKind.DENY: "User-agent: *\nDisallow: /\n",
    }.get(kind, _FOLDER)
    if kind is RobotsKind.DELAY:
        rules += f"Crawl-delay: {crawl_delay_s:g}\n"
    if sitemap:
        rules += f"\nSitemap: {sitemap}\n"
    if kind is RobotsKind.BOM:
        return b"\xef\xbb\xbf" + rules.replace("\n", "\r\n").encode()
    if kind is RobotsKind.LARGE:
        rules += "".join(f"Disallow: /nowhere/{n}\n" for n in range(_LARGE_BYTES // 24))
    return rules.encode()
