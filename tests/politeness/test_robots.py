"""What the rules of a robots.txt allow, clause by clause of RFC 9309."""

from __future__ import annotations

import time

import pytest

from politeness.robots import IMPLICIT, Decision, Rules
from politeness.robots_text import MAX_BODY, MAX_LINE, cut_body, is_product_token


def allowed(body: str | bytes, url: str, token: str = "ourbot") -> bool:
    octets = body.encode() if isinstance(body, str) else body
    return Rules.parse(octets, token).decide(url).allowed


def group(*rules: str) -> str:
    return "User-agent: *\n" + "\n".join(rules) + "\n"


# 2.1, 2.2: lines and groups


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_with_cr_lf_or_both(end: str) -> None:
    rules = Rules.parse(f"User-agent: *{end}{end}Disallow: /x{end}".encode(), "ourbot")
    assert rules.decide("/x") == Decision(False, 3, "Disallow: /x", "*")


@pytest.mark.parametrize(
    "line",
    [
        "Disallow: /x",
        "disallow:/x",
        "DISALLOW : /x",
        "\t Disallow:\t/x \t",
        "Disallow: /x# comment",
        "Disallow: /x # comment: with colon",
        "Disallow /x",
        "Disalow: /x",
        "Dissallow: /x",
    ],
)
def test_a_record_is_read_in_any_case_with_blanks_comments_and_usual_slips(line: str) -> None:
    assert not allowed(group(line), "/x")


@pytest.mark.parametrize("line", ["Disallow", "Disallow /x y", "Disallow-all: /x", ": /x", "#Disallow: /x", "/x"])
def test_what_is_no_record_is_skipped(line: str) -> None:
    assert not allowed(group(line, "Disallow: /y"), "/y")
    assert allowed(group(line, "Disallow: /y"), "/x")


def test_rules_before_the_first_group_are_ignored() -> None:
    assert allowed("Disallow: /x\n" + group("Disallow: /y"), "/x")


def test_user_agent_lines_that_follow_one_another_share_their_rules() -> None:
    body = "User-agent: a\n\n# both\nUser-agent: ourbot\nUser-agent: b\nDisallow: /x\n"
    assert [allowed(body, "/x", token) for token in ("a", "ourbot", "b", "c")] == [False, False, False, True]


@pytest.mark.parametrize(
    "record", ["Sitemap: http://h/s.xml", "Crawl-delay: 5", "Host: h", "Frobnicate: yes", "nonsense"]
)
def test_other_records_do_not_end_a_group(record: str) -> None:
    """RFC 9309 2.2.4: they must not interfere with the records of the protocol."""
    assert not allowed(f"User-agent: ourbot\n{record}\nUser-agent: b\n{record}\nDisallow: /x\n", "/x")
    assert not allowed(f"User-agent: ourbot\nDisallow: /y\n{record}\nDisallow: /x\n", "/x")


def test_an_empty_rule_ends_the_list_of_names_but_forbids_nothing() -> None:
    body = "User-agent: ourbot\nDisallow:\nUser-agent: *\nDisallow: /\n"
    assert allowed(body, "/x")
    assert not allowed(body, "/x", "other")


# 2.2.1: the user-agent line


@pytest.mark.parametrize(
    ("line", "matches"),
    [
        ("ourbot", True),
        ("OurBot", True),
        ("ourbot/2.1", True),
        ("ourbot of ours", True),
        ("ourbot*", True),
        ("our", False),
        ("bot", False),
        ("ourbots", False),
        ("my-ourbot", False),
        ("ourbot-news", False),
        ("ourbot2", False),
        ("Mozilla/5.0 (compatible; ourbot/1.0)", False),
        ("*bot", False),
        ("", False),
    ],
)
def test_a_group_is_ours_if_its_product_token_is(line: str, matches: bool) -> None:
    assert allowed(f"User-agent: {line}\nDisallow: /\n", "/x") is not matches


