"""What pages and style sheets embed. Expectations follow HTML and CSS Syntax."""

from __future__ import annotations

import pytest

from crawler.parse.html import ExtractPolicy, extract
from crawler.parse.requisites import embedded_in, embedded_in_css
from crawler.parse.tags import TakesLong

URL = "http://a.test/dir/page"
POLICY = ExtractPolicy(requisites=True)


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<img src=a.png><IMG SRC='b.png'>", "a.png b.png"),
        ("<img srcset='a.png 1x, b.png 2x,c.png 3x'>", "a.png b.png c.png"),
        ("<img srcset='a,b.png, c.png 100w'>", "a,b.png c.png"),
        ("<picture><source srcset='a.webp 480w'><img data-src=b.png></picture>", "a.webp b.png"),
        (
            "<video poster=a.png src=b.mp4><source src=c.webm><track src=d.vtt></video><audio src=e.ogg>",
            "b.mp4 a.png c.webm d.vtt e.ogg",
        ),
        ("<link rel='shortcut icon' href=a.ico><link rel=apple-touch-icon href=b.png>", "a.ico b.png"),
        ("<link rel='alternate stylesheet' href=a.css><link rel=modulepreload href=b.js>", "a.css b.js"),
        ("<link rel=canonical href=a><link rel=next href=b><link rel=dns-prefetch href=//c>", ""),
        ("<link rel=preload imagesrcset='a.png 1x' href=b.png>", "a.png b.png"),
        ("<script src=a.js></script><script>'<img src=no.png>'</script>", "a.js"),
        ("<iframe src=a></iframe><frame src=b><embed src=c><object data=d></object>", "a c d"),
        ("<frameset><frame src=a><frame src=b></frameset>", "a b"),
        ("<iframe srcdoc='&lt;img src=a.png&gt;'></iframe>", "a.png"),
        ("<body background=a.png><table background=b.png>", "a.png b.png"),
        (
            "<input type=image src=a.png><svg><image href=b.png /><use xlink:href='c.svg#x'/></svg>",
            "a.png b.png c.svg#x",
        ),
        ("<p style=\"background: url('a.png')\">", "a.png"),
        (
            "<p data-bg=a.png><p data-background-image='url(b.png)'><p data-background=#fff><p data-bg=0.5>",
            "a.png b.png",
        ),
        (
            "<svg><rect mask='url(a.svg#m)' fill=red filter='url(#f)' /><feImage href=b.png /><script href=c.js /></svg>",
            "a.svg#m b.png c.js",
        ),
        ("<x-a><template shadowrootmode=open><link rel=stylesheet href=a.css><img src=b.png>", "a.css b.png"),
        ("<style>@import 'a.css'; p { background: url(b.png) }</style>", "a.css b.png"),
        (
            "<!-- <img src=no.png> --><noscript><img src=a.png></noscript><template><img src=b.png></template>",
            "a.png b.png",
        ),
        ("<img src='data:image/png;base64,x'><img src=''><img src='#x'><img src=' a.png '>", "a.png"),
        ("<img src=a.png><img src=a.png>", "a.png"),
        ("<a href=no>x</a><form action=no></form><blockquote cite=no>", ""),
    ],
)
def test_markup(markup: str, expected: str) -> None:
    assert embedded_in(markup.encode(), "UTF-8") == expected.split()


@pytest.mark.parametrize(
    ("css", "expected"),
    [
        (
            "@import 'a.css'; @import \"b.css\" screen; @import url(c.css); @IMPORT/**/'d.css'",
            "a.css b.css c.css d.css",
        ),
        ("p { background: url( 'a.png' ), URL(b.png) }", "a.png b.png"),
        ("@font-face { src: local('x'), url(a.woff2) format('woff2') }", "a.woff2"),
        ("/* url(no.png) */ p::before { content: 'url(no.png)' }", ""),
        ("@namespace svg url(http://www.w3.org/2000/svg);", ""),
        ("p { background: image-set('a.png' 1x, url(b.png) 2x type('image/png')) }", "b.png a.png"),
        (r"p { background: url(a\20 b.png), url('\63.png') }", "a\N{NO-BREAK SPACE}b.png c.png"),
        ("p { background: url(data:image/png;base64,x); filter: url(#x) }", ""),
        ("p { background: my-url(no.png); background: url(bad url.png) }", ""),
        ("/* url(no.png)", ""),
        ("p { content: 'url(no.png)\n} q { background: url(a.png) }", "a.png"),
    ],
)
def test_style_sheets(css: str, expected: str) -> None:
    assert embedded_in_css(css) == [name.replace("\N{NO-BREAK SPACE}", " ") for name in expected.split(" ") if name]


def test_urls_are_joined_and_keep_their_parameters() -> None:
    page = b"<base href=/base/><img src='a.png?utm_source=x&sid=0123456789abcdef0'><a href='b?utm_source=x'>"
    found = extract(page, URL, "text/html", POLICY)
    assert [url.href for url in found.requisites] == ["http://a.test/base/a.png?utm_source=x&sid=0123456789abcdef0"]
    assert [url.href for url in found.urls] == ["http://a.test/base/b"]


def test_queries_are_in_the_encoding_of_the_page_and_style_sheets_in_theirs() -> None:
    page = "<meta charset=windows-1251><img src='a?б'>".encode("cp1251")
    assert [url.href for url in extract(page, URL, "text/html", POLICY).requisites] == ["http://a.test/dir/a?%E1"]
    css = "p { background: url(б.png) }".encode("utf-16")
    assert [url.href for url in extract(css, URL, "text/css", POLICY).requisites] == ["http://a.test/dir/%D0%B1.png"]


@pytest.mark.parametrize("media", ["text/html", "text/css"])
def test_large_documents_are_left_to_another_process(media: str) -> None:
    with pytest.raises(TakesLong):
        extract(b"p {} " * 50_000, URL, media, POLICY, is_inline=True)


def test_nothing_is_looked_for_unless_it_is_wanted() -> None:
    assert extract(b"<img src=a.png>", URL, "text/html", ExtractPolicy()).requisites == ()
