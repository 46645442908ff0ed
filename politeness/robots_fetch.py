"""Getting one origin's robots.txt: what to request next, what an answer means, and how long that stands. Pure.

`RobotsFetch` says which URL to request, takes what came of it, and ends with a `RobotsFetchResult`. `next_record`
makes of the verdict and of the record before it the record that is stored. What a URL of the origin gets:

| record | access | a URL is |
|---|---|---|
| none yet, or not fresh | | not yet known: robots.txt is to be fetched first |
| fresh, of a 2xx answer | "rules" | decided by the rules |
| fresh, 4xx but not 429, or redirects that lead nowhere | "allow" | allowed (RFC 9309 2.3.1.3, 2.3.1.2) |
| fresh, unreachable, with rules from before | "rules" | decided by those rules (2.4) |
| fresh, unreachable, nothing from before | "disallow" | not fetched; it may wait until `retry_at_ms` (2.3.1.4) |
| fresh, unreachable for 30 days, nothing from before | "allow" | allowed (2.3.1.4) |

Unreachable are 5xx, network errors and time-outs, and by our own choice 429: the RFC counts all of 400-499 as
unavailable, after which a crawler *may* fetch; a server that says "too many requests" is taken at its word instead.
"Before" means a copy of the file. An earlier 4xx is no copy, so it does not outlive its day.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec

from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize
from politeness.backoff import BackoffPolicy, parse_retry_after, rest_after
from politeness.errors import BadRecord
from politeness.robots_text import MAX_BODY, cut_body

Access = Literal["rules", "allow", "disallow"]

MAX_REDIRECTS: Final = 5
"""RFC 9309 2.3.1.2: at least five are followed; beyond that the file may be taken as unavailable."""

_AS_GIVEN: Final = UrlRules(strip_params=(), session_params=())


FOR_EVER: Final = BackoffPolicy(give_up_after=None)


class RobotsPolicy(msgspec.Struct, frozen=True):
    """How long records stand. All in seconds.

    `max_age_s`: a day at most (RFC 9309 2.4). `min_age_s`: a shorter max-age of the server is not obeyed; many servers
    say 0 for whatever they serve, and would be asked for robots.txt before each page. `retry`: the schedule while the
    file is unreachable; it never gives up. `assume_unavailable_after_s`: RFC 9309 2.3.1.4 names 30 days; None never
    assumes it.
    """

    max_age_s: float = 86_400.0
    min_age_s: float = 3_600.0
    retry: BackoffPolicy = FOR_EVER
    assume_unavailable_after_s: float | None = 30 * 86_400.0


DEFAULT_POLICY: Final = RobotsPolicy()


class HttpResponse(Protocol):
    """An HTTP response. `body` is the entity as received, `headers` in the order of arrival; `truncated` is None, or why
    the body is not whole: "length", "time" or "disconnect"."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def truncated(self) -> str | None: ...


class RobotsFetchResult(msgspec.Struct, frozen=True):
    """How an attempt to get robots.txt ended, regardless of what was known before.

    `access`: "rules" (2xx; the file is in `body`), "allow" (unavailable) or "disallow" (unreachable). `reason`: one word.
    `status`: of the last response, None if there was none. `max_age_s`: the server's, None if it gave none.
    `dropped_bytes`: number of received bytes beyond the limit. `excerpt`: the packed `Excerpt` that replaces `body` before
    the result becomes a record (`RobotsCache.condense`).
    """

    access: Access
    reason: str
    status: int | None = None
    body: bytes = b""
    retry_after_ms: int | None = None
    max_age_s: float | None = None
    dropped_bytes: int = 0
    excerpt: bytes = b""


