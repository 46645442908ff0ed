"""Canonical URLs: all spellings of a page have one form."""

from __future__ import annotations

import contextlib
import gc
import itertools
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ada_url
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from frontier.domains import (
    _rules,
    domain_of,
    is_public_suffix,
    registrable_domain,
    shard_of,
    site_of,
    suffix_list_date,
    suffix_list_mark,
)
from frontier.entries import Entry, mark_of, parse_entry, payload_of, tag_of
from frontier.errors import BadInput, BadUrl
from frontier.urls import (
    DEFAULT_RULES,
    Url,
    UrlPattern,
    UrlRules,
    canonicalize,
    canonicalize_links,
    is_in_url,
    origin_of,
)
from tests.conformance import psl
from tests.conformance import urls as conformance

TOKEN = "0123456789abcdef0123456789ABCDEF"

SAME = [
    ("HTTP://WWW.Example.COM/", "http://www.example.com/"),
    ("http://example.com", "http://example.com/"),
    ("http://example.com.:80/", "http://example.com/"),
    ("https://example.com:443/a", "https://example.com/a"),
    ("https://example.com:80/a", "https://example.com:80/a"),
    ("http://user:secret@example.com/", "http://example.com/"),
    ("http://example.com/a#b", "http://example.com/a"),
    ("http://example.com/a?", "http://example.com/a"),
    ("http://example.com/a?#b", "http://example.com/a"),
    ("http://example.com/a/./b/../c//d/", "http://example.com/a/c//d/"),
    ("http://example.com/%7euser/%41%2e%5F%2d", "http://example.com/~user/A._-"),
    ("http://example.com/a%2fb%c3%bc", "http://example.com/a%2Fb%C3%BC"),
    ("http://example.com/ü?ü", "http://example.com/%C3%BC?%C3%BC"),
    ("http://example.com/100%/%41", "http://example.com/100%/%41"),
    ("http://example.com/x^y?^", "http://example.com/x%5Ey?^"),
    ("http://bücher.example/", "http://xn--bcher-kva.example/"),
    ("http://faß.example/", "http://xn--fa-hia.example/"),
    ("http://faẞ.example/", "http://xn--fa-hia.example/"),  # UTS 46 since Unicode 15.1, and web-platform-tests
    ("http://FA%E1%BA%9E.example/", "http://xn--fa-hia.example/"),
    ("http://ex%61mple.com:80/", "http://example.com/"),
    ("http://ｅxample.com/", "http://example.com/"),
    ("http://ex\nämple.com/", "http://xn--exmple-cua.com/"),
    ("http://faẞ.example/\ud800", "http://xn--fa-hia.example/%EF%BF%BD"),
    ("http://0x7f.1/", "http://127.0.0.1/"),
    ("http://[0:0:0:0:0:0:0:1]:80/", "http://[::1]/"),
    ("http://[::ffff:127.0.0.1]:80/a", "http://127.0.0.1/a"),
    ("https://[::FFFF:7F00:1]:8443/", "https://127.0.0.1:8443/"),
    ("http://[::ffff:0:1:2]/", "http://[::ffff:0:1:2]/"),
    ("\t http://exa\nmple.com\\a ", "http://example.com/a"),
    ("http://example.com/\ud800", "http://example.com/%EF%BF%BD"),
    ("http://example.com/?b=2&a=1&a=&&c", "http://example.com/?b=2&a=1&a=&&c"),
    ("http://example.com/?utm_source=x&a=1&UTM_Medium=y&gclid", "http://example.com/?a=1"),
    ("http://example.com/?fbclid=1", "http://example.com/"),
    ("http://example.com/?utm%5Fsource=x", "http://example.com/"),
    ("http://example.com/?sid=12/04/01/1234", "http://example.com/?sid=12/04/01/1234"),
    (f"http://example.com/?sid={TOKEN}&p=1", "http://example.com/?p=1"),
    (f"http://example.com/?aspsessionidQRST={TOKEN}", "http://example.com/"),
    (f"http://example.com/a;jsessionid={TOKEN}.node1/b;v=1", "http://example.com/a/b;v=1"),
    (f"http://example.com/a/..;jsessionid={TOKEN}/b", "http://example.com/b"),
    (f"http://example.com/(S({TOKEN}))/a/?b", "http://example.com/a/?b"),
    (f"http://example.com/app/(X(1)S({TOKEN})F(x_-))/a", "http://example.com/app/a"),
    (f"http://example.com/(S({TOKEN}))/../(S({TOKEN}))/a", "http://example.com/a"),
    ("http://example.com/(S(1))/f(x)/(S(y)z)/", "http://example.com/(S(1))/f(x)/(S(y)z)/"),
    (f"http://example.com/a;aspsessionidQRST={TOKEN};x=1/b", "http://example.com/a;x=1/b"),
    (f"http://example.com/a;aspsessionidQ;x={TOKEN}", f"http://example.com/a;aspsessionidQ;x={TOKEN}"),
    (f"http://example.com/a;aspsessionidQ/b={TOKEN}", f"http://example.com/a;aspsessionidQ/b={TOKEN}"),
    ("http://example.com/a#" + "x" * 100_000, "http://example.com/a"),
    ("http://example.com/" + "%61" * 2_000, "http://example.com/" + "a" * 2_000),
    (" " * 100_000 + "http://example.com/a" + " " * 100_000, "http://example.com/a"),
    ("http://example.com/?utm_x=%zz&a=%41", "http://example.com/?a=A"),
]


