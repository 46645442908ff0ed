"""Lines, groups and names of a robots.txt (RFC 9309 2.1, 2.2 and 2.2.1), and its other records."""

from __future__ import annotations

import pytest

from politeness.robots_match import IMPLICIT, Decision, Rules
from politeness.robots_syntax import is_product_token
from tests.politeness.rules import allowed, group

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
        "Disallow\t/x # comment",
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


def test_a_colon_in_a_value_does_not_replace_the_one_after_the_name() -> None:
    rules = Rules.parse(group("Disallow /a:b", "sitemap http://h/s", "Host http://h/").encode(), "ourbot")
    assert not rules.decide("/a:b").allowed
    assert rules.decide("/a").allowed
    assert rules.sitemaps == ("http://h/s",)


@pytest.mark.parametrize("space", ["\u00a0", "\u2003", "\ufeff", "\x85", "\u3000"])
def test_only_ascii_blanks_are_white_space(space: str) -> None:
    """RFC 9309 2.2: WS is a space or a tab. Google's parser strips ASCII white space alone, too."""
    for line in (f"Disallow:{space}/x", f"{space}Disallow: /x", f"Disallow{space}: /x", f"Disallow{space}/x"):
        assert allowed(group(line), "/x")
    assert allowed(group(f"Disallow: /x{space}"), "/x")
    assert not allowed(group(f"Disallow: /x{space}"), f"/x{space}y")
    assert allowed(f"User-agent: *{space}\nDisallow: /", "/x")
    assert not allowed(f"User-agent: ourbot{space}\nDisallow: /", "/x")  # the token ends before it
    for line in (f"Crawl-delay:{space}5", f"Crawl-delay: 5{space}", f"Request-rate: 1/5{space}"):
        rules = Rules.parse(group(line).encode(), "ourbot")
        assert (rules.crawl_delay, rules.request_rate) == (None, None)


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


def test_licence_offers_belong_to_no_group_and_are_urls() -> None:
    """RSL: the License directive is not tied to a user agent, and names an absolute URL."""
    body = (
        b"License: https://h/1.xml\nUser-agent: other\nlicense : http://h/2 # terms\nDisallow: /\nLicense: /3\nLicense:\n"
        b"License: https://h/1.xml\nUser-agent: ourbot\nDisallow: /x\n"
    )
    rules = Rules.parse(body, "ourbot")
    assert rules.licenses == ("https://h/1.xml", "http://h/2")
    written = "License: HTTPS://München.Example/l\nLicense: https://h/a\x01b\nLicense: https://h/a\u2028b\n".encode()
    assert Rules.parse(written, "ourbot").licenses == ("https://xn--mnchen-3ya.example/l",)
    assert not rules.decide("https://h/x").allowed
    assert rules.decide("https://h/y").allowed
    assert len(Rules.parse(b"".join(b"License: http://h/%d\n" % n for n in range(99)), "ourbot").licenses) == 16


def test_sitemaps_belong_to_no_group() -> None:
    body = b"Sitemap: http://h/1\nUser-agent: other\nSitemap: http://h/2\nDisallow: /\nSITEMAPS: http://h/1\n"
    assert Rules.parse(body, "ourbot").sitemaps == ("http://h/1", "http://h/2")


def test_the_repr_tells_an_operator_what_counts() -> None:
    rules = Rules.parse(group("Disallow: /a", "Disallow: /b$", "Crawl-delay: 2").encode(), "ourbot")
    assert repr(rules) == "<Rules group=* rules=2 crawl_delay=2.0>"
