"""The examples of draft-ietf-aipref-vocab-08, how statements combine, and dictionaries of RFC 9651.

The published tests of the HTTP working group (structured-field-tests) pass as well: those for dictionaries, and those for
items as the value of a member.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from politeness.usage import (
    CATEGORIES,
    NO_USAGE,
    Statement,
    Usage,
    answers_in,
    combined,
    decisive,
    quoted,
    statement,
    tokens,
)


@pytest.mark.parametrize(
    ("value", "answers"),
    [
        # 6: "allow model training, disallow search, with the preference for other categories being unknown"
        (b"train-ai=y, search=n", {"train-ai": True, "search": False}),
        # 6.5.1: "all preferences being unknown"
        (b'train-ai=y, train-ai, search=n, search="n"', {}),
        # 6.5.2: "carries no parameters, and a preference to allow the usage"
        (b"train-ai;allow=n, train-ai=y", {"train-ai": True}),
        # 6.5.2: "has parameters even though the preference is unknown"; its last `;` breaks the syntax
        (b'train-ai;has;parameters="?";', {}),
        (b'train-ai;has;parameters="?"', {}),
        # 6.1: the labels
        (b"train-ai=n, ai-use=n, search=y", {"train-ai": False, "ai-use": False, "search": True}),
        # 6.5: values that are not tokens, and tokens other than `y` and `n`, are not errors
        (b"train-ai=no, ai-use=?0, search=n", {"search": False}),
        # 6.4: unknown labels and parameters are ignored
        (b"bots=n, train-ai=n;x=1;y", {"train-ai": False}),
        # 6.5.1: if parsing fails, preferences are unknown, "where keys include uppercase characters"
        (b"Train-AI=n", {}),
        (b"train-ai=n, Search=n", {}),
        (b"train-ai=n,", {}),
        (b"train-ai=N", {}),
        (b"", {}),
    ],
)
def test_the_examples_of_the_draft(value: bytes, answers: dict[str, bool]) -> None:
    assert dict(answers_in(value)) == answers
    assert dict(answers_in(value + b" " * 300)) == answers  # values of any length are read alike


def said(text: str, **answers: bool) -> Statement:
    return Statement(text, tuple((name.replace("_", "-"), is_allowed) for name, is_allowed in answers.items()))  # type: ignore[misc]


def test_the_most_restrictive_statement_applies_to_each_category() -> None:
    """5.1: disallowed if any statement disallows it, otherwise allowed if any allows it, otherwise unknown."""
    usage = combined([said("a", train_ai=True, search=True), said("b", train_ai=False), said("c", train_ai=False)])
    assert str(usage) == "train-ai=n, search=y"
    assert [(one.category, one.by) for one in usage.preferences] == [("train-ai", "b"), ("search", "a")]
    assert usage.statements == ("a", "b", "c")


def test_the_order_of_statements_does_not_matter_and_the_decisive_ones_suffice() -> None:
    answers: list[dict[str, Any]] = [
        {},
        {"search": True},
        {"search": False, "ai_use": True},
        {"ai_use": False},
        {"train_ai": True},
    ]
    statements = [said(str(number), **one) for number, one in enumerate(answers)]
    for order in itertools.permutations(statements):
        assert str(combined(order)) == "train-ai=y, ai-use=n, search=n"
        assert len(decisive(order)) <= len(CATEGORIES)
        assert str(combined(decisive(order))) == str(combined(order))
        half = combined(order[:2]).with_also(combined(order[2:]))
        assert str(half) == str(combined(order))


def test_only_a_disallowed_category_is_refused() -> None:
    usage = combined([statement("header", b"train-ai=n, search=y")])
    refusal = usage.refusal({"search", "train-ai"})
    assert refusal is not None
    assert (refusal.category, refusal.by) == ("train-ai", "header: train-ai=n, search=y")
    assert usage.refusal({"search", "ai-use"}) is None
    assert NO_USAGE.refusal(CATEGORIES) is None


def test_a_usage_is_recorded_and_read_back() -> None:
    usage = combined([said("a", train_ai=False), said("b", search=True), said("c")], "https://a.test/p")
    again = Usage.recorded(str(usage), usage.statements, usage.tdm_policy)
    assert (str(again), again.statements, again.tdm_policy) == (str(usage), usage.statements, usage.tdm_policy)


def test_the_text_of_a_statement_is_short_and_in_one_line() -> None:
    text = statement("header", b"a\r\nb\xe2\x80\xa8c\x85" + b"x" * 10_000).text
    assert text.startswith("header: a b c")
    assert len(text) < 600
    assert len(text.splitlines()) == 1


def test_control_characters_of_a_statement_are_not_kept() -> None:
    for text in (statement("header", b"a=\x1b[31m\x07\xe2\x80\xae").text, quoted("line", "a=\x1b[31m\x07\u202e")):
        assert text.isprintable()
        assert text.endswith("a=\ufffd[31m\ufffd\ufffd")
    assert quoted("line", "\u00e9\u4e2d a\tb").endswith("\u00e9\u4e2d a b")


@pytest.mark.parametrize(
    ("value", "members"),
    [
        (b"", {}),
        (b"  ", {}),
        (b"a=y", {b"a": b"y"}),
        (b" a=y ,\tb=n ", {b"a": b"y", b"b": b"n"}),
        (b"a=y, a=n", {b"a": b"n"}),  # 4.2.2: the last one counts
        (b"a, *b._-*;p", {b"a": b"", b"*b._-*": b""}),
        (b'a="x\\"\\\\", b=12.5, c=-1, d=?1, e=@1659578233, f=:YQ==:, g=%"f%c3%bc", h=*/x:y', None),
        (b"a=(1 y;p=?0  ) ;q, b=()", None),
        (b"a=(1 y;p=?0  );q, b=()", {b"a": b"", b"b": b""}),
        (b"a;b=n;  c, d", {b"a": b"", b"d": b""}),
    ],
)
def test_members_and_their_tokens(value: bytes, members: dict[bytes, bytes] | None) -> None:
    if members is None and value.startswith(b'a="'):
        members = dict.fromkeys((b"a", b"b", b"c", b"d", b"e", b"f", b"g"), b"") | {b"h": b"*/x:y"}
    assert tokens(value) == members


@pytest.mark.parametrize(
    "value",
    [
        *(b"A=y", b"1=y", b"a=", b"a =y", b"a= y", b"a=y,", b"a=y, ", b",a=y", b"a=y b=n", b"a=y;", b"a=y;B", b"\ta=y"),
        *(
            b"a=1234567890123456",
            b"a=1234567890123.1",
            b"a=1.",
            b"a=1.1234",
            b"a=-",
            b"a=@1.5",
            b"a=?2",
            b"a=:a-b:",
            b"a=:=a:",
        ),
        *(
            b'a="x',
            b'a="\\x"',
            b'a="\xc3\xa4"',
            b'a=%"%C3%A4"',
            b'a=%"%c3"',
            b'a=%"%ed%a0%80"',
            b"a=(1",
            b"a=(1,2)",
            b"a=((1))",
        ),
        *(b"a=y\0", b"\xef\xbb\xbfa=y", b"a=y\n"),
    ],
)
def test_what_is_no_dictionary(value: bytes) -> None:
    assert tokens(value) is None