@pytest.mark.parametrize(("text", "href"), SAME)
def test_spellings_of_one_page_have_one_canonical_form(text: str, href: str) -> None:
    assert canonicalize(text).href == href


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mailto:a@example.com", "scheme"),
        ("javascript:void(0)", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("data:text/html," + "x" * 100_000, "scheme"),
        ("http://example.com/" + "x" * 2048, "length"),
        ("http://example.com/" + "x" * 100_000, "length"),
        ("http://", "host"),
        ("http://a..b/", "host"),
        ("http://%00/", "host"),
        ("http://example.com:99999/", "host"),
        ("http://" + "a" * 64 + ".com/", "host"),
        ("http://" + "a." * 127 + "com/", "host"),
        ("http://" + "一" * 300 + "/", "host"),
        ("ht\ttp:\\\\user@" + "一" * 300 + "/", "host"),
        ("//" + "%E4%B8%80" * 300, "host"),
        ("", "syntax"),
        ("/path", "syntax"),
    ],
)
def test_what_cannot_be_crawled_is_refused_with_one_word(text: str, reason: str) -> None:
    with pytest.raises(BadUrl) as refused:
        canonicalize(text)
    assert refused.value.reason == reason


CJK = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))
SLOW = {
    "session parameters": "/^" + ";aspsessionid" * 5_000,
    "session parameters within the limit": "/^" + ";aspsessionid" * 620,
    "parameters": "/?" + "&aspsessionid" * 620,
    "a host": f"http://{CJK}/",
    "a host within the limit": f"http://{CJK[:8_000]}/",
    "a host without slashes": f"https:{CJK[:8_000]}/",
    "a host in escapes": "//" + "%E4%B8%80" * 900,
    "escapes": "/" + "%7e" * 2_700,
    "dots": "/" + "a/../" * 1_600,
}


@pytest.mark.parametrize("name", SLOW)
def test_no_reference_takes_long(name: str) -> None:
    """5 ms on a fast core: the expression for session parameters took 2.5 s, the ASCII form of the host 0.6."""
    canonicalize("http://example.com/")  # loads the list of public suffixes
    started = time.process_time()
    with contextlib.suppress(BadUrl):
        canonicalize(SLOW[name], "http://example.com/")
    assert time.process_time() - started < 0.03


def test_a_link_with_a_long_segment_of_other_scripts_is_no_host() -> None:
    text = "a/" + CJK[:200] + "?" + CJK[200:220]
    assert canonicalize(text, "http://example.com/").href.startswith("http://example.com/a/%E4%B8%80")


def test_links_are_joined_to_their_base() -> None:
    base = "http://example.com/a/b?q=/x/"
    joined = [canonicalize(href, base).href for href in ("c", "../c", "?p=1", "//other.example/", "http:c", "")]
    assert joined == [
        "http://example.com/a/c",
        "http://example.com/c",
        "http://example.com/a/b?p=1",
        "http://other.example/",
        "http://example.com/a/c",
        "http://example.com/a/b?q=/x/",
    ]


