"""The links that the expression finds, compared with those of a parser that builds a tree."""

from __future__ import annotations

import re

import pytest
import turbohtml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawler.parse.attributes import attribute_text
from crawler.parse.tags import _COMMON, _SPECIAL, Tags, scan, scan_tree

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
    *(" href=", " HREF = ", " rel=", " REL ='", " title=", ' rel="', "href", "rel"),
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
def test_links_are_those_of_a_tree(page: str, obey_nofollow: bool) -> None:
    assert hrefs_of(scan(page.encode(), obey_nofollow)) == hrefs_of_tree(page, obey_nofollow)


CONSTRUCTIONS = {
    "foreign content": """
        <svg><title/></svg>
        <svg><style/></svg>
        <svg><script/></svg>
        <svg><title/>
        <svg><g><title>t</title><path d='M0'/></g></svg>
        <svg><style>a</style></svg>
        <svg><style><a href=in></style></svg>
        <svg><style><!--</style></svg>
        <svg><style></svg>
        <svg><script>'<a href=in>'</script></svg>
        <svg><textarea></svg>
        <svg><xmp></svg>
        <svg><iframe></svg>
        <svg><noframes></svg>
        <svg><noembed></svg>
        <svg><plaintext></svg>
        <svg><g title='</svg>'><title/></g></svg>
        <svg/><title>x</title>
        <svg /><title><a href=in></title>
        <svg x=y/><title/></svg>
        <svg><svg><title/></svg><title/></svg>
        <svg><a href=in></a></svg>
        <svg><a xlink:href=in#x></a></svg>
        <svg><title><a href=in></title></svg>
        <svg><image href=x></svg>
        <SVG><TITLE/></SVG>
        <math><title/></math>
        <math><style/></math>
        <math><script/></math>
        <math><mi>x</mi><mo>=</mo><mrow><mn>1</mn></mrow></math>
        <math><annotation encoding=x>a</annotation></math>
        <math><annotation><style/></annotation></math>
        <math href=x><title/></math>
        <svg><text>a</text></svg></svg><title>t</title>
        <mask><svg></mask><title><a href=in></title>
        <p><svg><b><title>x<a href=in></title>
        <svg><p><title><a href=in></title>
        <svg><font><style/></font></svg>
        <svg><font color=red><style></style></svg>
        <svg></p><title/>
        <svg></br><title></title>
        <svg><math><title/></math></svg>
        <table><svg><title/></svg>
        <table><tr><svg><style/></svg>
        <select><svg><title/></svg></select>
        <button><svg class="i" viewBox="0 0 1 1"><use xlink:href="#i"/></svg></button>
        """,
    "integration points": """
        <svg><foreignObject><title><a href=in></title></foreignObject></svg>
        <svg><foreignObject><style/></foreignObject></svg></style>
        <svg><desc><style><!--</style></desc></svg>
        <svg><desc><title/></title></desc></svg>
        <svg><desc>text</desc></svg>
        <svg><title><style></style></title></svg>
        <svg><foreignObject><svg><title/></svg></foreignObject></svg>
        <svg><foreignObject><p><a href=in></a></foreignObject></svg>
        <math><mi><title/></title></mi></math>
        <math><mtext><style></style></mtext></math>
        <math><mtext><svg><title/></svg></mtext></math>
        <math><mi><mglyph><title/></mglyph></mi></math>
        <math><annotation-xml><svg><title/></svg></annotation-xml></math>
        <math><annotation-xml encoding=text/html><title/></title></annotation-xml></math>
        <math><annotation-xml encoding=application/xhtml+xml><style></style></annotation-xml></math>
        <math><annotation-xml><style/></annotation-xml></math>
        """,
    "CDATA": """
        <svg><![CDATA[ <a href=in> ]]></svg>
        <svg><![CDATA[>]]></svg>
        <svg><![CDATA[><!--]]></svg>
        <svg><![CDATA[><title>]]></svg>
        <svg><desc><![CDATA[><!--]]></desc></svg>-->
        <svg><![CDATA[
        <![CDATA[ <!-- ]]>
        <![CDATA[ > <a href=in> ]]>
        <math><![CDATA[</math><!--]]></math>
        <svg><![CDATA[]]]]></svg>
        """,
    "raw text": """
        <title><a href=in></title>
        <title>x</title ><a href=in>
        <title>x</title/>
        <title>x</titles></title>
        <title>x</title x='<!--'>
        <title/></title>
        <title>
        <textarea><!--</textarea>
        <textarea></TextArea
        <style><!--</style>
        <style>a<b</style>
        <xmp><script></xmp>
        <iframe><!--</iframe>
        <iframe src=x></iframe>
        <noembed><a href=in></noembed>
        <noframes><!--</noframes>
        <script></script>
        <script>'</'</script>
        <script><!--</script>
        <script><!--<script></script>
        <script><!--<script></script></script>
        <script><!--<script>--></script>
        <script><!--<script </script>--></script>
        <script><!--><script></script>
        <script><!-- --!><script></script>
        <script><!--<scripts></script>
        <script type="a>b"></script>
        <script
        <script x="
        <script/>
        <listing><a href=in></listing>
        <pre>
        <plaintext><a href=in>
        <plaintext/>
        <plaintext
        """,
    "templates": """
        <template><title/></template>
        <template><title></title></template>
        <template><a href=in></template>
        <template><template><style></style></template>
        <template shadowrootmode=open><a href=in></template>
        <div><template shadowrootmode=open><a href=in></template></div>
        <template><tr><td><a href=in></template>
        <template><svg><title/></svg></template>
        <template>
        """,
    "noscript": """
        <noscript><a href=in></noscript>
        <head><noscript><style></style></noscript></head>
        <head><noscript><a href=in></noscript></head>
        <head><noscript><title></title></noscript></head>
        <noscript><!-- </noscript> -->
        <noscript><iframe></iframe></noscript>
        """,
    "frameset": """
        <frameset><frame src=x></frameset>
        <frameset><title><frame src=x></frameset>
        <frameset><noframes><a href=in></noframes></frameset>
        <frameset></frameset><title>
        <p><frameset><title></title>
        <frameset><svg><title/></svg>
        <frame src=x>
        """,
    "select and tables": """
        <select><a href=in><option><a href=in2></select>
        <select><title></title></select>
        <select><textarea></select></textarea>
        <select><style></style></select>
        <select><input><select>
        <table><a href=in></table>
        <table><tr><a href=in><td><a href=in2></table>
        <table><style></style><title></title></table>
        <table><caption><a href=in></table>
        <table><colgroup><title></title></table>
        <table><colgroup><template><a href=in></template></table>
        <table><tbody><script></script></table>
        <table><td><table><a href=in>
        """,
    "unclosed": """
        <b
        <b x='
        <b x="<a href=in>
        <!--
        <!-- --
        <!-->
        <!--->
        <!---!>
        <!-- --!>
        <!-- <!-- -->
        <!-- > -->
        <!
        <!x <!-- >
        <!doctype html PUBLIC ">
        <!doctype "<!--">
        </
        </>
        </ <!-- >
        </1 <!-- >
        </p
        </p title="<!--">
        </p title='>'>
        <?x <!-- ?>
        <?
        <
        <<
        <a href=in
        <a><p><a href=in><b>
        </a href=in>
        </body></html>
        </html><!-- --><p>
        <form><form><a href=in></form>
        """,
    "quotes": """
        <img alt='> <!--'>
        <img alt="a > b <title>">
        <img alt="<title>">
        <img alt='><script>'>
        <img alt = "><!--">
        <img alt=">" title='<plaintext>'>
        <p x=">"y='<!--'>
        <p x=a"><!-- -->">
        <p don't>'
        <p "a>"
        <p '<!--'>
        <p x='y'z="<!--">
        <p =">
        <p ="<!--">
        <p x==">">
        <p x=<!-->
        <p x=`<!--`>
        <p/x=">"/>
        <p='>
        <p="><!-- ">
        </p='>
        <textarea='<svg>
        <p / x = '<style>' / >
        <p x="y"<!--z">
        <b<!-->
        <b'<!--'>
        <a href=in href=in2>
        <a title=x href=in title=y HREF=in2>
        <a href="in'"x>
        <a href=in"x>
        <a href=in'>
        <a href="in
        """,
    "characters": """
        <a href=a&#0;b>
        <a href=a&#x0;b>
        <a href=a&#x80;&#x81;&#x9f;b>
        <a href=a&#1;&#x1f;b>
        <a href=a&#xd;b>
        <a href=a&#xd800;&#x110000;&#99999999999999999999;b>
        <a href=a&#xfffe;b>
        <a href=a&copy=1&copy;&copyx&copy>
        <a href=a&#38b>
        <a href=a&#;&#x;&b>
        <a href='a&notit;&notin;&not;'>
        <a href=a&#38;#b#c>
        """,
}


