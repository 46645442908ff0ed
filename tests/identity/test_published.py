"""What is published beside the keys: address ranges and the page that explains the crawler."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from crawler.identity.published import About, address_ranges, is_https_url, page

ABOUT = About(
    product="examplebot",
    user_agent="examplebot/1 (+https://example.com/bot)",
    operator='Example <Ltd> & "Co"',
    purpose="A search engine for recipes.",
    complaints="bot@example.com",
    delay_s=2.0,
    robots_max_age_s=86_400.0,
    addresses=("192.0.2.0/28",),
    addresses_url="https://example.com/addresses.json",
    directory="https://example.com/keys",
)


def test_address_ranges_have_the_form_of_the_draft() -> None:
    """draft-illyes-webbotauth-jafar-00, sections 2.1 to 2.3; one list, and exactly one prefix in each object."""
    assert address_ranges(["192.0.2.0/28", "2001:db8::/64", "198.51.100.7"], "examplebot", 1_800_000_000.9) == {
        "synctoken": address_ranges(["192.0.2.0/28", "2001:db8::/64", "198.51.100.7"], "examplebot", 0)["synctoken"],
        "creationTime": "2027-01-15T08:00:00Z",
        "prefixes": [
            {"ipv4Prefix": "192.0.2.0/28", "services": ["examplebot"]},
            {"ipv6Prefix": "2001:db8::/64", "services": ["examplebot"]},
            {"ipv4Prefix": "198.51.100.7/32", "services": ["examplebot"]},
        ],
    }


def test_the_token_changes_with_the_ranges_alone() -> None:
    one, same, other = (address_ranges([n], "bot", at)["synctoken"] for n, at in (("::1", 1), ("::1", 2), ("::2", 1)))
    assert one == same != other


def test_the_page_tells_who_why_how_to_block_and_how_to_complain() -> None:
    text = page(ABOUT)
    for part in (
        "Example &lt;Ltd&gt; &amp; &quot;Co&quot;",
        "A search engine for recipes.",
        "examplebot/1 (+https://example.com/bot)",
        "User-agent: examplebot\nDisallow: /",
        '<a href="mailto:bot@example.com">',
        "<code>192.0.2.0/28</code>",
        '<a rel="client-ranges" href="https://example.com/addresses.json">',
        '<a href="https://example.com/keys">',
        "at least 2 s",
        "after 24 hours",
    ):
        assert part in text


def test_the_page_tells_only_what_the_crawl_obeys() -> None:
    assert "Crawl-delay" in page(ABOUT)
    assert "Content-Usage" not in page(ABOUT)
    other = page(replace(ABOUT, obeys_crawl_delay=False, uses=("search", "train-ai")))
    assert "Crawl-delay" not in other
    assert "you refuse <code>search, train-ai</code> is not kept" in other


def test_the_page_is_whole_and_loads_nothing() -> None:
    opened: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            assert tag not in ("script", "img", "link", "iframe")
            opened.extend([] if tag == "meta" else [tag])

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Reader(convert_charrefs=True).feed(page(ABOUT))
    assert opened == []
    assert re.findall(r"@import|url\(", page(ABOUT)) == []


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://a.example/keys", True),
        ("https://a.example", True),
        ("https://a.example:8443/x?y", True),
        ("http://a.example/keys", False),
        ("https:///keys", False),
        ("https://a.example:99999/", False),
        ("https://a.example:0/", False),
        ("https://me@a.example/", False),
        ("https://a.example/#x", False),
        ('https://a.example/"x', False),
        ("https://a.example/\\x", False),
        ("https://a.example/ x", False),
        ("https://a.example/\r\nX: y", False),
        ("https://ä.example/", False),
        ("https://[::1/", False),
        ("", False),
    ],
)
def test_only_an_https_url_can_be_published(url: str, good: bool) -> None:
    assert is_https_url(url) == good
