"""The examples of draft-ietf-aipref-attach-05, and the rules of its section 3."""

from __future__ import annotations

import time

import pytest

from politeness.robots_match import Rules, divided, finish
from politeness.robots_syntax import MAX_BODY, Excerpt, extract
from politeness.usage import combined, header_statement

EXAMPLE = b"""\
User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y

User-Agent: ExampleBot
Allow: /
Content-Usage: train-ai=y
"""


def rules_of(body: bytes | str, token: str = "ourbot") -> Rules:
    """The rules after their excerpt was stored and loaded."""
    excerpt = finish(extract(body.encode() if isinstance(body, str) else body, token))
    return finish(Rules.build(Excerpt.unpack(excerpt.pack())))


def said(body: bytes | str, path: str, token: str = "ourbot") -> str:
    usage = rules_of(body, token).usage
    return "none" if usage is None else str(combined(usage.stated("https://a.test" + path)))


def group(*lines: str) -> str:
    return "User-agent: *\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("token", "path", "crawl", "preference"),
    [
        # Table 1
        ("ourbot", "/test", True, "train-ai=n"),
        ("ourbot", "/never/test", False, None),
        ("ourbot", "/ai-ok/test", True, "train-ai=y"),
        # "A crawler that identifies as ExampleBot uses the second group."
        ("ExampleBot", "/test", True, "train-ai=y"),
        ("examplebot", "/never/test", True, "train-ai=y"),
        ("examplebot", "/ai-ok/test", True, "train-ai=y"),
    ],
)
def test_the_example_of_section_3_4(token: str, path: str, crawl: bool, preference: str | None) -> None:
    assert rules_of(EXAMPLE, token).decide("https://a.test" + path).allowed is crawl
    if preference is not None:
        assert said(EXAMPLE, path, token) == preference


def test_content_signals_are_read_like_content_usage() -> None:
    body = group("Content-Signal: search=yes,ai-train=no", "Content-Signal: /x/ ai-input = NO; other=yes", "Allow: /")
    assert said(body, "/a") == "train-ai=n, search=y"
    assert said(body, "/x/a") == "ai-use=n"
    (one,) = combined(rules_of(body).usage.stated("/x/a")).statements  # type: ignore[union-attr]
    assert one == "robots.txt line 3: Content-Signal: /x/ ai-input = NO; other=yes"
    both = group("Content-Usage: train-ai=y", "Content-Signal: ai-train=no")
    assert said(both, "/") == "train-ai=n"
    agents = "User-agent: ourbot\nContent-Signal: ai-train=no\nUser-agent: b\nDisallow: /x\n"
    assert not rules_of(agents).decide("https://a.test/x").allowed


def test_the_examples_of_section_1_2() -> None:
    assert said(b"User-Agent: *\nAllow: /\nContent-Usage: train-ai=n\n", "/any") == "train-ai=n"
    assert str(combined([header_statement(b"train-ai=n")])) == "train-ai=n"


@pytest.mark.parametrize(
    ("value", "path", "statement"),
    [
        (b"train-ai=n", b"", b"train-ai=n"),
        (b"/a train-ai=n", b"/a", b"train-ai=n"),
        (b"/a\t \ttrain-ai=n", b"/a", b"train-ai=n"),
        (b"/a", b"/a", b""),
        (b"*.pdf train-ai=n", b"", b"*.pdf train-ai=n"),  # 3.2: any other first character: no path
    ],
)
def test_a_line_consists_of_a_path_and_a_statement(value: bytes, path: bytes, statement: bytes) -> None:
    assert divided(value) == (path, statement)


