"""What the scan takes for a link, against a parser that builds a tree."""

from __future__ import annotations

import turbohtml
from hypothesis import example, given
from hypothesis import strategies as st

from crawler.parse.attributes import attribute_text
from crawler.parse.tags import scan

SCRAPS = [
    *(" href=", " HREF = ", " rel=", " REL ='", " title=", ' rel="', "href", "rel"),
    *("nofollow", " NoFollow ", "nofollows", "x", "#part", "&amp;", "&#38;", "'", '"', " ", "\t", "/", "=", ">", "<a "),
]
PAGES = (
    st.lists(st.sampled_from(SCRAPS), max_size=14)
    .map(lambda scraps: "<a " + "".join(scraps) + "><a href=end>")
    # A link to a part of the page is passed over before its other attributes are looked at.
    .filter(lambda page: 'href="#' not in page)
)


def hrefs_of_tree(page: str, obey_nofollow: bool) -> list[str]:
    """The distinct values up to their `#`, the empty ones and those to a part of the page left out."""
    found: dict[str, None] = {}
    for element in turbohtml.parse(page, positions=False).find_all("a"):
        rel = element.attrs.get("rel") or []
        words = [word.lower() for word in (rel.split() if isinstance(rel, str) else rel)]
        href = element.attrs.get("href")
        if isinstance(href, str) and not (obey_nofollow and "nofollow" in words):
            before, hash_mark, _ = href.partition("#")
            found[before + hash_mark] = None
    return [href for href in found if href and href != "#"]


@given(PAGES, st.booleans())
@example("<a rel=nofollow\xa0 href=x><a href=end>", True)
@example("<a rel='a nofollow' rel=x href=x><a href=end>", True)
@example("<a rel=x rel=nofollow href=x><a href=end>", True)
def test_links_are_those_of_a_tree(page: str, obey_nofollow: bool) -> None:
    hrefs = [attribute_text(href, "utf-8") for href in scan(page.encode(), obey_nofollow).hrefs]
    assert [href for href in hrefs if href and href != "#"] == hrefs_of_tree(page, obey_nofollow)