def test_groups_of_one_token_are_merged_and_keep_others_out() -> None:
    body = (
        "User-agent: ourbot\nDisallow: /a\n"
        "User-agent: *\nDisallow: /b\n"
        "User-agent: OURBOT\nUser-agent: x\nDisallow: /c\n"
        "User-agent: *\nDisallow: /d\n"
    )
    assert [allowed(body, path) for path in ("/a", "/b", "/c", "/d")] == [False, True, False, True]
    assert [allowed(body, path, "other") for path in ("/a", "/b", "/c", "/d")] == [True, False, True, False]


def test_a_group_of_ours_without_rules_allows_all() -> None:
    assert allowed("User-agent: *\nDisallow: /\n\nUser-agent: ourbot\n", "/x")


@pytest.mark.parametrize("line", ["*", "* ", "* # everyone", "*\teveryone"])
def test_the_star_group_counts_for_who_has_none(line: str) -> None:
    assert not allowed(f"User-agent: {line}\nDisallow: /x\n", "/x")


def test_without_any_group_all_is_allowed() -> None:
    assert Rules.parse(b"User-agent: other\nDisallow: /\n", "ourbot").decide("/x") is IMPLICIT


@pytest.mark.parametrize(
    ("token", "valid"),
    [("ourbot", True), ("Our_Bot-", True), ("", False), ("ourbot/1.0", False), ("our bot", False), ("bot2", False)],
)
def test_a_product_token_has_letters_hyphens_and_underscores(token: str, valid: bool) -> None:
    assert is_product_token(token) is valid


# 2.2.2: matching


@pytest.mark.parametrize(
    ("rules", "path", "line"),
    [
        (("Allow: /a/", "Disallow: /"), "/a/x", 2),
        (("Disallow: /", "Allow: /a/"), "/a/x", 3),
        (("Disallow: /a", "Allow: /a/", "Disallow: /a/b"), "/a/b", 4),
        (("Disallow: /a/b", "Allow: /a/b"), "/a/b", 3),
        (("Allow: /a/b", "Disallow: /a/b"), "/a/b", 2),
        (("Disallow: /a*", "Allow: /a/b"), "/a/b", 3),
        (("Disallow: /a/*b", "Allow: /a/b"), "/a/b", 2),
        (("Allow: /*.html", "Disallow: /a.html$"), "/a.html", 3),
        (("Allow: /$", "Disallow: /"), "/", 2),
        (("Allow: /$", "Disallow: /"), "/a", 3),
        (("Disallow: /a?b", "Allow: /*?"), "/a?bc", 2),
        (("Disallow: /x", "Disallow: /x"), "/x", 2),
    ],
)
def test_the_rule_with_the_most_octets_decides_and_allow_wins_ties(
    rules: tuple[str, ...], path: str, line: int
) -> None:
    decision = Rules.parse(group(*rules).encode(), "ourbot").decide(path)
    assert (decision.line, decision.rule) == (line, rules[line - 2])
    assert decision.allowed is rules[line - 2].startswith("Allow")


def test_octets_are_counted_after_encoding() -> None:
    assert not allowed(group("Allow: /*aaaa", "Disallow: /ツ"), "/ツaaaa")


def test_matching_heeds_case() -> None:
    assert allowed(group("Disallow: /Private"), "/private")


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        ("/foo/bar?baz=https%3A%2F%2Ffoo.bar", "/foo/bar?baz=https://foo.bar"),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%E3%83%84", "/foo/bar/ツ"),
        ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ("/foo/bar/baz", "/foo/bar/%62%61%7a"),
        ("/~joe", "/%7Ejoe"),
        ("/a:b", "/a%3ab"),
        ("/a b", "/a%20b"),
        ("/a{b}", "/a%7Bb%7D"),
        ("/100%", "/100%"),
    ],
)
def test_both_sides_are_brought_into_one_percent_encoding(rule: str, path: str) -> None:
    """The table of RFC 9309 2.2.2, in both directions, and what follows from its text."""
    assert not allowed(group(f"Disallow: {rule}$"), path)