def test_a_url_knows_its_domain_and_origin() -> None:
    url = canonicalize("https://Me@News.Example.co.uk:8443/x")
    assert url == Url("https://news.example.co.uk:8443/x", "example.co.uk", "https://news.example.co.uk:8443")
    assert origin_of(url.href) == url.origin
    assert canonicalize("http://[::1]:8080/x").origin == "http://[::1]:8080"


def test_rules_are_settings() -> None:
    rules = UrlRules(strip_params=("ref", "x*"), session_params=(), sort_query=True, max_length=60)
    text = f"http://example.com/?c=1&ref=a&b=2&xyz=1&sid={TOKEN[:8]}&utm_id=1"
    assert canonicalize(text, rules=rules).href == "http://example.com/?b=2&c=1&sid=01234567&utm_id=1"
    assert canonicalize("http://example.com/?a=1", rules=UrlRules((), ())).href == "http://example.com/?a=1"
    with pytest.raises(BadUrl):
        canonicalize("http://example.com/" + "x" * 60, rules=rules)


def test_a_page_s_links_come_out_once_and_in_order() -> None:
    hrefs = ["b", " b#x", "#top", "", "  ", "a", "./b", "mailto:x@example.com", "http://a..b/", "?p=2"]
    urls, rejected = canonicalize_links(hrefs, "http://example.com/dir/page")
    assert [url.href for url in urls.values()] == list(urls)
    assert list(urls) == [
        "http://example.com/dir/b",
        "http://example.com/dir/a",
        "http://example.com/dir/page?p=2",
    ]
    assert rejected == {"scheme": 1, "host": 1}


def test_parts_of_one_page_are_one_link_to_the_limit() -> None:
    """An index may link to ten thousand fragments of a few pages."""
    hrefs = [*(f"a#{part}" for part in range(50)), "#top", "b", "mailto:x", "c", "#end"]
    urls, rejected = canonicalize_links(hrefs, "http://example.com/", limit=3)
    assert (list(urls), rejected) == (["http://example.com/a", "http://example.com/b"], {"scheme": 1, "excess": 1})


def test_links_are_taken_up_to_a_number_of_bytes() -> None:
    """A link that is written in several ways counts each time, because each takes time."""
    urls, rejected = canonicalize_links(["a", "./a", "b", "#", "mailto:x"], "http://example.com/", max_bytes=59)
    assert (list(urls), rejected) == (["http://example.com/a"], {"excess": 2})


@pytest.mark.parametrize("base", ["about:blank", "mailto:a@example.com", "relative"])
def test_links_need_a_base_that_can_be_crawled(base: str) -> None:
    with pytest.raises(BadUrl):
        canonicalize_links(["a"], base)


CONFUSING = st.text(st.sampled_from("htp:/?#.;=&%@[]^\\ \t\nab0é\ud8002fDxn-~"), max_size=24)
PARTS = ["http:", "https:", "/", "//", "?", "&", ";", "=", "..", ".", "a", "b", "#", "@", ":80", "^", "\\", " ", "\t"]
SPECIAL = [
    f"(S({TOKEN}))/",
    "%",
    "%4",
    "%41",
    "%2e",
    "%2E",
    "sid",
    "utm_a",
    "jsessionid",
    TOKEN,
    "xn--",
    "食",
    "\ud800",
]
PIECES = st.lists(st.sampled_from(PARTS + SPECIAL), max_size=14).map("".join)
TEXTS = st.one_of(st.text(max_size=30), CONFUSING, PIECES, PIECES.map("http://example.com/".__add__))


@given(TEXTS)
@example(f"http://example.com/.;sid={TOKEN};/x")
@example("http://example.com/?utm_a=%&b=%75tm_a")
@example("http://example.com/%%34%31")
def test_a_canonical_url_is_its_own_canonical_form(text: str) -> None:
    try:
        url = canonicalize(text, "http://example.com/dir/page?q")
    except BadUrl as refused:
        assert refused.reason in ("scheme", "host", "length", "syntax")
        return
    assert canonicalize(url.href) == url
    assert origin_of(url.href) == url.origin
    assert url.href.isascii()


