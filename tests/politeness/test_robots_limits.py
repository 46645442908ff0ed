"""Encodings, sizes and hostile files (RFC 9309 2.3 and 2.5): whatever is sent is read within bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

import pytest

from politeness.robots_match import Rules
from politeness.robots_syntax import MAX_BODY, MAX_LINE, SLICE, cut_body, extract
from tests.politeness.rules import allowed, group

# 2.3: encoding. 2.5: limits


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_byte_order_mark_whole_or_torn_is_skipped(mark: bytes) -> None:
    assert not allowed(mark + group("Disallow: /x").encode(), "/x")


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_utf_16_file_is_read_if_it_says_so(codec: str) -> None:
    text = group("Disallow: /x") if codec == "utf-16" else "\ufeff" + group("Disallow: /x")
    assert not allowed(text.encode(codec), "/x")


def filled(size: int) -> bytes:
    """A robots.txt of `size` bytes whose last line is `Disallow: /last`, comments before it."""
    head, last = b"User-agent: *\n", b"Disallow: /last\n"
    return head + b"#" * (size - len(head) - len(last) - 1) + b"\n" + last


def test_at_least_500_kib_are_parsed() -> None:
    assert not allowed(filled(500 * 1024), "/last")


def test_what_lies_beyond_the_limit_is_ignored() -> None:
    assert allowed(filled(MAX_BODY + 1), "/last")
    assert not allowed(filled(MAX_BODY), "/last")
    assert len(cut_body(filled(MAX_BODY + 1))) == MAX_BODY + 1 - len("Disallow: /last\n")


T = TypeVar("T")


def run_in_parts(work: Generator[None, None, T]) -> tuple[T, int]:
    """The result of `work`, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(work)
            pauses += 1
        except StopIteration as finished:
            return finished.value, pauses


def test_a_long_file_is_parsed_in_parts() -> None:
    """Given 10,000 rules, each of them twice, then each part processes some of them, and none is lost."""
    paths = [f"/{number}" for number in range(10_000)] * 2
    body = group(*(f"Disallow: {path}x" for path in paths)).encode()
    excerpt, pauses = run_in_parts(extract(body, "ourbot"))
    assert pauses >= 2 * (len(paths) // SLICE - 1)
    rules, pauses = run_in_parts(Rules.build(excerpt))
    assert pauses == 10_000 // SLICE - 1
    assert len(rules) == 10_000
    assert not any(rules.decide(f"{path}x").allowed for path in paths[:: SLICE - 1])
    assert rules.decide("/9999x").line == 1 + 10_000
    assert rules.decide("/9999").allowed


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b"a\nb\nc", b"a\nb\n"),
        (b"a\rbcde", b"a\r"),
        (b"abcdefgh", b"abcde"),
        (b"a\nb", b"a\nb"),
        (b"ab\nc\n", b"ab\nc\n"),
    ],
)
def test_a_body_is_cut_at_the_end_of_a_line(body: bytes, kept: bytes) -> None:
    assert cut_body(body, 5) == kept


def test_the_rest_of_an_overlong_line_is_ignored() -> None:
    path = "/" + "a" * (MAX_LINE - len("Disallow: /"))
    assert not allowed(group(f"Disallow: {path}zzz"), path + "b")


# time

HEAD = b"User-agent: *\n"
CPU_BOUND_S = 3.0  # ten times what the slowest takes on a slow machine

