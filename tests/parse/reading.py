"""Reads a page at `URL`, as tests write it."""

from __future__ import annotations

from typing import Any

from crawler.parse.html import Extracted, ExtractPolicy, extract

URL = "http://example.com/dir/page"


def read(html: str | bytes, content_type: str = "text/html", **policy: Any) -> Extracted:
    body = html.encode() if isinstance(html, str) else html
    return extract(body, URL, content_type, ExtractPolicy(**policy))


def links(html: str | bytes, **policy: Any) -> list[str]:
    """The paths, with their queries, of the links on the page's own host, and other links as they are."""
    return [link.url.removeprefix("http://example.com") for link in read(html, **policy).links]
