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

from politeness.errors import BadRecord
from politeness.robots_fetch import HttpResponse, RobotsFetch
from politeness.robots_patterns import Pattern
from politeness.robots_syntax import comparable, comparable_rule
from politeness.usage_preferences import Answers, Statement, quoted

PATH: Final = "/.well-known/tdmrep.json"

RESERVATION: Final = b"tdm-reservation"
POLICY: Final = b"tdm-policy"

MAX_RULES: Final = 1_000
"""Rules of a file that are read. The first one that matches counts, so each may have to be tried for each page."""

MAX_POLICY: Final = 2_048
"""The longest policy that is read: the limit of URLs."""

_ANSWERS: Final[dict[bool, Answers]] = {True: (("train-ai", False), ("ai-use", False)), False: (("train-ai", True),)}


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """What one place says. `is_reserved`: None if it does not say, or breaks the protocol. `policy`: the URL of a licence
    offer, empty if there is none. `source`: where this is."""

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
    return policy if len(policy) <= MAX_POLICY and policy.isprintable() and " " not in policy else ""


def statement(places: Iterable[Reservation]) -> tuple[Statement | None, str]:
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


class TdmFile:
    """The rules of one tdmrep.json."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules
        self._patterns = [
            Pattern.of(rule.location, 0, 0, rule) if "*" in rule.location else None for rule in self._rules
        ]

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"<TdmFile rules={len(self)}>"

    @classmethod
    def parse(cls, body: bytes) -> TdmFile:
        """The rules in `body`. Accepts any bytes; what is not as the protocol demands is skipped."""
        try:
            listed = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls(())
        if not isinstance(listed, list):
            return cls(())
        rules = [_rule(number, one) for number, one in enumerate(listed[:MAX_RULES], 1) if isinstance(one, dict)]
        return cls([rule for rule in rules if rule is not None])

    def pack(self) -> bytes:
        """The bytes that `unpack` reads."""
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
        for rule, pattern in zip(self._rules, self._patterns, strict=True):
            location = rule.location
            if pattern is not None:
                matches = pattern.needle in path and pattern.matches(path)
            else:
                matches = path == location[:-1] if location.endswith("$") else path.startswith(location)
            if matches:
                return Reservation(rule.is_reserved, rule.policy, f"tdmrep.json rule {rule.number}")
        return None


class TdmFetch(RobotsFetch):
    """One attempt to fetch the tdmrep.json of `origin`. Request `url`, then call `found`; repeat this while it returns
    None. A site that does not give the file out does not implement the protocol ("TDM File on the Origin Server")."""

    def __init__(self, origin: str) -> None:
        super().__init__(origin)
        self.url = origin + PATH

    def found(self, answer: HttpResponse, now_ms: int, body: bytes | None = None) -> TdmFile | None:
        """The rules in the response `answer`, or None after a redirect. `body`: see `RobotsFetch.received`."""
        result = self.received(answer, now_ms, body)
        return None if result is None else TdmFile.parse(result.body if result.access == "rules" else b"")


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
