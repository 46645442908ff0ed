"""Decides what to request for the robots.txt of an origin, what a response means, and how long it is valid. No I/O.

`RobotsFetch` says which URL to request, takes the response, and ends with a `RobotsFetchResult`. `next_record` makes the
record of the origin from this result and from the record before. `crawler.worker.robots` sends the requests, and
`crawler.worker.verdict` says what becomes of a URL:

| the last attempt ended with | record, while it is fresh | a URL of the origin |
|---|---|---|
| (no record, or one that is not fresh) | | waits: robots.txt is requested first |
| 2xx | "rules" | as the rules say |
| 4xx except 429, or a redirect that leads nowhere | "allow" | is allowed (RFC 9309 2.3.1.3, 2.3.1.2) |
| unreachable, and a 2xx before | "rules" | as the rules of that 2xx say, however old they are (2.4) |
| unreachable, and no 2xx before | "disallow" | waits, or is dead if as many attempts failed as a page has tries (2.3.1.4) |
| the same for 30 days | "allow" | is allowed (2.3.1.4) |

A redirect leads nowhere if it has no usable Location or is the sixth. Unreachable means: 5xx, 429, a failed request (a
timeout, no such host, the target of a redirect that is blocked), a body that was cut off by time or by a disconnect,
one that cannot be decoded, or a file that cannot be processed because of a defect of the crawler. The attempts that
failed in a row are counted for the origin, so a URL that is found after the last of them is dead at once. The RFC
counts 429 as unavailable, so a crawler *may* fetch; but a server that says "too many requests" should not get more. A
4xx is not a copy of the file: if the file is unreachable when the record of a 4xx is no longer fresh, after a day at
most, nothing is allowed. Redis drops a record an hour after it stopped being fresh (`robots_cache`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec

from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize, decoded_reference
from politeness.backoff import BackoffPolicy, backoff_s, parse_retry_after
from politeness.robots_syntax import MAX_BODY, BadRecord, cut_body

Access = Literal["rules", "allow", "disallow"]
"""What follows from the last attempts. "disallow": the file is unreachable, a "complete disallow" (RFC 9309 2.3.1.4); a
file that says Disallow has "rules". Records in Redis and events have these words."""

MAX_REDIRECTS: Final = 5
"""RFC 9309 2.3.1.2: follow at least five; with more, the file may be considered unavailable."""

_AS_GIVEN: Final = UrlRules(strip_params=(), session_params=())


class RobotsPolicy(msgspec.Struct, frozen=True):
    """How long records are valid. All times are in seconds.

    `max_age_s`: a day at most (RFC 9309 2.4). `min_age_s`: lower bound for the max-age of the server. Many servers send 0
    with every response, and would be asked for robots.txt before each page. `retry`: backoff while the file is unreachable;
    it never gives up. `assume_unavailable_after_s`: RFC 9309 2.3.1.4 suggests 30 days; None for never.
    """

    max_age_s: float = 86_400.0
    min_age_s: float = 3_600.0
    retry: BackoffPolicy = BackoffPolicy(give_up_after=None)
    assume_unavailable_after_s: float | None = 30 * 86_400.0


DEFAULT_POLICY: Final = RobotsPolicy()


class HttpResponse(Protocol):
    """`body`: as received, still coded. `truncated`: None, or why it is incomplete: "length", "time" or "disconnect"."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def truncated(self) -> str | None: ...


class RobotsFetchResult(msgspec.Struct, frozen=True):
    """How an attempt to fetch robots.txt ended, regardless of what was known before.

    `access`: "rules" (2xx; the file is in `body`), "allow" (it does not exist) or "disallow" (it is unreachable). `reason`:
    one word. `status`: of the last response, None if there was none. `retry_after_ms`, `max_age_s`: what the server asks
    for, None if nothing. `excerpt`: the packed `Excerpt` that replaces `body` before the result becomes a record
    (`RobotsCache.condense`). `detail`: the reason in words, if there is more to say.
    """

    access: Access
    reason: str
    status: int | None = None
    body: bytes = b""
    retry_after_ms: int | None = None
    max_age_s: float | None = None
    excerpt: bytes = b""
    detail: str = ""