@pytest.mark.parametrize(
    ("rule", "path"),
    [("/a/b", "/a%2Fb"), ("/a%2Fb", "/a/b"), ("/a?b", "/a%3Fb"), ("/?a=b", "/?a%3Db"), ("/?a&b", "/?a%26b")],
)
def test_a_character_that_divides_a_url_is_not_its_escape(rule: str, path: str) -> None:
    assert allowed(group(f"Disallow: {rule}"), path)


def test_octets_that_are_not_utf_8_match_their_escapes() -> None:
    assert not allowed(b"User-agent: *\nDisallow: /caf\xe9\n", "/caf%E9")


@pytest.mark.parametrize(
    "url",
    [
        "http://h/x/y",
        "https://h:8443/x/y?q#f",
        "HTTP://h/x/y",
        "http://user@h/x/y",
        "/x/y",
        "x/y",
        "/x/y#f",
        "/x/y?u=http://h/",
    ],
)
def test_a_url_is_judged_by_its_path_and_query(url: str) -> None:
    assert not allowed(group("Disallow: /x/y"), url)


@pytest.mark.parametrize("url", ["http://h", "http://h/", "http://h#f", "", "/"])
def test_an_empty_path_is_the_root(url: str) -> None:
    assert not allowed(group("Disallow: /$"), url)


def test_a_query_without_a_path_belongs_to_the_root() -> None:
    assert not allowed(group("Disallow: /?q"), "http://h?q")


@pytest.mark.parametrize("url", ["/robots.txt", "http://h/robots.txt", "http://h/robots%2etxt"])
def test_robots_txt_itself_is_always_allowed(url: str) -> None:
    assert allowed(group("Disallow: /", "Disallow: /robots.txt$"), url)


@pytest.mark.parametrize("url", ["/robots.txt.bak", "/a/robots.txt", "/robots.txt?x"])
def test_only_that_url_is_implicitly_allowed(url: str) -> None:
    assert not allowed(group("Disallow: /"), url)


def test_a_file_without_a_match_allows() -> None:
    rules = Rules.parse(group("Disallow: /x").encode(), "ourbot")
    assert rules.decide("/y") == Decision(True, None, None, "*")


def test_a_rule_that_does_not_begin_with_a_slash_matches_nothing() -> None:
    assert allowed(group("Disallow: x"), "/x")


def test_index_html_has_no_meaning_of_its_own() -> None:
    assert not allowed(group("Allow: /a/index.html", "Disallow: /"), "/a/")


# 2.2.3: special characters


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("/a*c", "/abc", True),
        ("/a*c", "/ac", True),
        ("/a*c", "/ab", False),
        ("/a**c", "/abbbcd", True),
        ("*c", "/abc", True),
        ("*", "/", True),
        ("/a*b*c", "/a-c-b", False),
        ("/a*b*c", "/a-b-c-d", True),
        ("/a*b$", "/a-b", True),
        ("/a*b$", "/a-b-c", False),
        ("/a*b$", "/a-b-b", True),
        ("/a*ab$", "/ab", False),
        ("/ab*b$", "/ab", False),
        ("/a*$", "/abc", True),
        ("/a$", "/a", True),
        ("/a$", "/a$b", False),
        ("/a$", "/ab", False),
        ("/a$b", "/a$b", True),
        ("/a$b", "/a", False),
        ("/a%24", "/a$", True),
        ("/a%24", "/a$b", True),
        ("/a%24", "/a", False),
        ("/a%2A", "/a*", True),
        ("/a%2A", "/a%2a", True),
        ("/a%2A", "/ab", False),
        ("/a*", "/a*", True),
        ("/a%23b", "/a%23b", True),
    ],
)
def test_star_is_any_run_dollar_the_end_and_their_escapes_are_plain(rule: str, path: str, matches: bool) -> None:
    assert allowed(group(f"Disallow: {rule}"), path) is not matches


