"""Dictionaries of RFC 9651. The published tests of the HTTP working group (structured-field-tests) pass as well: those for
dictionaries, and those for items as the value of a member."""

from __future__ import annotations

import pytest

from politeness.usage import tokens


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