@pytest.mark.parametrize(
    ("lines", "path", "preference"),
    [
        # 3.1: the longest path counts, wherever it stands, also if its statement says nothing
        (("Content-Usage: /a/ search=y", "Content-Usage: / search=n"), "/a/b", "search=y"),
        (("Content-Usage: search=n", "Content-Usage: / train-ai=n"), "/a", "train-ai=n"),
        (("Content-Usage: search=n", "Content-Usage: /a"), "/a", ""),
        (("Content-Usage: /a search=n",), "/b", ""),
        # identical paths: both apply, the most restrictive first
        (("Content-Usage: /a search=y, ai-use=n", "Content-Usage: /a search=n"), "/a", "ai-use=n, search=n"),
        (("Content-Usage: search=n", "Content-Usage: search=y"), "/", "search=n"),
        (("Content-Usage: /%61 search=n", "Content-Usage: /a train-ai=n"), "/a", "train-ai=n, search=n"),
        # different paths of equal length, too
        (("Content-Usage: /*b search=n", "Content-Usage: /ab train-ai=n"), "/ab", "train-ai=n, search=n"),
        (("Content-Usage: /*b search=n", "Content-Usage: /a* train-ai=n"), "/ab", "train-ai=n, search=n"),
        # wildcards and anchors, as in Allow and Disallow
        (("Content-Usage: /*.pdf$ train-ai=n", "Content-Usage: / train-ai=y"), "/a.pdf", "train-ai=n"),
        (("Content-Usage: /*.pdf$ train-ai=n", "Content-Usage: / train-ai=y"), "/a.pdf?x", "train-ai=y"),
        (("Content-Usage: /a$ train-ai=n", "Content-Usage: /a train-ai=y"), "/a", "train-ai=n"),
        (("Content-Usage: /a$ train-ai=n", "Content-Usage: /a train-ai=y"), "/ab", "train-ai=y"),
        (("Content-Usage: /a-longer search=n", "Content-Usage: /a train-ai=n"), "/ab", "train-ai=n"),
        (("Content-Usage: /a train-ai=n", "Content-Usage: /*b search=y"), "/ab", "search=y"),
        # 3.2: white space around the label and the colon, and comments
        (("  content-usage\t :\ttrain-ai=n # not this, search=n",), "/", "train-ai=n"),
        (("Content-Usage: /a#b train-ai=n",), "/a", ""),
        # 3.1: a space in a path is encoded
        (("Content-Usage: /a%20b train-ai=n",), "/a b", "train-ai=n"),
        # rules of a group in any order
        (("Disallow: /x", "Content-Usage: train-ai=n", "Allow: /x/y", "Content-Usage: /x search=n"), "/x/y", "search=n"),
    ],
)  # fmt: skip
def test_the_longest_path_counts(lines: tuple[str, ...], path: str, preference: str) -> None:
    assert said(group(*lines), path) == preference


def test_a_rule_belongs_to_the_groups_above_it_and_ends_their_list() -> None:
    body = "User-agent: a\nUser-agent: ourbot\nContent-Usage: train-ai=n\nUser-agent: b\nContent-Usage: search=n\n"
    assert (said(body, "/"), said(body, "/", "b")) == ("train-ai=n", "search=n")
    assert said(body, "/", "other") == "none"
    # Groups of one name are merged (RFC 9309 2.2.1), and the group of `*` does not apply besides one's own.
    again = body + "User-agent: ourbot\nContent-Usage: ai-use=y\nUser-agent: *\nContent-Usage: search=y\n"
    assert said(again, "/") == "train-ai=n, ai-use=y"
    # Sitemap and Crawl-delay do not end the list (RFC 9309 2.2.4).
    assert said("User-agent: a\nCrawl-delay: 1\nUser-agent: ourbot\nContent-Usage: search=n\n", "/", "a") == "search=n"


def test_the_deciding_line_is_named() -> None:
    usage = rules_of(EXAMPLE).usage
    assert usage is not None
    (statement,) = usage.stated("/test")
    assert statement.text == "robots.txt line 4: Content-Usage: train-ai=n"


def test_a_file_without_such_lines_has_no_rules() -> None:
    assert rules_of("User-agent: *\nDisallow: /x\n").usage is None


HOSTILE = {
    "one path": "".join(f"Content-Usage: /a x{n}=1, train-ai=y\n" for n in range(20_000)),
    "patterns of one length": "".join(f"Content-Usage: /*{n:05}*a search=y\n" for n in range(20_000)),
    "patterns that match": "".join(f"Content-Usage: /*{'a' * (n % 300)}*b search=y;p={n}\n" for n in range(20_000)),
    "patterns that tie": "".join(f"Content-Usage: /a{'*a' * 5} search=y;p={n}\n" for n in range(20_000)),
    "long statements": ("Content-Usage: " + "a=n, " * 3_000 + "\n") * 40,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_decision_takes_little_time_for_any_file(name: str) -> None:
    body = (group("Content-Usage: /* train-ai=n") + HOSTILE[name]).encode()[:MAX_BODY]
    usage = rules_of(body).usage
    assert usage is not None
    url = "https://a.test/" + "a" * 1_900 + "b"
    usage.stated(url)  # what is computed once
    started = time.process_time()
    assert len(usage.stated(url)) <= 3
    assert time.process_time() - started < 0.02


def test_if_a_search_would_take_too_long_the_most_restrictive_rules_apply() -> None:
    """Nothing that a site writes can make the crawler overlook a refusal."""
    many = [f"Content-Usage: /*{'a' * 40}*{'a' * 40}*b{n} search={'n' if n == 999 else 'y'}" for n in range(3_000)]
    assert "search=n" in said(group(*many), "/" + "a" * 1_900)