class RobotsFetch:
    """One attempt to fetch the robots.txt of `origin` ("https://host" or "https://host:port").

    Request `url`, then call `received` or `failed`. Repeat this while it returns None.
    """

    def __init__(self, origin: str, max_bytes: int = MAX_BODY) -> None:
        self.origin = origin
        self.url = f"{origin}/robots.txt"
        self.hops = 0
        self.not_accepted = 0  # responses that the caller did not pass on
        self._max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.origin} url={self.url} hops={self.hops}>"

    def received(self, answer: HttpResponse, now_ms: int, body: bytes | None = None) -> RobotsFetchResult | None:
        """What the response `answer` to the request for `url` means, or None after a redirect.

        `body`: the decoded body. If it is None, the body of `answer` is used. If that has a content coding, the file counts
        as unreachable, because it would be read as a file without rules and open the whole site.
        """
        status = answer.status
        if 200 <= status <= 299:
            return self._successful(answer, body)
        if 300 <= status <= 399:
            return self._redirected(answer)
        if 400 <= status <= 499 and status != 429:
            return RobotsFetchResult("allow", f"http_{status}", status)  # RFC 9309 2.3.1.3
        retry_after = _header(answer, b"retry-after")
        wait_s = parse_retry_after(retry_after, now_ms / 1000) if retry_after is not None else None
        wait_ms = None if wait_s is None else int(wait_s * 1000)
        return RobotsFetchResult("disallow", f"http_{status}", status, retry_after_ms=wait_ms)  # RFC 9309 2.3.1.4

    def failed(self, kind: str, detail: str = "") -> RobotsFetchResult:
        """The result if the request for `url` failed. `kind`: one word, such as "timeout"; `detail`: in words. The reason
        says whether it was a redirect that failed, because this tells nothing about the origin's own host."""
        reason = f"redirect_{kind}" if self.hops else kind
        # RFC 9309 2.3.1.4: network errors count as server errors.
        return RobotsFetchResult("disallow", reason, detail=detail)

    def _successful(self, answer: HttpResponse, body: bytes | None) -> RobotsFetchResult:
        if answer.truncated in ("time", "disconnect"):
            # The missing part may contain the rule that matters. A body cut by length is as long as 2.5 requires.
            return RobotsFetchResult("disallow", f"cut_by_{answer.truncated}", answer.status)
        if body is None:
            codings = (_header_list(answer, b"content-encoding") or b"").lower().split(b",")
            if any(coding.strip() not in (b"", b"identity") for coding in codings):
                return RobotsFetchResult("disallow", "content_coding", answer.status)
            body = answer.body
        kept = cut_body(body, self._max_bytes)
        max_age_s = _max_age(_header_list(answer, b"cache-control"))
        return RobotsFetchResult("rules", "ok", answer.status, kept, max_age_s=max_age_s)

    def _redirected(self, answer: HttpResponse) -> RobotsFetchResult | None:
        """RFC 9309 2.3.1.2. A redirect that cannot be followed counts like one that never ends."""
        location = _header(answer, b"location")
        if location is None or answer.status == 304:
            return RobotsFetchResult("allow", f"http_{answer.status}", answer.status)
        if self.hops == MAX_REDIRECTS:
            return RobotsFetchResult("allow", "too_many_redirects", answer.status)
        try:
            # To another host, too. The rules apply to the origin that was asked first.
            self.url = canonicalize(decoded_reference(location), self.url, _AS_GIVEN).href
        except BadUrl:
            return RobotsFetchResult("allow", "bad_redirect", answer.status)
        self.hops += 1
        return None


