"""Rules against any bytes, against a naive matcher that shares no code with them, and against Protego."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from hypothesis import example, given, settings
from hypothesis import strategies as st
from protego import Protego

from politeness.robots_match import Rules, finish
from politeness.robots_syntax import Excerpt, cut_body, extract

PIECES = ["/", "a", "b", "ab", "?", "=", "&", ":", "%3A", "%3a", "%2F", "%3F", "%61", "%3D", "é", "%C3%A9"]
rule_paths = st.lists(st.sampled_from([*PIECES, "*", "*", "$", "%24", "%2A"]), max_size=7).map("".join)
# A lone `%` is not among the pieces: as the first byte of an escape it may match half of one, token by token it cannot.
url_paths = st.lists(st.sampled_from([*PIECES, "*", "$", "%24", "%2a"]), max_size=8).map(
    lambda parts: "/" + "".join(parts)
)
rule_lists = st.lists(st.tuples(st.booleans(), rule_paths.map(lambda path: "/" + path)), max_size=8)


ESCAPE_OR_BYTE = re.compile(rb"%[0-9a-fA-F]{2}|.", re.DOTALL)


def tokens(text: str | bytes, special: str) -> Iterator[str]:
    """RFC 9309 2.2.2 word by word: one token a byte, encoded where it must be. Characters of `special` stay."""
    in_query = False
    for found in ESCAPE_OR_BYTE.findall(text if isinstance(text, bytes) else text.encode()):
        byte, is_raw = (found[0], True) if len(found) == 1 else (int(found[1:], 16), False)
        char = chr(byte)
        # RFC 3986 3.4: behind the first `?`, another one or a `/` divides nothing and equals its escape.
        is_plain = char.isascii() and (char.isalnum() or char in ("-._~/?" if in_query else "-._~"))
        divides = is_raw and char in "=&/?" + special
        in_query = in_query or (divides and char == "?")
        yield char if divides or is_plain else f"%{byte:02X}"


def naive_match(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    @cache
    def match(i: int, j: int) -> bool:
        if i == len(pattern):
            return True
        if pattern[i] == "$":
            return j == len(path)
        if pattern[i] == "*":
            return match(i + 1, j) or (j < len(path) and match(i, j + 1))
        return j < len(path) and pattern[i] == path[j] and match(i + 1, j + 1)

    return match(0, 0)


def byte_count(pattern: tuple[str, ...]) -> int:
    """A reserved character that may be written either way counts once; `politeness.robots_syntax` says why."""
    either_way = {f"%{ord(char):02X}" for char in ":@!'()+,;[]"}
    return sum(1 if token in either_way else len(token) for token in pattern)


def naive_decision(rules: list[tuple[bool, str]], url: str) -> bool:
    path = tuple(tokens(url, ""))
    best = (-1, True)
    for allow, text in rules:
        anchored = text.endswith("$")
        pattern = tuple(tokens(text[: len(text) - anchored], "*")) + ("$",) * anchored
        if naive_match(pattern, path):
            best = max(best, (byte_count(pattern), allow))
    return best[1]


@settings(max_examples=600)
@given(rule_lists, url_paths)
@example([(False, "/a:*"), (True, "/a%3A")], "/a:b")
@example([(False, "/*/")], "/?/")
def test_agrees_with_a_naive_matcher(rules: list[tuple[bool, str]], url: str) -> None:
    lines = [f"{'Allow' if allow else 'Disallow'}: {path}" for allow, path in rules]
    decision = Rules.parse("\n".join(["User-agent: *", *lines]).encode(), "ourbot").decide("http://h" + url)
    assert decision.allowed == naive_decision(rules, url)
    if decision.line is not None:
        assert decision.rule == lines[decision.line - 2]


FILLER = [f"Disallow: /*never{number}*here" for number in range(600)]


@settings(max_examples=150)
@given(rule_lists, url_paths)
def test_many_patterns_are_judged_as_few_are(rules: list[tuple[bool, str]], url: str) -> None:
    """Of many patterns an index tells which to try. Given rules among hundreds that do not match, the same one decides."""
    lines = ["User-agent: *", *(f"{'Allow' if allow else 'Disallow'}: {path}" for allow, path in rules)]
    url = f"http://h{url}?{'x' * 100}"
    few = Rules.parse("\n".join(lines).encode(), "ourbot").decide(url)
    assert Rules.parse("\n".join([*lines, *FILLER]).encode(), "ourbot").decide(url) == few


quiet_rules = st.lists(
    st.tuples(st.booleans(), st.text("ab/*", max_size=8).map(lambda path: "/" + path)), min_size=1, max_size=8
)


@settings(max_examples=400)
@given(quiet_rules, st.text("ab/", max_size=10))
def test_agrees_with_protego_where_both_follow_the_rfc(rules: list[tuple[bool, str]], path: str) -> None:
    """Plain characters and `*`. `docs/reference/robots.md` lists where Protego deviates."""
    body = "User-agent: *\n" + "\n".join(f"{'Allow' if allow else 'Disallow'}: {path}" for allow, path in rules)
    url = "http://h/" + path
    assert Rules.parse(body.encode(), "ourbot").decide(url).allowed == Protego.parse(body).can_fetch(url, "ourbot")


GROUPS = [b"User-agent: ourbot", b"User-agent: *", b"User-agent: x"]
RULES = [b"Disallow: /", b"Allow: /a", b"Disallow:", b"Disallow: *$*", b"Crawl-delay: 3", b"Request-rate: 1/5"]
OTHERS = [b"Sitemap: s", b"nonsense", b"# comment", b"\xff\xfe\x00", b"%"]
lines = st.sampled_from(GROUPS + RULES + OTHERS)
any_bytes = st.binary(max_size=200) | st.lists(lines | st.binary(max_size=9), max_size=12).map(b"\r\n".join)


@settings(max_examples=500)
@given(any_bytes, st.text(max_size=40), st.text(max_size=12))
def test_any_bytes_give_rules_and_any_text_an_answer(body: bytes, url: str, token: str) -> None:
    rules = Rules.parse(body, token)
    decision = rules.decide(url)
    assert (decision.line is None) == (decision.rule is None)
    assert decision.allowed or decision.line is not None, "a denial must name its line"
    assert rules.crawl_delay is None or rules.crawl_delay >= 0
    assert rules.request_rate is None or rules.request_rate > 0


def stored(body: bytes, token: str) -> Rules:
    """The rules after their excerpt was stored and loaded."""
    return finish(Rules.build(Excerpt.unpack(finish(extract(body, token)).pack())))


@settings(max_examples=300)
@given(rule_lists, url_paths)
def test_stored_rules_agree_with_a_naive_matcher_on_the_whole_file(rules: list[tuple[bool, str]], url: str) -> None:
    """The group may be split, repeated and mixed with others, and the line that decided is still known."""
    lines = [f"{'Allow' if allow else 'Disallow'}: {path}" for allow, path in rules]
    for name in ("ourbot", "*"):
        ours = [f"User-agent: {name}", "Disallow:"]
        foreign = ["User-agent: other", "Disallow: /", "Crawl-delay: 9", "# comment"]
        file = [*foreign, *ours, *lines[:3], *foreign, *ours, *lines[3:], "Sitemap: http://h/s", *lines]
        decision = stored("\n".join(file).encode(), "ourbot").decide("http://h" + url)
        assert decision.allowed == naive_decision(rules, url)
        assert decision.line is None or file[decision.line - 1] == decision.rule


@settings(max_examples=500)
@given(any_bytes, st.lists(st.text(max_size=40), max_size=4), st.sampled_from(["ourbot", "x", "y"]))
def test_stored_rules_say_all_that_the_file_says(body: bytes, urls: list[str], token: str) -> None:
    loaded, parsed = stored(body, token), Rules.parse(body, token)
    assert [loaded.decide(url) for url in urls] == [parsed.decide(url) for url in urls]
    for name in ("group", "crawl_delay", "request_rate", "sitemaps"):
        assert getattr(loaded, name) == getattr(parsed, name)


@settings(max_examples=300)
@given(any_bytes, st.text("ab/", max_size=6))
def test_line_ends_do_not_matter(body: bytes, path: str) -> None:
    unix = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert Rules.parse(body, "ourbot").decide(path) == Rules.parse(unix, "ourbot").decide(path)


@given(st.binary(max_size=60), st.integers(1, 40))
def test_a_cut_body_is_a_beginning_within_the_limit(body: bytes, limit: int) -> None:
    kept = cut_body(body, limit)
    assert body.startswith(kept)
    assert len(kept) <= limit
    assert len(body) < limit or kept[-1:] in (b"\n", b"\r") or not {10, 13} & set(body[:limit])