PATHS = st.text(st.sampled_from("ab~-_./Hh"), max_size=8) | st.text(st.sampled_from("ab./#"), max_size=12)
HOSTS = st.text(st.sampled_from("ab019xn-_."), min_size=1, max_size=8) | st.sampled_from(
    ("a.0x1", "1.2.3", "a.xn--a", "a.")
)
URLS = st.tuples(st.sampled_from(("http://", "https://", "HTTP://")), HOSTS, PATHS).map("".join)
DIRECTORIES = ["", "dir/", "a//b/", "%41/", "a^b/", f"a;jsessionid={TOKEN}/", f"(S({TOKEN}))/b/", ".x/..y/"]
PAGES = ["page", "page?x=/y/", "", "?z", "100%"]


@given(st.lists(TEXTS | PATHS | URLS, max_size=5), st.sampled_from(DIRECTORIES), st.sampled_from(PAGES))
@example(["../b#", "../../../../../b", "../", "..//b"], "a//b/", "page")
@example(
    ["http://xn--a.b/", "http://xn--/", "http://a.xn--0/", "http://a.0x7f/b", "https://a.b-c/..", "https://b.c/../d"],
    "",
    "page",
)
@example(["b"], "%41/", "100%")  # whose directory alone would be written otherwise
def test_links_joined_together_equal_links_joined_alone(hrefs: list[str], directory: str, page: str) -> None:
    """Neither the cache of earlier joins, which pages of one directory share, nor the fast path for plain paths may change
    a result."""
    base = canonicalize(f"http://example.com/{directory}{page}").href
    alone: dict[Url, None] = {}
    for href in hrefs:
        if href.partition("#")[0].strip("".join(map(chr, range(33)))):
            try:
                alone[canonicalize(href, base)] = None
            except BadUrl:
                continue
    assert list(canonicalize_links(hrefs, base)[0].values()) == list(alone)


def test_equal_rules_are_equal() -> None:
    assert UrlRules() == DEFAULT_RULES
    assert hash(UrlRules()) == hash(DEFAULT_RULES)


def test_the_whatwg_suite_is_met() -> None:
    score = conformance.score()
    if score is None:
        pytest.skip("the conformance data is not here (../shared/conformance/urltestdata.json)")
    assert score.failures == []
    assert score.cases >= 400


def test_nothing_is_reported_when_the_interpreter_exits() -> None:
    """The library that parses URLs reports those that outlive it."""
    code = "from frontier.urls import canonicalize_links; canonicalize_links(['b c', 'd;e#f'], 'http://a.test/x/')"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=300)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_dot_segments_are_removed_as_the_standard_says() -> None:
    """Otherwise `/public/.x/../../private` is allowed by a robots.txt that denies `/private`, and a server takes it for
    `/private`."""
    segments = ("a", ".x", "..", ".", "%2e%2E", "")
    for path in itertools.chain(*(itertools.product(segments, repeat=count) for count in range(1, 6))):
        url = f"http://h.test/{'/'.join(path)}"
        assert canonicalize(url).href == ada_url.normalize_url(url)


def test_links_of_a_page_on_a_host_that_does_not_decode_are_found() -> None:
    found, rejected = canonicalize_links(["/x?y", "?z", "../a"], "http://xn--a.example.com/b/c")
    assert list(found) == [f"http://xn--a.example.com/{path}" for path in ("x?y", "b/c?z", "a")]
    assert not rejected


# Patterns for URLs find what Python's `re` finds, and end soon for hostile URLs.


SEARCHED = (
    "https://example.com/shop/1",
    "https://example.com/Shop/ab-c/",
    "http://a.test/login?next=/",
    "http://a.test/x.PDF",
)
PATTERNS = (
    "",
    "/shop/",
    r"^https://example\.com/",
    r"(?i)\.pdf$",
    r"(?x) /shop/ \d+ $  # a product",
    r"/shop/(\w+-?)+/$",
    r"\d+$",
    "a|b",
    r"/(?P<n>\w+)\b",
    "/login\\b",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_finds_what_re_finds(pattern: str) -> None:
    for url in SEARCHED:
        expected = re.search(pattern, url) is not None
        assert (UrlPattern(pattern).is_in(url), is_in_url(pattern, url)) == (expected, expected), url


@pytest.mark.parametrize("pattern", ["[[a]bout", "[a&&b]#+"])
def test_an_expression_that_python_may_change_gives_no_warning(pattern: str) -> None:
    """Warnings are errors in tests."""
    re.purge()
    assert not is_in_url(pattern, "https://example.com/")


@pytest.mark.parametrize("pattern", [r"/shop/(\w+-?)+/$", r"((a|aa)+)+!$", r"(\w+\s?)*!!", r"(?:a+){2,}b"])
@pytest.mark.parametrize("length", [40, 2_000])
def test_a_hostile_url_takes_no_time(pattern: str, length: int) -> None:
    url = "http://a.test/shop/" + "a" * length + "%!"
    found = UrlPattern(pattern)
    began = time.thread_time()
    assert not found.is_in(url)
    assert time.thread_time() - began < 0.01  # with the limit of PCRE2 0.02 s and more, with `re` hours


def test_a_search_that_ends_early_counts_as_said() -> None:
    url = "http://a.test/" + "a" * 2_000 + "%!"
    slow = r"((a|aa)+)+!$"
    assert [UrlPattern(slow, if_unknown=said).is_in(url) for said in (True, False)] == [True, False]


@pytest.mark.parametrize("pattern", ["(", "a)(b", "[", "*a", "[["])
def test_what_is_no_expression_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="not a regular expression"):
        UrlPattern(pattern)


