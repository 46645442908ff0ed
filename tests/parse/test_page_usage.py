"""What a response says about the use of its page, wherever it says so."""

from __future__ import annotations

import pytest

from crawler.parse.document import noted_fields, robots_tags, usage_of
from crawler.parse.html import ExtractPolicy, extract
from politeness.robots_match import Rules
from politeness.tdmrep import NOT_STATED, Reservation, SiteUsage
from politeness.usage import NO_USAGE, Usage

HTML, JPEG = "text/html", "image/jpeg"
Fields = list[tuple[bytes, bytes]]


def usage(
    fields: Fields, body: str = "", media: str = HTML, site: SiteUsage = NOT_STATED, agent: str = "ourbot"
) -> Usage:
    noted = noted_fields(fields)
    policy = ExtractPolicy(user_agent=agent)
    found = extract(body.encode(), "https://a.test/", media, policy, robots_tags(noted))
    return usage_of(site, noted, found, media.startswith("image/"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([(b"Content-Usage", b"train-ai=n")], "train-ai=n"),  # draft-ietf-aipref-attach-05 1.2
        ([(b"content-usage", b"train-ai=n"), (b"Content-Usage", b"search=y")], "train-ai=n, search=y"),
        ([(b"Content-Usage", b"search=n"), (b"Content-Usage", b"search=y")], "search=y"),  # one list: the last counts
        ([(b"Content-Usage", b"Train-AI=n")], ""),
        ([(b"X-Robots-Tag", b"noai")], "train-ai=n, ai-use=n"),
        ([(b"X-Robots-Tag", b"noindex, NoAI")], "train-ai=n, ai-use=n"),
        ([(b"X-Robots-Tag", b"ourbot: noai")], "train-ai=n, ai-use=n"),
        ([(b"X-Robots-Tag", b"otherbot: noai")], ""),
        ([(b"X-Robots-Tag", b"noindex, otherbot: noai")], ""),
        ([(b"X-Robots-Tag", b"noimageai")], ""),
        ([(b"tdm-reservation", b"1")], "train-ai=n, ai-use=n"),
        ([(b"TDM-Reservation", b"0")], "train-ai=y"),
        ([(b"TDM-Reservation", b"1"), (b"tdm-reservation", b"0")], "train-ai=n, ai-use=n"),
        ([(b"Content-Usage", b"train-ai=y, search=y"), (b"tdm-reservation", b"1")], "train-ai=n, ai-use=n, search=y"),
        ([(b"Server", b"train-ai=n")], ""),
    ],
)
def test_headers(fields: Fields, said: str) -> None:
    assert str(usage(fields)) == said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<meta name=robots content=noai>", "train-ai=n, ai-use=n"),
        ("<meta name=Robots content='index, NOAI,noimageai'>", "train-ai=n, ai-use=n"),
        ("<meta name=ourbot content=noai>", "train-ai=n, ai-use=n"),
        ("<meta name=otherbot content=noai>", ""),
        ("<meta name=robots content=noimageai>", ""),
        ("<meta name=description content=noai>", ""),
        ("<meta name='tdm-reservation' content=' 1 '>", "train-ai=n, ai-use=n"),
        ("<meta name='TDM-Reservation' content='0'>", "train-ai=y"),
        ("<meta name='tdm-reservation' content='yes'>", ""),
        ("<meta name=tdm-reservation content=1><meta name=tdm-reservation content=0>", "train-ai=n, ai-use=n"),
        ("<!-- <meta name=robots content=noai> -->", ""),
    ],
)
def test_pages(body: str, said: str) -> None:
    assert str(usage([], body)) == said


def test_the_example_of_tdmrep_in_a_page() -> None:
    found = usage(
        [],
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="tdm-reservation" content="1">'
        '<meta name="tdm-policy" content="https://provider.com/policies/policy.json"><title>Document title</title></head>',
    )
    assert (str(found), found.tdm_policy) == ("train-ai=n, ai-use=n", "https://provider.com/policies/policy.json")
    assert found.statements == ("meta: tdm-reservation: 1",)


def test_noimageai_is_about_images() -> None:
    """It is recorded with a page, for those who fetch its images, but says nothing about the page itself."""
    fields = [(b"X-Robots-Tag", b"noimageai")]
    assert str(usage(fields, media=JPEG)) == "train-ai=n, ai-use=n"
    assert usage(fields).statements == ("X-Robots-Tag: noimageai",)


def test_all_statements_are_recorded_and_the_most_restrictive_apply() -> None:
    rules = Rules.parse(b"User-agent: *\nContent-Usage: train-ai=y, search=y\n", "ourbot").usage
    assert rules is not None
    site = SiteUsage(rules.stated("/"), Reservation(True, "https://a.test/p", "tdmrep.json rule 1"))
    found = usage([(b"Content-Usage", b"search=n")], "<meta name=robots content=noai>", site=site)
    assert str(found) == "train-ai=n, ai-use=n, search=n"
    assert found.statements == (
        "robots.txt line 2: Content-Usage: train-ai=y, search=y",
        "header Content-Usage: search=n",
        "meta robots: noai",
        "tdmrep.json rule 1: tdm-reservation: 1",
    )
    assert found.tdm_policy == "https://a.test/p"
    # In the protocol, the page supersedes the file.
    assert str(usage([], "<meta name=tdm-reservation content=0>", site=site)) == "train-ai=y, search=y"


def test_a_page_about_which_nothing_is_said_costs_nothing() -> None:
    assert usage([(b"Server", b"x")], "<meta name=robots content=noindex><p>text") is NO_USAGE
