"""Reads dictionaries of structured fields (RFC 9651, Structured Field Values for HTTP). Pure.

Only tokens have a meaning here, so a dictionary is checked as a whole, as the standard demands, but no values are built of
the other types. One regular expression reads a member, and no repetition gives back what it matched, so the time is linear.
The library http-sf takes eight times as long. That would not matter for a header of 20 bytes, but a site may send 64 KiB of
them, which are read in the event loop, or a robots.txt of 512 KiB.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache
from typing import Final, Literal, TypeVar, get_args

import msgspec

from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize

_KEY = rb"[a-z*][a-z0-9_.*-]*+"
_TOKEN = rb"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*+"
_NEXT = rb"%[89ab][0-9a-f]"  # a byte of UTF-8 that continues a character (RFC 3629 4)
_CHARACTERS = (
    rb"[ !#$&-~]|%[0-7][0-9a-f]|%(?:c[2-9a-f]|d[0-9a-f])N|%e0%[ab][0-9a-f]N|%e[1-9a-cef]NN|%ed%[89][0-9a-f]N|"
    rb"%f0%[9ab][0-9a-f]NN|%f[1-3]NNN|%f4%8[0-9a-f]NN"
).replace(b"N", _NEXT)
_OTHER = b"|".join(
    (
        rb"-?[0-9]{1,12}\.[0-9]{1,3}",  # RFC 9651 4.2.4, decimals; then integers
        rb"-?[0-9]{1,15}",
        rb'"(?:[ !#-\[\]-~]|\\["\\])*+"',  # 4.2.5, strings
        rb":[A-Za-z0-9+/]*+=*+:",  # 4.2.7, byte sequences
        rb"\?[01]",  # 4.2.8, booleans
        rb"@-?[0-9]{1,15}",  # 4.2.9, dates
        rb'%"(?:' + _CHARACTERS + rb')*+"',  # 4.2.10, display strings
    )
)
_PARAMETERS = rb"(?:; *+" + _KEY + rb"(?:=(?:" + _TOKEN + b"|" + _OTHER + rb"))?+)*+"
_ITEM = rb"(?:" + _TOKEN + b"|" + _OTHER + b")" + _PARAMETERS
_INNER_LIST = rb"\( *+(?:" + _ITEM + rb"(?: ++|(?=\))))*+\)"  # 4.2.1.2
_MEMBER: Final = (
    rb"(" + _KEY + rb")(?:=(?:(" + _TOKEN + b")|" + _INNER_LIST + b"|" + _OTHER + rb"))?+" + _PARAMETERS +
    # A comma must be followed by another member (4.2.2, step 2.9).
    rb"[ \t]*+(?:,[ \t]*+(?!\Z)|\Z)"
)  # fmt: skip


@cache  # no command needs it, and few sites
def _member() -> re.Pattern[bytes]:
    return re.compile(_MEMBER)


def tokens(dictionary: bytes) -> dict[bytes, bytes] | None:
    """The members of `dictionary`: key -> its token, or empty if its value is of another type. If a key occurs several
    times, the last one counts. None if this is not a dictionary (RFC 9651 4.2). Parameters are left out."""
    members: dict[bytes, bytes] = {}
    data = dictionary.strip(b" ")
    at, match = 0, _member().match
    while at < len(data):
        member = match(data, at)
        if member is None:
            return None
        members[member[1]] = member[2] or b""
        at = member.end()
    return members


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


Category = Literal["train-ai", "ai-use", "search"]
"""The labels of 6.1: training a generative model; giving it a page as input; search that leads users to the page."""

CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)

Answers = tuple[tuple[Category, bool], ...]
"""Categories, and whether each is allowed. Those that are unknown are not among them."""

NO_AI: Final[Answers] = (("train-ai", False), ("ai-use", False))
"""What a general objection to AI means."""

CONTENT_USAGE: Final = b"content-usage"
"""The header field."""

LONGEST_TEXT: Final = 500
"""Characters of a statement that are kept to explain a decision."""


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A statement of preference. `text`: where it is and what it says, in one line."""

    text: str
    answers: Answers


