"""Which cookies are kept, and to which requests they are sent back."""

from __future__ import annotations

import pytest

from crawler.fetch import cookies as module
from crawler.fetch.cookies import MAX_BYTES, MAX_COOKIES, Cookies
from frontier.domains import host_of


def received(cookies: Cookies, url: str, *headers: str) -> None:
    cookies.received(url, host_of(url), [(b"Set-Cookie", header.encode("latin-1")) for header in headers])


def sent(cookies: Cookies, url: str) -> str:
    return cookies.value(url, host_of(url))


@pytest.mark.parametrize(
    ("header", "url", "value"),
    [
        ("a=1", "https://www.shop.co.uk/other", "a=1"),
        ("a=1", "https://shop.co.uk/", ""),  # without Domain, only its own host
        ("a=1; Domain=shop.co.uk", "https://shop.co.uk/", "a=1"),
        ("a=1; Domain=.shop.co.uk", "https://x.shop.co.uk/", "a=1"),
        ("a=1; Domain=co.uk", "https://www.shop.co.uk/", ""),  # a public suffix
        ("a=1; Domain=other.co.uk", "https://www.shop.co.uk/", ""),
        ("a=1; Domain=x.shop.co.uk", "https://x.shop.co.uk/", ""),
        ("a=1; Path=/in", "https://www.shop.co.uk/in/x", "a=1"),
        ("a=1; Path=/in", "https://www.shop.co.uk/inside", ""),
        ("a=1", "http://www.shop.co.uk/", "a=1"),
        ("a=1; Secure", "http://www.shop.co.uk/", ""),
        ("a=1; Max-Age=0", "https://www.shop.co.uk/", ""),
        ("a=1; Expires=Wed, 09 Jun 2021 10:18:14 GMT", "https://www.shop.co.uk/", ""),
        ("__Secure-a=1", "https://www.shop.co.uk/", ""),
        ("__Secure-a=1; Secure", "https://www.shop.co.uk/", "__Secure-a=1"),
        ("__Host-a=1; Secure; Path=/; Domain=shop.co.uk", "https://www.shop.co.uk/", ""),
        ("__Host-a=1; Secure; Path=/", "https://www.shop.co.uk/", "__Host-a=1"),
        ('a="x y"', "https://www.shop.co.uk/", 'a="x y"'),
        ('a="x y"; Path=/in', "https://www.shop.co.uk/in/x", 'a="x y"'),
        *[
            (f"a={value}; Path=/", "https://www.shop.co.uk/", f"a={value}")
            for value in (
                "a==",
                "x,y",
                "b c",
                '{"n":[1]}',
                "",
                "%22x%3D",
                'x"y"z',
                '"a\\054b"',
                '"open',
                "k=v&l=w",
            )
        ],
        ('a[b]="x y"', "https://www.shop.co.uk/", 'a[b]="x y"'),
        ("a=1\r\nX-Injected: 1", "https://www.shop.co.uk/", ""),
        ("a=\xe9", "https://www.shop.co.uk/", "a=\udce9"),  # not UTF-8
        ("a b=1", "https://www.shop.co.uk/", "a b=1"),
        ('"a=b"=c', "https://www.shop.co.uk/", '"a=b"=c'),
        ("=1", "https://www.shop.co.uk/", "1"),
        ("=", "https://www.shop.co.uk/", ""),
        ("=__Secure-a=1; Secure", "https://www.shop.co.uk/", ""),
        ("__Host-a", "https://www.shop.co.uk/", ""),
        ("a", "https://www.shop.co.uk/", "a"),
        ("a=1; DOMAIN=SHOP.co.uk", "https://x.shop.co.uk/", "a=1"),
        ("a=1; Domain=..shop.co.uk", "https://shop.co.uk/", ""),
        ("a=1; Domain=x.co.uk; Domain=shop.co.uk; domain=", "https://x.shop.co.uk/", "a=1"),
        ("a=1; Path=/in; Path=/out", "https://www.shop.co.uk/in", ""),
        ("a=1; Path=/in/", "https://www.shop.co.uk/in", ""),
        ("a=1; Path=in", "https://www.shop.co.uk/x", "a=1"),
        ("a=1; Max-Age=5,0", "https://www.shop.co.uk/", "a=1"),
        ("a=1; Max-Age=60; Expires=Wed, 09 Jun 2021 10:18:14 GMT", "https://www.shop.co.uk/", "a=1"),
        ("a=1; Expires=Sun, 18-Apr-2097 21:06:29 GMT", "https://www.shop.co.uk/", "a=1"),
        ("a=1; Expires=Wednesday, 09-Jun-21 10:18:14 GMT", "https://www.shop.co.uk/", ""),
        ("a=1; Expires=Wed Jun  9 10:18:14 2021", "https://www.shop.co.uk/", ""),
        ("a=1; Expires=soon", "https://www.shop.co.uk/", "a=1"),
        ("a=1; Expires=Wed, 99 Jun 2021 10:18:14 GMT", "https://www.shop.co.uk/", "a=1"),
        ("__HOST-a=1; Secure; Path=/in", "https://www.shop.co.uk/in", ""),
        (f"a={'x' * 4096}", "https://www.shop.co.uk/", ""),
    ],
)
async def test_a_cookie_is_sent_where_its_attributes_say_and_never_to_another_site(
    header: str, url: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    cookies = Cookies()
    received(cookies, "https://www.shop.co.uk/", header)
    assert sent(cookies, url) == value
    assert sent(cookies, "https://other.co.uk/") == ""
    assert sent(cookies, "https://co.uk/") == ""
    assert caplog.records == []


async def test_a_plain_http_response_sets_no_secure_cookie() -> None:
    cookies = Cookies()
    received(cookies, "http://a.test/", "a=1; Secure", "b=2")
    assert sent(cookies, "https://a.test/") == "b=2"


async def test_hosts_that_are_addresses_have_cookies_of_their_own() -> None:
    cookies = Cookies()
    received(cookies, "http://192.0.2.1/", "a=1")
    assert sent(cookies, "http://192.0.2.1/") == "a=1"
    assert sent(cookies, "http://192.0.2.2/") == ""


def test_several_paths_are_sent_the_longest_first_and_then_the_oldest() -> None:
    cookies = Cookies()
    headers = ["k=0", "k=1; Path=/in", "k=2; Path=/", "k=3; Path=/out", "k=4; Domain=a.test", "k=5; Path=/in/x"]
    received(cookies, "https://a.test/in/y", *headers)
    assert sent(cookies, "https://a.test/in/x?k=9") == "k=5; k=1; k=4; k=2"
    received(cookies, "https://a.test/in/y", "k=6; Path=/", "k=7; Path=/in/x; Max-Age=0")
    assert sent(cookies, "https://a.test/in/x") == "k=1; k=4; k=6"


def test_a_cookie_ends_with_its_time() -> None:
    now = 1_000_000.0
    cookies = Cookies(lambda: now)
    received(cookies, "https://a.test/", "a=1; Max-Age=10", "b=2")
    now += 10
    assert sent(cookies, "https://a.test/") == "b=2"


def test_the_cookies_of_a_rule_are_renewed_by_the_site_and_sent_only_with_its_requests() -> None:
    cookies = Cookies()
    url, start = "https://a.test/", "sid=1; theme=dark"
    assert cookies.value(url, "a.test", start) == start
    received(cookies, url, "sid=2; Domain=a.test; Path=/", "lang=de")
    assert cookies.value(url, "a.test", start) == "theme=dark; sid=2; lang=de"
    for other in ("http://a.test/", "https://a.test:8443/", "https://www.a.test/"):
        assert "theme" not in sent(cookies, other)
    received(cookies, url, "theme=; Max-Age=0", "sid=; Domain=a.test; Max-Age=0")
    assert cookies.value(url, "a.test", start) == "lang=de"
    assert cookies.value(url, "a.test", "sid=9") == "lang=de; sid=9"  # another rule


async def test_number_and_bytes_of_a_domain_are_limited_and_the_oldest_go() -> None:
    cookies = Cookies()
    for number in range(3 * MAX_COOKIES):
        received(cookies, "https://a.test/", f"n{number}=1")
    names = sent(cookies, "https://a.test/").split("; ")
    assert len(names) == MAX_COOKIES
    assert f"n{3 * MAX_COOKIES - 1}=1" in names
    for number in range(10):
        received(cookies, "https://b.test/", f"n{number}={'x' * 4000}")
    assert 4000 < len(sent(cookies, "https://b.test/")) <= MAX_BYTES
    assert sent(cookies, "https://b.test/").endswith("n9=" + "x" * 4000)


async def test_all_domains_together_are_limited_and_the_longest_unused_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ALL_COOKIES", 3)
    cookies = Cookies()
    for name in ("a", "b", "c"):
        received(cookies, f"https://{name}.test/", "x=1")
    sent(cookies, "https://a.test/")
    received(cookies, "https://d.test/", "x=1")
    assert [sent(cookies, f"https://{name}.test/") for name in ("a", "b", "c", "d")] == ["x=1", "", "x=1", "x=1"]
    assert repr(cookies) == "<Cookies 3 of 3 domains>"
