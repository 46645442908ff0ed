"""Conditional requests for pages that may not have changed."""

from __future__ import annotations

import pytest

from crawler.events import Event, PageSettled, UrlPostponed
from crawler.fetch.request_rules import Validators
from tests.sinks.values import exchange, page

URL = "https://site.test/map.xml"
SENT = (b'ETag: W/"1-\xe9"', b"Last-Modified: Sat, 21 Nov 2026 05:00:42 GMT")


def after(*events: Event) -> tuple[tuple[str, str], ...]:
    """The conditions of the next request."""
    validators = Validators([URL])
    for event in events:
        validators.observe(event)
    return validators.conditions(URL)


def settled(*headers: bytes, name: str = "map.xml", **more: object) -> PageSettled:
    return PageSettled(page(exchange(name, b"<urlset/>", *headers, **more)))


def test_both_validators_come_back_as_they_were_sent() -> None:
    assert after(settled(*SENT)) == (
        ("If-None-Match", 'W/"1-\xe9"'),
        ("If-Modified-Since", "Sat, 21 Nov 2026 05:00:42 GMT"),
    )
    assert after(settled(SENT[1])) == (("If-Modified-Since", "Sat, 21 Nov 2026 05:00:42 GMT"),)


def test_an_answer_of_not_modified_leaves_them_and_a_new_page_replaces_them() -> None:
    assert after(settled(*SENT), settled(status=304)) == after(settled(*SENT))
    assert after(settled(*SENT), settled(b"ETag: 2")) == (("If-None-Match", "2"),)
    assert after(settled(*SENT), settled()) == ()


@pytest.mark.parametrize(
    "event",
    [
        UrlPostponed("robots_unreachable"),
        PageSettled(page(None, "map.xml")),
        settled(*SENT, status=503),
        settled(*SENT, truncated="length"),
        settled(*SENT, name="another.xml"),
        settled(b"ETag: " + b"x" * 2_000),
    ],
)
def test_nothing_else_is_a_reason_to_leave_out_a_page(event: Event) -> None:
    """A truncated page must be fetched completely the next time."""
    assert after(event) == ()


def test_only_what_is_fetched_again_by_the_clock_is_remembered() -> None:
    validators = Validators()
    validators.observe(settled(*SENT))
    assert validators.conditions(URL) == ()
