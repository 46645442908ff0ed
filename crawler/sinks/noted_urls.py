"""The URLs that this crawler has noted with pages, in JSON lines and metadata records, and how those of one domain are
removed from there. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from crawler.sinks.page_lines import Place
from frontier.domains import is_of
from frontier.errors import BadUrl
from frontier.urls import canonicalize

LINE_URLS = ("canonical", "via", "near_of", "tdm_policy")
"""The fields of a JSON line that hold one URL."""

LINE_LISTS = ("links", "licenses")
"""Those that hold a list of URLs."""

LINE_TAGGED = "followed"
"""The field that holds lists of URLs by their tags."""

_METADATA_URLS = ("outlink", "via", "tdm-policy", "licenses")
"""The lines of a metadata record that hold URLs."""

_AS_WRITTEN = (b'"tdm_policy":"', b'"licenses":["', b"tdm-policy: ", b"licenses: ")
"""What precedes URLs that earlier versions have stored as their sites wrote them, in lines and metadata records."""

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class NotedUrls:
    """Finds the URLs of `domain`."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._needle = domain.encode()

    def is_named_in(self, text: bytes) -> bool:
        """Whether `text` contains the name of the domain, as it may if it is damaged."""
        return self._needle in text.lower()

    def names(self, url: str) -> bool:
        """Whether `url` is of the domain, also if it is not in canonical form."""
        try:
            return is_of(url, self._domain) or canonicalize(url, "https://base.invalid/").domain == self._domain
        except BadUrl:
            return False

    def may_be_in(self, text: bytes) -> bool:
        """Whether a line or metadata record may have a URL of the domain."""
        return self._needle in text or any(mark in text for mark in _AS_WRITTEN)

    def without_in_metadata(self, line: bytes, gone: list[str]) -> bytes | None:
        """A line of a metadata record, such as `outlink: URL L a/@href`, without the URLs of the domain; None if it has no
        other. They are added to `gone`."""
        name, _, value = line.decode(errors="replace").partition(": ")
        words = value.split(" ")
        named = [word for word in words if name in _METADATA_URLS and self.names(word)]
        if not named:
            return line
        gone += named
        kept = [word for word in words if word not in named] if name == "licenses" else []
        return f"{name}: {' '.join(kept)}".encode() if kept else None

    def without(self, fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """What changes in `fields` of a JSON line so that they do not name the domain, and the URLs that are removed."""
        changes: dict[str, Any] = {}
        gone: list[str] = []
        for name in LINE_LISTS:
            named = msgspec.json.decode(fields[name], type=list[str] | None) if name in fields else None
            found = [url for url in named or () if self.names(url)]
            if named is not None and found:
                changes[name] = [url for url in named if url not in found]
                gone += found
        if LINE_TAGGED in fields:
            tagged = msgspec.json.decode(fields[LINE_TAGGED], type=dict[str, list[str]] | None) or {}
            if found := [url for urls in tagged.values() for url in urls if self.names(url)]:
                changes[LINE_TAGGED] = {tag: [url for url in urls if url not in found] for tag, urls in tagged.items()}
                gone += found
        for name in LINE_URLS:
            url = msgspec.json.decode(fields[name], type=str | None) if name in fields else None
            if url and self.names(url):
                changes[name] = None
                gone.append(url)
        return changes, gone


def parsed(line: bytes) -> dict[str, Any] | None:
    """The fields of a JSON line, None if it is not the line of a page."""
    try:
        fields: dict[str, Any] = _fields_decoder.decode(line)
        msgspec.convert([msgspec.json.decode(fields[name]) for name in ("domain", "url")], list[str])
        msgspec.json.decode(fields["warc"], type=Place | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None
    return fields
