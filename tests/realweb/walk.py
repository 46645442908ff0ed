"""An independent walk over the files of a documentation package: what a crawl of it must fetch.

Written against the standard library alone (html.parser, urllib.parse), so that it shares no code, and no mistake, with
the crawler.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

_DULL = re.compile(
    r"</?(?:b|br|code|dd|div|dl|dt|em|h[1-6]|i|li|ol|p|pre|section|span|strong|table|tbody|td|th|tr|tt|ul)(?:\s[^<>]*)?>",
    re.IGNORECASE,
)
"""Tags that carry no link and change the meaning of no other: nine in ten, and html.parser is slow."""


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hrefs: list[str] = []
        self.base: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(reversed(attrs))
        rel = (given.get("rel") or "").lower().split()
        href = given.get("href")
        if tag == "base" and href and self.base is None:
            self.base = href
        elif tag in ("a", "area") and href is not None and "nofollow" not in rel:
            self.hrefs.append(href)
        elif tag in ("iframe", "frame") and given.get("src"):
            self.hrefs.append(given["src"] or "")
        elif tag == "link" and href and _is_followed(rel, given.get("type")):
            self.hrefs.append(href)


def _is_followed(rel: list[str], kind: str | None) -> bool:
    if "alternate" in rel and (kind not in (None, "text/html") or "stylesheet" in rel):
        return False
    return bool({"canonical", "next", "prev", "alternate"} & set(rel))


def links_of(url: str, body: bytes) -> set[str]:
    """The absolute URLs that the page `body` at `url` links to, without fragments."""
    parser = _Links()
    parser.feed(_DULL.sub(" ", body.decode("utf-8", "replace")))
    base = urljoin(url, parser.base) if parser.base else url
    return {urldefrag(urljoin(base, href.strip()))[0] for href in set(parser.hrefs)}


def walk(start: str, folder: Path) -> set[str]:
    """Every URL of the host of `start` that can be reached from it, when `folder` is what the host serves."""
    host = urlsplit(start).netloc
    seen, pending = {start}, [start]
    while pending:
        url = pending.pop()
        path = folder / unquote(urlsplit(url).path).lstrip("/")
        if path.suffix not in (".html", ".htm") or not path.is_file():
            continue  # fetched, but no page: nothing to follow
        for link in links_of(url, path.read_bytes()):
            parts = urlsplit(link)
            if parts.scheme == "http" and parts.netloc == host:
                tidy = parts._replace(path=parts.path or "/", query=parts.query).geturl()
                if tidy not in seen:
                    seen.add(tidy)
                    pending.append(tidy)
    return seen