class RobotsRecord(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an origin's robots.txt. Times are milliseconds since 1970.

    `access`: see the table at the top of this module; `reason`, `status` and `detail`: of the last attempt
    (`RobotsFetchResult`).
    `retry_at_ms`: when to fetch again; until then the record is fresh. `excerpt` and `fetched_at_ms`: of the last 2xx
    response. `failures`: attempts in a row that found the file unreachable; `unreachable_since_ms`: the first of them.
    `tdm`: the packed `TdmFile` of the origin that was fetched last, empty if it has none, None if that is not known;
    `tdm_failures`: attempts in a row that found it unreachable; `tdm_retry_at_ms`: when to fetch it again.
    """

    access: Access
    reason: str
    status: int | None
    fetched_at_ms: int
    retry_at_ms: int
    excerpt: bytes = b""
    failures: int = 0
    unreachable_since_ms: int | None = None
    tdm: bytes | None = None
    tdm_failures: int = 0
    tdm_retry_at_ms: int = 0
    detail: str = ""

    @property
    def in_words(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason

    @property
    def has_unreachable(self) -> bool:
        """Whether robots.txt or tdmrep.json is unreachable, and no earlier copy is known."""
        return self.access == "disallow" or self.is_tdm_unreachable

    @property
    def is_tdm_unreachable(self) -> bool:
        """Whether tdmrep.json is unreachable, and no earlier copy is known."""
        return self.tdm is None and self.tdm_failures > 0

    def is_fresh(self, now_ms: int) -> bool:
        """Whether the record may be used now."""
        return now_ms < self.retry_at_ms

    def pack(self) -> bytes:
        return _VERSION + _encoder.encode(self)

    @staticmethod
    def unpack(packed: bytes) -> RobotsRecord:
        """Raises BadRecord if `packed` is not what `pack` made."""
        if packed[:1] != _VERSION:
            raise BadRecord(f"robots record of another version: {packed[:1]!r}")
        try:
            return _decoder.decode(packed[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadRecord(f"robots record is damaged: {error}") from error


_VERSION: Final = b"\x03"
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(RobotsRecord)


def next_record(
    previous: RobotsRecord | None,
    result: RobotsFetchResult,
    now_ms: int,
    rand: float,
    policy: RobotsPolicy = DEFAULT_POLICY,
) -> RobotsRecord:
    """The record after an attempt that ended with `result` at `now_ms`. `rand`: random number from 0 to 1."""
    record = _next(previous, result, now_ms, rand, policy)
    if previous is None:
        return record
    failures, retry_at_ms = previous.tdm_failures, previous.tdm_retry_at_ms
    return msgspec.structs.replace(record, tdm=previous.tdm, tdm_failures=failures, tdm_retry_at_ms=retry_at_ms)


def _next(
    previous: RobotsRecord | None, result: RobotsFetchResult, now_ms: int, rand: float, policy: RobotsPolicy
) -> RobotsRecord:
    if result.access == "disallow":
        return _unreachable(previous, result, now_ms, rand, policy)
    age_s = policy.max_age_s
    if result.max_age_s is not None:
        age_s = min(age_s, max(result.max_age_s, policy.min_age_s))
    retry_at_ms = now_ms + int(age_s * 1000)
    return RobotsRecord(result.access, result.reason, result.status, now_ms, retry_at_ms, result.excerpt)


def _unreachable(
    previous: RobotsRecord | None, result: RobotsFetchResult, now_ms: int, rand: float, policy: RobotsPolicy
) -> RobotsRecord:
    failures = previous.failures + 1 if previous else 1
    since_ms = now_ms
    if previous is not None and previous.unreachable_since_ms is not None:
        since_ms = previous.unreachable_since_ms
    retry_at_ms = now_ms + retry_wait_ms(failures, result, rand, policy)
    access: Access = "disallow"
    fetched_at_ms, excerpt = 0, b""
    if previous is not None and previous.access == "rules":
        access, fetched_at_ms, excerpt = "rules", previous.fetched_at_ms, previous.excerpt
    elif (
        policy.assume_unavailable_after_s is not None and now_ms - since_ms >= policy.assume_unavailable_after_s * 1000
    ):
        access = "allow"  # RFC 9309 2.3.1.4
    return RobotsRecord(
        access,
        result.reason,
        result.status,
        fetched_at_ms,
        retry_at_ms,
        excerpt,
        failures,
        since_ms,
        detail=result.detail,
    )


def retry_wait_ms(failures: int, result: RobotsFetchResult, rand: float, policy: RobotsPolicy) -> int:
    """How long to wait after `result`, the last of `failures`: the longer of the backoff and the server's wish."""
    return int(max(backoff_s(policy.retry, failures, rand), (result.retry_after_ms or 0) / 1000) * 1000)


def _header(answer: HttpResponse, name: bytes) -> bytes | None:
    return next((value for key, value in answer.headers if key.lower() == name), None)


def _header_list(answer: HttpResponse, name: bytes) -> bytes | None:
    """The values of a list field, which may have several lines (RFC 9110 5.3); None if there is none."""
    values = [value for key, value in answer.headers if key.lower() == name]
    return b", ".join(values) if values else None


_MAX_AGE: Final = re.compile(rb'(?:^|[,\s])max-age="?([0-9]{1,9})(?![0-9])', re.IGNORECASE)


def _max_age(cache_control: bytes | None) -> float | None:
    """The max-age of a Cache-Control header in seconds (RFC 9111 5.2.2.1), or None."""
    found = _MAX_AGE.search(cache_control or b"")
    return float(found[1]) if found else None