class RobotsFetch:
    """One attempt to get the robots.txt of `origin` ("https://host" or "https://host:port").

    Request `url`, then call `received` or `failed` once; on to the next request as long as that returns None.
    """

    def __init__(self, origin: str, max_bytes: int = MAX_BODY) -> None:
        self.origin = origin
        self.url = f"{origin}/robots.txt"
        self.hops = 0
        self._max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<RobotsFetch {self.origin} url={self.url} hops={self.hops}>"

    def received(self, answer: HttpResponse, now_ms: int, body: bytes | None = None) -> RobotsFetchResult | None:
        """What `answer` to the request for `url` means, or None if another hop is to be made.

        `body`: the answer's body with its content coding undone. Without it the answer's own is taken, and if that is
        coded the file counts as unreachable: misread as a file without rules, it would open the whole site.
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

    def failed(self, kind: str, now_ms: int) -> RobotsFetchResult:
        """What it means that `url` could not be had. `kind`: one word, such as "timeout"."""
        return RobotsFetchResult("disallow", kind)  # RFC 9309 2.3.1.4: network errors are as server errors

    def _successful(self, answer: HttpResponse, body: bytes | None) -> RobotsFetchResult:
        if answer.truncated in ("time", "disconnect"):
            # The rest of the file may hold the rule that matters. Cut by length it has been read as far as 2.5 asks.
            return RobotsFetchResult("disallow", f"cut_by_{answer.truncated}", answer.status)
        if body is None:
            codings = (_header_list(answer, b"content-encoding") or b"").lower().split(b",")
            if any(coding.strip() not in (b"", b"identity") for coding in codings):
                return RobotsFetchResult("disallow", "content_coding", answer.status)
            body = answer.body
        kept = cut_body(body, self._max_bytes)
        max_age_s = _max_age(_header_list(answer, b"cache-control"))
        dropped = len(body) - len(kept)
        return RobotsFetchResult("rules", "ok", answer.status, kept, max_age_s=max_age_s, dropped_bytes=dropped)

    def _redirected(self, answer: HttpResponse) -> RobotsFetchResult | None:
        """RFC 9309 2.3.1.2. A redirect without a target that can be requested is one that never ends."""
        location = _header(answer, b"location")
        if location is None or answer.status == 304:
            return RobotsFetchResult("allow", f"http_{answer.status}", answer.status)
        if self.hops == MAX_REDIRECTS:
            return RobotsFetchResult("allow", "too_many_redirects", answer.status)
        try:
            # Across hosts, too; the rules then count for the origin that was asked first.
            self.url = canonicalize(location.decode("utf-8", "replace"), self.url, _AS_GIVEN).href
        except BadUrl:
            return RobotsFetchResult("allow", "bad_redirect", answer.status)
        self.hops += 1
        return None


class RobotsRecord(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an origin's robots.txt. Times are milliseconds since 1970.

    `access`, `reason`, `status`: see the table above and `RobotsFetchResult`; `reason` and `status` tell of the last
    attempt. `retry_at_ms`: when to fetch again; until then the record is fresh. `excerpt` and `fetched_at_ms`: of the last
    2xx response. `failures`: attempts in a row that found the file unreachable; `unreachable_since_ms`: the first of them.
    """

    access: Access
    reason: str
    status: int | None
    fetched_at_ms: int
    retry_at_ms: int
    excerpt: bytes = b""
    failures: int = 0
    unreachable_since_ms: int | None = None

    def is_fresh(self, now_ms: int) -> bool:
        """Whether the record answers for its origin now."""
        return now_ms < self.retry_at_ms

    def pack(self) -> bytes:
        """The bytes that `unpack` reads."""
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


_VERSION: Final = b"\x02"
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(RobotsRecord)


def next_record(
    previous: RobotsRecord | None,
    result: RobotsFetchResult,
    now_ms: int,
    rand: float,
    policy: RobotsPolicy = DEFAULT_POLICY,
) -> RobotsRecord:
    """The record after an attempt that ended with `result` at `now_ms`. `rand`: from 0 to 1."""
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
    # The longer of the two: a page can wait for its robots.txt, and the schedule starts at a minute.
    rest_s = max(rest_after(policy.retry, failures, rand), (result.retry_after_ms or 0) / 1000)
    retry_at_ms = now_ms + int(rest_s * 1000)
    access: Access = "disallow"
    fetched_at_ms, excerpt = 0, b""
    if previous is not None and previous.access == "rules":
        access, fetched_at_ms, excerpt = "rules", previous.fetched_at_ms, previous.excerpt
    elif _is_assumed_unavailable(now_ms - since_ms, policy):
        access = "allow"
    return RobotsRecord(access, result.reason, result.status, fetched_at_ms, retry_at_ms, excerpt, failures, since_ms)


def _is_assumed_unavailable(unreachable_ms: int, policy: RobotsPolicy) -> bool:
    """Whether a file has been out of reach so long that it may be taken as unavailable (RFC 9309 2.3.1.4)."""
    limit_s = policy.assume_unavailable_after_s
    return limit_s is not None and unreachable_ms >= limit_s * 1000


def _header(answer: HttpResponse, name: bytes) -> bytes | None:
    for key, value in answer.headers:
        if key.lower() == name:
            return value
    return None


def _header_list(answer: HttpResponse, name: bytes) -> bytes | None:
    """All values of a field whose value is a list and may come in several lines (RFC 9110 5.3); None if there is none."""
    values = [value for key, value in answer.headers if key.lower() == name]
    return b", ".join(values) if values else None


_MAX_AGE: Final = re.compile(rb'(?:^|[,\s])max-age="?([0-9]{1,9})(?![0-9])', re.IGNORECASE)


def _max_age(cache_control: bytes | None) -> float | None:
    """The max-age of a Cache-Control header in seconds (RFC 9111 5.2.2.1), or None."""
    found = _MAX_AGE.search(cache_control or b"")
    return float(found[1]) if found else None