# 2.3: encoding. 2.5: limits


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_byte_order_mark_whole_or_torn_is_skipped(mark: bytes) -> None:
    assert not allowed(mark + group("Disallow: /x").encode(), "/x")


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_utf_16_file_is_read_if_it_says_so(codec: str) -> None:
    text = group("Disallow: /x") if codec == "utf-16" else "\ufeff" + group("Disallow: /x")
    assert not allowed(text.encode(codec), "/x")


def filled(size: int) -> bytes:
    """A robots.txt of `size` octets whose last line is `Disallow: /last`, comments before it."""
    head, last = b"User-agent: *\n", b"Disallow: /last\n"
    return head + b"#" * (size - len(head) - len(last) - 1) + b"\n" + last


def test_at_least_500_kib_are_parsed() -> None:
    assert not allowed(filled(500 * 1024), "/last")


def test_what_lies_beyond_the_limit_is_counted_and_ignored() -> None:
    rules = Rules.parse(filled(MAX_BODY + 1), "ourbot")
    assert rules.decide("/last").allowed
    assert rules.dropped_octets == len("Disallow: /last\n")
    assert Rules.parse(filled(MAX_BODY), "ourbot").dropped_octets == 0


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


# other records


@pytest.mark.parametrize(
    ("lines", "delay"),
    [
        ("", None),
        ("Crawl-delay: 10", 10.0),
        ("Crawl-delay: 0.5", 0.5),
        ("crawl-delay:2 # please", 2.0),
        ("Crawl-delay: 2\nDisallow: /x\nCrawl-delay: 7\nCrawl-delay: 3", 7.0),
        ("Crawl-delay: soon", None),
        ("Crawl-delay: -1", None),
        ("Crawl-delay: inf", None),
        ("Crawl-delay:", None),
    ],
)
def test_crawl_delay_is_the_longest_of_the_group(lines: str, delay: float | None) -> None:
    assert Rules.parse(group(lines).encode(), "ourbot").crawl_delay == delay


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ("", None),
        ("Request-rate: 1/10", 10.0),
        ("Request-rate: 4/1m", 15.0),
        ("Request-rate: 1/2h 0600-0845", 7200.0),
        ("Request-rate: 1/5\nRequest-rate: 1/1m", 60.0),
        ("Request-rate: 0/5", None),
        ("Request-rate: often", None),
    ],
)
def test_request_rate_is_the_slowest_of_the_group(lines: str, seconds: float | None) -> None:
    assert Rules.parse(group(lines).encode(), "ourbot").request_rate == seconds


def test_a_delay_binds_the_names_above_it() -> None:
    body = b"User-agent: *\nCrawl-delay: 9\nUser-agent: ourbot\nDisallow: /x\nCrawl-delay: 2\n"
    assert Rules.parse(body, "ourbot").crawl_delay == 2.0
    assert Rules.parse(body, "other").crawl_delay == 9.0


def test_sitemaps_belong_to_no_group() -> None:
    body = b"Sitemap: http://h/1\nUser-agent: other\nSitemap: http://h/2\nDisallow: /\nSITEMAPS: http://h/1\n"
    assert Rules.parse(body, "ourbot").sitemaps == ("http://h/1", "http://h/2")


def test_the_repr_tells_an_operator_what_counts() -> None:
    rules = Rules.parse(group("Disallow: /a", "Disallow: /b$", "Crawl-delay: 2").encode(), "ourbot")
    assert repr(rules) == "<Rules group=* rules=2 crawl_delay=2.0>"


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


@pytest.mark.parametrize("name", HOSTILE)
def test_no_file_takes_long(name: str) -> None:
    body, url = HOSTILE[name]
    started = time.process_time()
    Rules.parse(body, "ourbot").decide(url)
    assert time.process_time() - started < CPU_BOUND_S
