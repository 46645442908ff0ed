"""What the owner of a page prefers about its use, and how several statements combine. Pure.

By draft-ietf-aipref-vocab-08, "A Vocabulary For Expressing AI Usage Preferences" (September 2026). A statement allows or
disallows some categories of use; the others are unknown. Statements come from several places: `content_usage` and `tdmrep`
read those in robots.txt, headers and files, `crawler.parse` those in pages. If they conflict, the most restrictive one
applies to each category (5.1).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeVar, get_args

import msgspec

from politeness.structured_fields import tokens

Category = Literal["train-ai", "ai-use", "search"]
"""The labels of 6.1: training a generative model; giving it a page as input; search that leads users to the page."""

CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)

Answers = tuple[tuple[Category, bool], ...]
"""Categories, and whether each is allowed. Those that are unknown are not among them."""

NO_AI: Final[Answers] = (("train-ai", False), ("ai-use", False))
"""What a general objection to AI means."""

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
    """What the owner of a page said about its use. `preferences`: at most one for a category, in the order of
    `CATEGORIES`; `statements`: the texts of all statements; `tdm_policy`: the URL of a licence offer (see `tdmrep`)."""

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


_REMEMBERED_BYTES: Final = 200
_remembered = lru_cache(maxsize=256)(_parsed)  # a site says the same about each of its pages


def decisive(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """Those of `statements` that decide about a category: for each, the first that disallows it, otherwise the first that
    allows it (5.1). The first statement if none says anything."""
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
