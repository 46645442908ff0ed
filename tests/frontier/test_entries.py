"""Every URL can be restored from the text of its entry, which is short."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from frontier.entries import Entry, mark_of, parse_entry, payload_of, tag_of


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
    original = Entry(url, "a.test", 1.5, depth=17, tries=2, hops=3, taken_back=4)
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
        ("x", {"a": "x" * 1_100}, ValueError),
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