class Preference(msgspec.Struct, frozen=True, gc=False):
    """What applies to a category in the end. `by`: the text of the statement that decides."""

    category: Category
    is_allowed: bool
    by: str


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What the owner said: `preferences`, one for a category, in order; all `statements`; `tdm_policy`: URL of an
    offer."""

    preferences: tuple[Preference, ...] = ()
    statements: tuple[str, ...] = ()
    tdm_policy: str = ""

    def __str__(self) -> str:
        """The preferences in the format of section 6, such as `train-ai=n, search=y`."""
        return ", ".join(f"{one.category}={'y' if one.is_allowed else 'n'}" for one in self.preferences)

    def refusal(self, purpose: Collection[str]) -> Preference | None:
        """The preference that disallows one of the categories in `purpose`, or None. What is unknown is not refused."""
        return next((one for one in self.preferences if not one.is_allowed and one.category in purpose), None)

    def with_also(self, other: Usage) -> Usage:
        """What applies if everything in `other` was said as well."""
        preferences = _preferences(
            (one.category, one.is_allowed, one.by) for one in (*self.preferences, *other.preferences)
        )
        texts = tuple(dict.fromkeys((*self.statements, *other.statements)))
        return Usage(preferences, texts, self.tdm_policy or other.tdm_policy)

    @classmethod
    def recorded(cls, serialized: str, statements: Sequence[str], tdm_policy: str) -> Usage:
        """What was recorded as `str(usage)`, its statements and its policy. Which of them decides is not known any more."""
        by = "; ".join(statements)
        preferences = (Preference(category, said, by) for category, said in answers_in(serialized.encode()))
        return cls(tuple(preferences), tuple(statements), tdm_policy)


NO_USAGE: Final = Usage()


def statement(source: str, value: bytes) -> Statement:
    """The statement with the serialized `value` (section 6). Without any answer if it cannot be parsed (6.5)."""
    return Statement(quoted(source, value.decode("utf-8", "replace")), answers_in(value))


def header_statement(value: bytes) -> Statement:
    """The statement in the Content-Usage field with this value; that of several lines is their list (RFC 9651 4.2)."""
    return statement("header Content-Usage", value)


def quoted(source: str, text: str) -> str:
    """The text of a `Statement`: its `source` and what it says, cut, in one line, and without control characters."""
    words = " ".join(text[:LONGEST_TEXT].split())
    return f"{source}: {words if words.isprintable() else _UNPRINTABLE.sub(_shown, words)}"


_UNPRINTABLE: Final = re.compile(r"[^ -~]")


def _shown(match: re.Match[str]) -> str:
    return match[0] if match[0].isprintable() else "\N{REPLACEMENT CHARACTER}"


def answers_in(value: bytes) -> Answers:
    """What the serialized `value` says (6.5). Unknown labels, parameters and values are ignored."""
    return (_remembered if len(value) <= _REMEMBERED_BYTES else _parsed)(value)


def _parsed(value: bytes) -> Answers:
    members = tokens(value)
    if not members:
        return ()
    said = ((category, members.get(category.encode())) for category in CATEGORIES)
    return tuple((category, word == b"y") for category, word in said if word in (b"y", b"n"))


_SIGNAL: Final = re.compile(rb"(search|ai-train|ai-input)[ \t]*+=[ \t]*+(yes|no)\b", re.IGNORECASE)
_OF_SIGNAL: Final[dict[bytes, Category]] = {b"search": "search", b"ai-train": "train-ai", b"ai-input": "ai-use"}


def signals_in(value: bytes) -> Answers:
    """What a Content-Signal record says (contentsignals.org). Of repeated signals, the last one counts."""
    said = {_OF_SIGNAL[name.lower()]: word.lower() == b"yes" for name, word in _SIGNAL.findall(value)}
    return tuple((category, said[category]) for category in CATEGORIES if category in said)


_REMEMBERED_BYTES: Final = 200
_remembered = lru_cache(maxsize=256)(_parsed)  # a site says the same about each of its pages


def decisive(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """The `statements` that decide: for each category the first that disallows it, or else allows it (5.1). The first
    if none does."""
    deciding = _deciding((category, is_allowed, one) for one in statements for category, is_allowed in one.answers)
    return tuple(dict.fromkeys(one for _, one in deciding.values())) or tuple(statements[:1])


def combined(statements: Iterable[Statement], tdm_policy: str = "") -> Usage:
    """What applies if all of `statements` were made about a page (5.1)."""
    every = tuple(statements)
    preferences = _preferences((category, said, one.text) for one in every for category, said in one.answers)
    return Usage(preferences, tuple(dict.fromkeys(one.text for one in every)), tdm_policy)


def _preferences(said: Iterable[tuple[Category, bool, str]]) -> tuple[Preference, ...]:
    deciding = _deciding(said)
    return tuple(Preference(category, *deciding[category]) for category in CATEGORIES if category in deciding)


T = TypeVar("T")


def _deciding(said: Iterable[tuple[Category, bool, T]]) -> dict[Category, tuple[bool, T]]:
    """The most restrictive answers: for each category, the first that disallows it, otherwise the first that allows it
    (5.1), and by what it was given. `said`: a category, whether it is allowed, and by what."""
    deciding: dict[Category, tuple[bool, T]] = {}
    for category, is_allowed, by in said:
        known = deciding.get(category)
        if known is None or (known[0] and not is_allowed):
            deciding[category] = (is_allowed, by)
    return deciding
