"""The links that the expression finds, compared with those of a parser that builds a tree."""

from __future__ import annotations

import re

import pytest
import turbohtml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawler.parse.markup import attribute_text
from crawler.parse.tags import Tags, TakesLong, scan, scan_tree
from tests.parse.constructions import CONSTRUCTIONS, NUL

END = "<a href=end>"


def hrefs_of(tags: Tags) -> list[str]:
    hrefs = ("".join(attribute_text(href, "utf-8").partition("#")[:2]) for href in tags.hrefs)
    return [href for href in hrefs if href and href != "#"]


def hrefs_of_tree(page: str, obey_nofollow: bool) -> list[str]:
    """The distinct values up to their `#`, without empty ones and those of parts of the page."""
    found: dict[str, None] = {}
    for element in turbohtml.parse(page, positions=False, allow_declarative_shadow_roots=False).iter_elements():
        if element.tag not in ("a", "area"):
            continue
        words = re.split("[\t\n\f\r ]+", (element.attr("rel") or "").lower())
        href = element.attr("href") or element.attr("xlink:href")
        if href and not (obey_nofollow and "nofollow" in words):
            before, hash_mark, _ = href.partition("#")
            found[before + hash_mark] = None
    return [href for href in found if href != "#"]


def expect_all_links(page: str) -> None:
    """The scan of `page` finds every link of its tree, and so does `scan_tree`, which finds no others."""
    links = hrefs_of_tree(page, obey_nofollow=False)
    assert hrefs_of(scan_tree(page.encode())) == links
    assert [link for link in links if link not in hrefs_of(scan(page.encode()))] == []


SCRAPS = [
    *(" href=", " HREF = ", ' href="', " rel=", " REL ='", " title=", ' title="a"', ' rel="', "href", "rel"),
    *("nofollow", " NoFollow ", "nofollows", "x", "#part", "&amp;", "&#38;", "'", '"', " ", "\t", "/", "=", ">", "<a "),
]
LINKS = st.tuples(
    st.sampled_from(("<a ", "<p ", "<p", "<li", "</p ", "</p", "<titles ", "<bases ", "<styles ")),
    st.lists(st.sampled_from(SCRAPS), max_size=14),
).map(lambda parts: parts[0] + "".join(parts[1]) + ">" + END)


@given(LINKS, st.booleans())
@example('<p title="<!--"><' + END, False)
@example("<p title='a \"b\"><a href=x>'>" + END, False)
@example('<p title="a><a href=x>b">' + END, False)
@example('<p title= ">" title="><a href=x>">' + END, False)
@example('<p title="" title=" "><a href=x>' + END, False)
@example("<p title='\"><a href=x>'>" + END, False)
@example("<a rel=nofollow\xa0 href=x><a href=end>", True)
@example("<a rel='a nofollow' rel=x href=x><a href=end>", True)
@example("<a rel=x rel=nofollow href=x><a href=end>", True)
@example('<a title="a" rel="nofollow" href="x"><a href=end>', True)
@example('<a title="a" href="x" Rel="nofollow"><a href=end>', True)
@example('<a title="a" href="x" href="y"><a href=end>', True)
@example('<a title="a" HREF="x#y" title="b"><a href=end>', True)
@example('<a title="a" href="#y" href="x"><a href=end>', True)
def test_links_are_those_of_a_tree(page: str, obey_nofollow: bool) -> None:
    assert hrefs_of(scan(page.encode(), obey_nofollow)) == hrefs_of_tree(page, obey_nofollow)


@pytest.mark.parametrize("kind", CONSTRUCTIONS)
def test_no_link_is_missed_whatever_comes_before_it(kind: str) -> None:
    """In the manner of the tree-construction tests of html5lib: one construction, then a link and some closing tags."""
    for line in CONSTRUCTIONS[kind].split("\n"):
        construction = line.strip()
        for before in ("", "<!doctype html><head>", "<body><div>", "<svg>", "<table>"):
            expect_all_links(before + construction + END)
            expect_all_links(before + construction + "</p>--></style></title></script>]]></svg></template>" + END)


def test_nul_means_what_the_standard_says() -> None:
    for line in NUL.split("\n"):
        expect_all_links(line.strip() + END)


MARKUP = st.lists(
    st.one_of(
        st.sampled_from(
            [
                f"<{slash}{name}{end}"
                for name in (
                    *("svg", "math", "title", "style", "script", "textarea", "xmp", "iframe", "noframes", "noscript"),
                    *("template", "frameset", "select", "table", "tr", "td", "p", "b", "g", "desc", "foreignObject"),
                    *("mi", "mtext", "annotation-xml", "a href=in", "font color=x", "br", "plaintext"),
                )
                for slash in ("", "/")
                for end in (">", "/>", " x='>'>", ' x="<!--">', "='", "")
            ]
        ),
        st.sampled_from(
            ["<!--", "-->", "--!>", "<![CDATA[", "]]>", "<!", "</", "<", ">", "'", '"', "=", " ", "\0", "&#0;"]
        ),
        st.integers(0, 9).map("<a href={}>".format),
    ),
    max_size=12,
).map("".join)


@settings(max_examples=300)
@given(MARKUP)
@example("<math></svg><iframe>")
@example("<svg><g></math><iframe>")
def test_no_link_of_any_markup_is_missed(page: str) -> None:
    expect_all_links(page + END)


@pytest.mark.parametrize(
    ("page", "base"),
    [
        ("<base href=x>", [b'href="x"', b" href=x"]),
        ("<template><base href=no></template><base href=x>", [b'href="x"']),
        ("<svg><base href=no></svg><base href=x>", [b'href="no"', b'href="x"']),
        ("<svg><g><base href=no></g></svg>", []),
        ("<title><base href=no></title>", []),
    ],
)
def test_the_base_is_that_of_the_document(page: str, base: list[bytes]) -> None:
    found = scan(page.encode()).base
    assert found == base or found[0] in base


@pytest.mark.parametrize("tag", [b"<meta>", b"<link>", b"<base>", b"<html>"])
def test_many_elements_without_attributes_are_not_parsed_in_the_event_loop(tag: bytes) -> None:
    """Each takes a microsecond, though it adds no byte to what is parsed."""
    scan(1_000 * tag, is_inline=True)
    with pytest.raises(TakesLong):
        scan(5_000 * tag, is_inline=True)


@pytest.mark.parametrize("tag", [b"\0<a>", b"<p>"])
def test_of_a_page_with_too_many_tags_for_a_tree_the_first_links_are_kept(tag: bytes) -> None:
    """A NUL, and more tags in a row than the expression may match, need the tree."""
    page = b"<a href=first>" + 3_000_000 * tag + b"<a href=last>"
    tags = scan(page)
    assert (tags.hrefs, tags.is_cut) == ([b"first"], True)