def test_no_tag_that_matters_begins_like_a_common_one() -> None:
    names = re.findall("[a-z]+", _SPECIAL.partition("(?=")[0])
    assert [name for name in names if re.match(_COMMON, name, re.IGNORECASE)] == []


@pytest.mark.parametrize("kind", CONSTRUCTIONS)
def test_no_link_is_missed_whatever_comes_before_it(kind: str) -> None:
    """In the manner of the tree-construction tests of html5lib: one construction, then a link and some closing tags."""
    for line in CONSTRUCTIONS[kind].split("\n"):
        construction = line.strip()
        for before in ("", "<!doctype html><head>", "<body><div>", "<svg>", "<table>"):
            expect_all_links(before + construction + END)
            expect_all_links(before + construction + "</p>--></style></title></script>]]></svg></template>" + END)


NUL = """
    <\0a href=in>
    <a\0 href=in>
    <a \0href=in>
    <a href\0=in>
    <a href=\0in>
    <a href='i\0n'>
    <a href=in\0>
    <a href=i&amp\0n>
    <a href=i&\0;>
    <a href=i&#38\0;>
    \0<a href=in>
    <!\0--
    <!-\0-
    <!--\0-->
    <!-- -\0->
    </\0p <!-- >
    <script\0>
    <script></script\0></script>
    <script><!\0--<script></script>
    <title\0>
    <title>\0</title>
    <svg><title\0/></svg>
    <svg>\0<title/></svg>
    <svg\0><title></title>
    <p x=\0"<!--">
    <plain\0text>
    """


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
