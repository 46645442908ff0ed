"""The URLs of licence offers, which sites write in robots.txt, headers, pages and tdmrep.json. Pure."""

from __future__ import annotations

from typing import Final

from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize

_AS_GIVEN: Final = UrlRules(strip_params=(), session_params=())


def offer_url(text: str) -> str:
    """The absolute http(s) URL `text` in canonical form, with its fragment, which may name a part of the offer. Empty if
    it is none, or has spaces or control characters: the URLs of a record are in one line, with spaces between them."""
    if not text.isprintable() or " " in text:
        return ""
    try:
        url = canonicalize(text, rules=_AS_GIVEN).href
    except BadUrl:
        return ""
    _, mark, fragment = text.partition("#")
    return url + mark + fragment
