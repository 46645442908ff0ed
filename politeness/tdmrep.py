"""The TDM Reservation Protocol: whether the owner of a page reserves text and data mining. Pure.

By the Final Community Group Report of 10 May 2024 (W3C TDM Reservation Protocol Community Group). The reservation is in the
file /.well-known/tdmrep.json of a site, in the header of a response, or in `meta` elements of a page. Of several, the later
one in this order counts, separately for the reservation and for the policy ("Processing priority").

The protocol knows nothing of the categories of `usage_preferences`, so this module maps it to them. A reservation may mean
any analysis of a page by machines, so it disallows training and use as input. Its absence (0) surely allows training, which
is mining, and leaves the rest unknown. It says nothing about search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from frontier.urls import origin_of
from politeness.robots_fetch import (
    HttpResponse,
    RobotsFetch,
    RobotsFetchResult,
    RobotsPolicy,
    RobotsRecord,
    retry_wait_ms,
)
from politeness.robots_match import Pattern, Patterns, Statements
from politeness.robots_syntax import MAX_BODY, BadRecord, comparable, comparable_rule, utf8
from politeness.usage import NO_AI, NO_USAGE, Answers, Statement, Usage, combined, offer_url, quoted

PATH: Final = "/.well-known/tdmrep.json"

RESERVATION: Final = b"tdm-reservation"
POLICY: Final = b"tdm-policy"

MAX_RULES: Final = 1_000
"""Rules of a file that are read. The first one that matches counts, so each may have to be tried for each page."""

MAX_POLICY: Final = 2_048
"""The longest policy that is read: the limit of URLs."""

_ANSWERS: Final[dict[bool, Answers]] = {True: NO_AI, False: (("train-ai", True),)}

CATEGORIES: Final = frozenset(category for category, _ in NO_AI)
"""The categories about which the protocol may say something."""


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """What one place says. `is_reserved`: None if unknown. `policy`: URL of an offer, or "". `source`: where this is."""

    is_reserved: bool | None
    policy: str
    source: str

    @classmethod
    def of(cls, said: Mapping[bytes, str], source: str) -> Reservation:
        """The reservation in the values of `RESERVATION` and `POLICY`. Other values than 0 and 1 count as unset."""
        is_reserved = {"0": False, "1": True}.get(said.get(RESERVATION, "").strip(" \t"))
        return cls(is_reserved, _usable(said.get(POLICY, "")), source)


def _usable(policy: str) -> str:
    policy = policy.strip()
    return offer_url(policy) if len(policy) <= MAX_POLICY else ""


def last_statement(places: Iterable[Reservation]) -> tuple[Statement | None, str]:
    """The statement of the last of `places` that has one, and the last policy; empty unless mining is reserved."""
    said: Reservation | None = None
    policy = ""
    for place in places:
        if place.is_reserved is not None:
            said = place
        policy = place.policy or policy
    if said is None:
        return None, ""
    is_reserved = bool(said.is_reserved)
    text = quoted(said.source, f"tdm-reservation: {int(is_reserved)}")
    return Statement(text, _ANSWERS[is_reserved]), policy if is_reserved else ""


class _Rule(msgspec.Struct, frozen=True, array_like=True):
    """A rule as stored. `location` is comparable."""

    number: int
    location: str
    is_reserved: bool | None
    policy: str

    def matches(self, path: str) -> bool:
        """Whether this rule, which has no `*`, applies to the comparable `path`."""
        location = self.location
        return path == location[:-1] if location.endswith("$") else path.startswith(location)


class TdmFile:
    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules
        self._plain = [rule for rule in rules if "*" not in rule.location]
        self._patterns = Patterns[_Rule]()
        for rule in rules:
            if "*" in rule.location:  # the first match counts, so its rank is the greatest
                self._patterns.add(Pattern.of(rule.location, -rule.number, rule.number, rule))
        self._patterns.sort()

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"<TdmFile rules={len(self)}>"

    @classmethod
    def parse(cls, body: bytes) -> TdmFile:
        """The rules in `body`. Accepts any bytes; what is not as the protocol demands is skipped."""
        try:
            listed = msgspec.json.decode(utf8(body))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls(())
        if not isinstance(listed, list):
            return cls(())
        rules = [_rule(number, one) for number, one in enumerate(listed[:MAX_RULES], 1) if isinstance(one, dict)]
        return cls([rule for rule in rules if rule is not None])

    def pack(self) -> bytes:
        return _encoder.encode(self._rules)

    @classmethod
    def unpack(cls, packed: bytes) -> TdmFile:
        """Raises BadRecord if `packed` was not made by `pack`."""
        try:
            return cls(_decoder.decode(packed))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadRecord(f"rules of tdmrep.json are damaged: {error}") from error

    def reservation(self, url: str) -> Reservation | None:
        """What the first rule that matches `url` says; None if none does."""
        path = comparable(url)
        rule = next((rule for rule in self._plain if rule.matches(path)), None)
        if len(self._patterns):
            before = rule.number if rule is not None else MAX_RULES + 1
            try:
                best = self._patterns.best(path, -before)
            except OverflowError:
                # Too much work, which takes a file and a URL that were made for each other: assume a reservation to match.
                best = next((one for one in self._patterns if one.value.is_reserved and one.line < before), None)
            rule = best.value if best is not None else rule
        return None if rule is None else Reservation(rule.is_reserved, rule.policy, f"tdmrep.json rule {rule.number}")


class TdmFetch(RobotsFetch):
    """One attempt to fetch the tdmrep.json of `origin`. Request `url` if robots.txt allows it, then call `received` or
    `failed`; repeat this while they return None.

    A site that does not give the file out does not implement the protocol ("TDM File on the Origin Server"). A redirect is
    followed only within the origin: the robots.txt of another one is not known here, and its file is not about this one.
    """

    def __init__(self, origin: str) -> None:
        super().__init__(origin)
        self.url = origin + PATH

    def _successful(self, answer: HttpResponse, body: bytes | None) -> RobotsFetchResult:
        result = super()._successful(answer, body)
        if len(answer.body if body is None else body) >= MAX_BODY:
            return RobotsFetchResult("disallow", "too_long", answer.status)  # JSON that was cut cannot be parsed
        return result

    def _redirected(self, answer: HttpResponse) -> RobotsFetchResult | None:
        result = super()._redirected(answer)
        if result is None and origin_of(self.url) != self.origin:
            return RobotsFetchResult("allow", "foreign_redirect", answer.status)
        return result


def with_tdm(
    record: RobotsRecord, result: RobotsFetchResult, now_ms: int, rand: float, policy: RobotsPolicy
) -> RobotsRecord:
    """`record` after an attempt for tdmrep.json. The last copy of an unreachable file stays. `rand`: 0 to 1."""
    if result.access == "disallow":
        failures = record.tdm_failures + 1
        retry_at_ms = now_ms + retry_wait_ms(failures, result, rand, policy)
        return msgspec.structs.replace(
            record, tdm=record.tdm or None, tdm_failures=failures, tdm_retry_at_ms=retry_at_ms
        )
    tdm = TdmFile.parse(result.body).pack() if result.access == "rules" else b""
    return msgspec.structs.replace(record, tdm=tdm, tdm_failures=0, tdm_retry_at_ms=record.retry_at_ms)


def _rule(number: int, said: dict[str, Any]) -> _Rule | None:
    location, reserved, policy = said.get("location"), said.get("tdm-reservation"), said.get("tdm-policy")
    if not isinstance(location, str) or not location.startswith(("/", "*")):
        return None
    # In Python, true equals 1, but the protocol knows only the numbers.
    is_reserved = bool(reserved) if type(reserved) is int and reserved in (0, 1) else None
    form = comparable_rule(location.encode("utf-8", "surrogatepass"))
    return _Rule(number, form, is_reserved, _usable(policy) if isinstance(policy, str) else "")


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[_Rule])


class SiteUsage(msgspec.Struct, frozen=True, gc=False):
    """What the files say about one page: the statements of robots.txt, and the reservation of tdmrep.json."""

    statements: Statements = ()
    reservation: Reservation | None = None

    def combined(self, statements: Sequence[Statement] = (), reservations: Sequence[Reservation] = ()) -> Usage:
        """What applies to the page if its response contains `statements` and `reservations`, those in its header first."""
        files = (self.reservation,) if self.reservation is not None else ()
        reserved, policy = last_statement([*files, *reservations])
        every = [*self.statements, *statements, *((reserved,) if reserved is not None else ())]
        return combined(every, policy) if every else NO_USAGE


NOT_STATED: Final = SiteUsage()
