"""Checks that the requests in an archive were signed, and that each signature was valid when its request was sent.

The keys are those in the warcinfo record of the same file, which a replica with `[identity] keys` writes. After the first
signed request of a crawl, all have to be signed: sites cannot tell requests of a replica without keys from forged ones.
The packages for signatures are optional, and imported only if a file has keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from crawler.identity.web_bot_auth import Keys

LATE_S = 600
"""Seconds by which a record may come after one of a later request, because records are written when responses end."""

SWEPT_AT = 1_000
"""Number of nonces above which the expired ones are forgotten."""


class BadSignature(msgspec.Struct, frozen=True):
    """The request to `url` at `at` (seconds since 1970) with a signature that does not hold, or none."""

    url: str
    at: float
    problem: str


class Signatures:
    """The signatures of an archive. `checked`: how many requests were sent with keys; `bad`: what is wrong with them."""

    def __init__(self) -> None:
        self.checked = 0
        self.bad: list[BadSignature] = []
        self._since = math.inf
        self._without_keys: list[tuple[str, float]] = []
        self._keys: Keys | None = None
        self._unusable = ""
        self._nonces: dict[str, int] = {}
        self._sweep_at = SWEPT_AT

    @property
    def is_checking(self) -> bool:
        """Whether the replica that wrote the current file has signed its requests."""
        return self._keys is not None

    @property
    def unsigned(self) -> list[BadSignature]:
        """The requests of replicas without keys after the first request of one that signs."""
        problem = "not signed, although the crawl signed its requests before"
        return [BadSignature(url, at, problem) for url, at in self._without_keys if at > self._since]

    def read_keys(self, key_sets: Iterable[str]) -> None:
        """Remember the key sets of a warcinfo record for the requests after it, in the same file. Raises UserError if the
        packages for this are not installed."""
        bodies = [key_set.encode() for key_set in key_sets]
        self._keys, self._unusable = None, ""
        if not bodies:
            return
        # These need optional packages.
        from crawler.identity.signatures import NotDecided  # noqa: PLC0415
        from crawler.identity.web_bot_auth import read_key_set  # noqa: PLC0415

        self._keys = {}
        try:
            for body in bodies:
                self._keys = {**self._keys, **read_key_set(body, source="the key set in the warcinfo record")}
        except NotDecided as error:
            self._unusable = str(error)

    def note_unsigned(self, url: str, at: float) -> None:
        """Remember a request of a replica without keys."""
        self._without_keys.append((url, at))

    def check(self, url: str, at: float, head: bytes) -> None:
        """Check the signature of a request with the bytes `head`, which was sent to `url` at `at`, in seconds since
        1970."""
        # As above.
        from crawler.identity.signatures import Message, NotDecided, NotValid  # noqa: PLC0415
        from crawler.identity.web_bot_auth import check_request  # noqa: PLC0415

        self.checked += 1
        self._since = min(self._since, at)
        if self._unusable:
            self.bad.append(BadSignature(url, at, self._unusable))
            return
        keys = self._keys or {}
        try:
            message = Message.from_head(head.decode("latin-1"), urlsplit(url).scheme)
            found = check_request(message, lambda _: keys, at, "the key set in the warcinfo record")
        except (NotValid, NotDecided) as error:
            self.bad.append(BadSignature(url, at, str(error)))
            return
        for one in found:
            if one.nonce and one.nonce in self._nonces:
                self.bad.append(BadSignature(url, at, "another request has the same nonce"))
            if one.nonce:
                self._nonces[one.nonce] = one.expires
        if len(self._nonces) >= self._sweep_at:
            self._forget_expired(at)

    def _forget_expired(self, at: float) -> None:
        """Forget the nonces that had expired at `at`: a request that repeats one has an expired signature anyway."""
        self._nonces = {nonce: expires for nonce, expires in self._nonces.items() if expires > at - LATE_S}
        self._sweep_at = max(SWEPT_AT, 2 * len(self._nonces))