# Maps hosts to domains, and domains to shards.


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.com", "example.com"),
        ("WWW.Example.CO.UK", "example.co.uk"),
        ("alice.github.io", "alice.github.io"),  # private suffix: other people's sites are other domains
        ("github.io", "github.io"),
        ("co.uk", "co.uk"),
        ("com", "com"),
        ("localhost", "localhost"),
        ("d1.test", "d1.test"),
        ("www.d1.test", "d1.test"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
    ],
)
def test_hosts_belong_to_domains(host: str, domain: str) -> None:
    assert domain_of(host) == domain
    assert domain_of(domain) == domain


def test_a_site_is_named_without_user_information_and_final_dot() -> None:
    assert site_of("http://u:p@www.example.com.:81") == ("example.com", "http://www.example.com:81")
    assert site_of("https://[::1]") == ("[::1]", "https://[::1]")
    assert site_of("http://[::1]:81") == ("[::1]", "http://[::1]:81")
    assert site_of("http://a..b") is None
    assert site_of("http://" + "a" * 400) is None


@pytest.mark.parametrize(
    ("domain", "shard"), [("example.com", 883), ("d1.test", 73), ("[::1]", 540), ("xn--bcher-kva.example", 166)]
)
def test_shards_never_move(domain: str, shard: int) -> None:
    """Golden values: a crawl that an older release stored must find its queues."""
    assert shard_of(domain, 1024) == shard


@given(st.text(max_size=20), st.integers(1, 16_384))
def test_a_shard_is_in_range(domain: str, shards: int) -> None:
    domain = domain.encode("utf-8", "replace").decode()
    assert 0 <= shard_of(domain, shards) < shards


def test_the_public_suffix_cases_are_met() -> None:
    score = psl.score()
    if score is None:
        pytest.skip("the conformance data is not here (../shared/conformance/psl.txt)")
    assert score.failures == []
    assert score.cases >= 70


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # by requests-file, until it is collected
def test_a_newer_list_of_public_suffixes_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d_\S+, bundled", suffix_list_date())
    file = tmp_path / "list.dat"
    monkeypatch.setenv("PEERCRAWL_SUFFIX_LIST", str(file))
    file.write_text(
        "// ===BEGIN ICANN DOMAINS===\n// VERSION: 2026-11-01_UTC\ncom\nnew.example\n"
        "// ===BEGIN PRIVATE DOMAINS===\nhost.example\n// ===END PRIVATE DOMAINS===\n"
    )
    try:
        for cached in (_rules, registrable_domain):
            cached.cache_clear()
        assert suffix_list_date() == f"2026-11-01_UTC from {file}"
        mark = suffix_list_mark()
        file.write_text(file.read_text().replace("2026-11-01", "2026-11-02"))
        assert suffix_list_mark().split()[0] == mark.split()[0]  # the same rules
        names = ("www.a.new.example", "www.a.host.example", "www.a.com")
        assert [*map(registrable_domain, names)] == ["a.new.example", "a.host.example", "a.com"]
        _rules.cache_clear()
        file.write_text("<html>404")
        with pytest.raises(BadInput, match="is not the whole list"):
            is_public_suffix("com")
    finally:
        gc.collect()
        monkeypatch.undo()
        for cached in (_rules, registrable_domain):
            cached.cache_clear()