HOSTILE = {
    "empty lines": (HEAD + b"\n" * 524_000, "/a"),
    "stars in one line": (HEAD + b"Disallow: /" + b"*a" * 8_000 + b"$\n", "/" + "a" * 2_000),
    "many lines of stars": (HEAD + (b"Disallow: /" + b"*a" * 100 + b"b\n") * 2_400, "/" + "a" * 2_000),
    "many short patterns": (HEAD + b"".join(b"Disallow:/*%x\n" % i for i in range(33_000)), "/" + "a" * 2_000),
    "needles that nearly match": (
        HEAD + b"".join(b"Disallow: *" + b"a" * 990 + b"b%05xaa\n" % i for i in range(515)),
        "/" + "a" * 2_040,
    ),
    "a prefix of each length": (
        HEAD + b"".join(b"Disallow: /" + b"a" * i + b"b\n" for i in range(1_000)),
        "/" + "a" * 2_040,
    ),
    "escapes": (HEAD + b"".join(b"Disallow: /%05x" % i + b"%61" * 30 + b"\n" for i in range(4_800)), "/" + "%61" * 680),
    "user agents": (HEAD * 37_000, "/a"),
    "delays": (HEAD + b"Crawl-delay: 1\n" * 34_000, "/a"),
    "blanks": (HEAD + b" " * 500_000 + b":" + b" " * 20_000, "/a"),
    "percent signs": (HEAD + b"Disallow: /" + b"%" * 16_000 + b"\n", "/" + "%" * 2_000),
}


def filled_with(line: Callable[[int], bytes]) -> bytes:
    """A robots.txt of 512 KiB: a rule for all paths that begin with `/a`, and then `line` by line."""
    lines = [HEAD, b"Disallow: /a\n"]
    size = sum(map(len, lines))
    while size < MAX_BODY - 2_100:
        lines.append(line(len(lines)))
        size += len(lines[-1])
    return b"".join(lines)


NEEDLE = b"a" * 46 + b"baa"
HOSTILE_PATTERNS: dict[str, Callable[[int], bytes]] = {
    "one needle": lambda i: b"Allow: *%b*%x\n" % (NEEDLE, i),
    "one needle that the URL has": lambda i: b"Disallow: *%b*%x\n" % (b"a" * 46, i),
    "needles that differ": lambda i: b"Allow: *%bb%xaa\n" % (b"a" * 46, i),
    "needles with ends that the URL has": lambda i: b"Allow: *%bb%x%b\n" % (b"a" * 32, i, b"a" * 32),
    "long needles": lambda i: b"Allow: *%bb%05xaa\n" % (b"a" * 990, i),
    "long needles with such ends": lambda i: b"Allow: *%bb%05x%b\n" % (b"a" * 600, i, b"a" * 600),
    "short needles": lambda i: b"Disallow:*%x\n" % i,
    "needles of all lengths": lambda i: b"Allow: *%bb%b\n" % (b"a" * (i // 2), b"a" * (i // 2)),
    "stars": lambda i: b"Disallow: /%bb%x\n" % (b"*a" * 100, i),
}


@pytest.mark.parametrize("name", HOSTILE_PATTERNS)
@pytest.mark.parametrize("length", [70, 990, 2_030])
def test_no_decision_takes_long(name: str, length: int) -> None:
    """15 ms on a fast core, with 512 KiB of patterns made for the URL; `str.find` alone took up to 600."""
    rules = Rules.parse(filled_with(HOSTILE_PATTERNS[name]), "ourbot")
    started = time.process_time()
    decision = rules.decide("http://a.test/" + "a" * length)
    assert time.process_time() - started < 0.1
    assert not decision.allowed


def test_beyond_the_bound_the_most_specific_denial_counts() -> None:
    """Given more patterns than can be judged for a URL that is made for them, then it is denied by the longest Disallow
    with a star; and by the other rules if no pattern denies."""
    url = "/" + "a" * 2_000
    allowing = [f"Allow: *{'a' * 300}*{number}" for number in range(10_000, 10_900)]
    denied = Rules.parse(group("Disallow: *xx", "Disallow: *xxx", *allowing).encode(), "ourbot").decide(url)
    assert (denied.allowed, denied.rule) == (False, "Disallow: *xxx")
    assert Rules.parse(group("Disallow: /x", *allowing).encode(), "ourbot").decide(url).allowed
    assert not Rules.parse(group("Disallow: /a", *allowing).encode(), "ourbot").decide(url).allowed


@pytest.mark.parametrize("name", HOSTILE)
def test_no_file_takes_long(name: str) -> None:
    body, url = HOSTILE[name]
    started = time.process_time()
    Rules.parse(body, "ourbot").decide(url)
    assert time.process_time() - started < CPU_BOUND_S
