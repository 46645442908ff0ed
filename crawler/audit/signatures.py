"""Checks that the requests in an archive were signed, and that each signature was valid when its request was sent.

The keys are those in the warcinfo record of the same file, which a replica with `[identity] keys` writes. The packages for
signatures are optional, and imported only if a file has keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec


class BadSignature(msgspec.Struct, frozen=True):
    """The request to `url` at `at` (seconds since 1970) with a signature that does not hold, or none."""

    url: str
    at: float
    problem: str


class Signatures:
    """The signatures of an archive. `checked`: how many requests should have one; `bad`: what is wrong with them."""

    def __init__(self) -> None:
        self.checked = 0
        self.bad: list[BadSignature] = []
        self._key_sets: list[bytes] = []
        self._nonces: set[str] = set()

    @property
    def is_checking(self) -> bool:
        """Whether the replica that wrote the current file has signed its requests."""
        return bool(self._key_sets)

    def read_keys(self, key_sets: Iterable[str]) -> None:
        """Remember the key sets of a warcinfo record for the requests after it, in the same file."""
        self._key_sets = [key_set.encode() for key_set in key_sets]

    def check(self, url: str, at: float, head: bytes) -> None:
        """Check the signature of a request with the bytes `head`, which was sent to `url` at `at`, in seconds since 1970.
        Raises UserError if the packages for this are not installed."""
        # These need optional packages.
        from crawler.identity.message_signatures import Message, NotDecided, NotValid  # noqa: PLC0415
        from crawler.identity.web_bot_auth import check_request, read_key_set  # noqa: PLC0415

        self.checked += 1
        keys = {name: key for key_set in self._key_sets for name, key in read_key_set(key_set).items()}
        parts = urlsplit(url)
        try:
            message = Message.from_head(head.decode("latin-1"), parts.scheme)
            found = check_request(message, lambda _: keys, at)
        except (NotValid, NotDecided) as error:
            self.bad.append(BadSignature(url, at, str(error)))
            return
        for one in found:
            if one.nonce and one.nonce in self._nonces:
                self.bad.append(BadSignature(url, at, "another request has the same nonce"))
            self._nonces.add(one.nonce)
