"""By which URLs an identity may be published."""

from __future__ import annotations

import pytest

from crawler.identity.published import is_https_url


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
