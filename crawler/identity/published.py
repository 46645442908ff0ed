"""By which URLs, and in which field of an archive, the public part of an identity is found. Needs no optional package,
because settings and archives are read without them."""

from __future__ import annotations

from urllib.parse import urlsplit

KEY_SET_FIELD = "http-message-signatures-directory"
"""The field of a warcinfo record with the public keys of the replica."""

LONGEST_VALIDITY_S = 86_400
"""Seconds for which a signature may be valid: the draft recommends that it expires within 24 hours."""


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