def test_what_has_no_registrable_domain() -> None:
    assert [registrable_domain(host) for host in ("com", ".com", "192.0.2.1", "[::1]", "")] == [None] * 5


def test_wildcards_exceptions_and_encoded_names_of_the_list_apply() -> None:
    hosts = (
        "b.a.x.ck",
        "www.www.ck",
        "x.ck",
        "ck",
        "a.b.xn--p1ai",
        "xn--55qx5d.cn",
        "a.xn--55qx5d.cn",
        "a.xn--99999.test",
    )
    expected = ["a.x.ck", "www.ck", None, None, "b.xn--p1ai", None, "a.xn--55qx5d.cn", "xn--99999.test"]
    assert [*map(registrable_domain, hosts)] == expected
    assert [host for host in hosts if is_public_suffix(host)] == ["x.ck", "xn--55qx5d.cn"]


# Every URL can be restored from the text of its entry, which is short.


@pytest.mark.parametrize(
    "url",
    [
        "https://a.test/x",
        "https://www.a.test/x?y",
        "http://a.test/",
        "http://www.a.test/é",
        "https://sub.a.test/x",
        "https://a.test:8443/x",
        "https://a.test.evil/x",
    ],
)
def test_any_url_survives_the_round_trip(url: str) -> None:
    original = Entry(url, "a.test", 1.5, depth=17, tries=2, hops=20, taken_back=4)
    assert parse_entry(original.raw, "a.test", 1.5) == original


def test_where_a_url_was_found_survives_and_costs_nothing_when_it_is_not_kept() -> None:
    found = Entry("https://a.test/x?y", "a.test", depth=1, via="https://b.test/y?z")
    assert parse_entry(found.raw, "a.test", 0.0) == found
    assert parse_entry(found.next_try(-1.0).raw, "a.test", -1.0) == replace(found, tries=1, priority=-1.0)
    assert len(found.raw) == len(replace(found, via="").raw) + 1 + len(found.via)


@pytest.mark.parametrize("via", ["", "https://b.test/y?z"])
@pytest.mark.parametrize("visit", ["", 'a,b,"e tag"'])
@pytest.mark.parametrize("chain", ["", mark_of("https://a.test/")])
@pytest.mark.parametrize("tag", ["", "product", tag_of("p", {"a b": "c\td\n e", "n": [1, None]}), tag_of("", {})])
def test_a_tag_survives_beside_everything_else(via: str, visit: str, tag: str, chain: str) -> None:
    tagged = Entry("https://a.test/x?y", "a.test", depth=1, via=via, visit=visit, tag=tag, chain=chain)
    assert parse_entry(tagged.raw, "a.test", 0.0) == (replace(tagged, chain="") if visit else tagged)
    assert "\n" not in tagged.raw
    assert len(tagged.raw) - len(replace(tagged, tag="").raw) <= len(tag) + 2


def test_label_and_payload_are_read_from_the_tag() -> None:
    payload = {"a b": "c\td\n e", "n": [1, None], "{": "}"}
    assert payload_of(tag_of("product", payload)) == payload
    assert Entry("https://a.test/", "a.test", tag=tag_of("product", payload)).label == "product"
    assert (payload_of("product"), payload_of("")) == ({}, {})


@pytest.mark.parametrize(
    ("label", "payload", "error"),
    [
        ("a b", None, ValueError),
        ("x" * 65, None, ValueError),
        ("x", [1], ValueError),
        ("x", {"a": "x" * 16_400}, ValueError),
        ("x", {"a": object()}, TypeError),
        ("x", {"a": "\ud800"}, ValueError),
    ],
)
def test_what_cannot_be_a_tag_is_refused(label: str, payload: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        tag_of(label, payload)


def test_the_head_costs_six_bytes_and_the_domain_none() -> None:
    assert Entry("https://a.test/x", "a.test").raw == "s00000/x"


@pytest.mark.parametrize(
    "url", ["https://a.test:8443/x", "https://a.test.evil/x", "https://sub.a.test/x", "https://b.test/x"]
)
def test_what_does_not_begin_with_the_domain_alone_is_kept_whole(url: str) -> None:
    """A settled URL is found by its text, so a URL must have only one text, in every version."""
    assert Entry(url, "a.test").raw == f"u00000{url}"
