"""The main text of pages of several kinds, and how it was found."""

from __future__ import annotations

import time
from typing import Any

import pytest
import turbohtml

from crawler.page import TextForm
from crawler.parse.main_text import MainText, main_text
from crawler.parse.structured import publication_date
from crawler.parse.text import content_of
from tests.sinks.values import exchange, page

SENTENCE = "Our office is open from nine to five on weekdays, and the phone is answered until six. "
NAV = "<header><a href=/>Home</a></header><nav><a href=/shop>Shop</a></nav>"
FOOTER = f"<footer><p>Example Ltd, Main Street. All rights reserved. {SENTENCE * 3}</p></footer>"
ITEMS = range(12)

CONTENTS = {
    "table": "".join(f"<tr><td>Item {i}<td>{i}.00 EUR" for i in ITEMS).join(("<table>", "</table>")),
    "definitions": "".join(f"<dt>Term {i}<dd>Item {i} means this" for i in ITEMS).join(("<dl>", "</dl>")),
    "links": "".join(f"<li><a href=/d/{i}>Item {i}</a>" for i in ITEMS).join(("<ul>", "</ul>")),
    "lines": "<br>".join(f"Item {i} of the long song" for i in ITEMS),
    "code": "\n".join(f"def item(): # Item {i}" for i in ITEMS).join(("<pre>", "</pre>")),
    "prose": "".join(f"<p>Item {i}. {SENTENCE}</p>" for i in ITEMS),
    "short": f"<p>{' '.join(f'Item {i}' for i in ITEMS)}</p>",
}


def of(body: str, form: TextForm = "text", head: str = "") -> MainText:
    html = f"<!doctype html><html><head><title>t</title>{head}</head><body>{body}</body></html>"
    return main_text(turbohtml.parse(html), "https://site.test/docs/a", is_markdown=form == "markdown")


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("around", ["main", "article", "div"])
@pytest.mark.parametrize("kind", CONTENTS)
def test_the_main_text_is_neither_the_footer_nor_a_part(kind: str, around: str, form: TextForm) -> None:
    found = of(f"{NAV}<{around}><h1>A heading</h1>{CONTENTS[kind]}</{around}>{FOOTER}", form)
    assert all(f"Item {i}" in found.text for i in ITEMS), found
    assert "rights" not in found.text
    assert not found.is_small


@pytest.mark.parametrize(
    "body", ["<header>words</header>", "<nav>words</nav>", "words", "<footer><p>words</p></footer>"]
)
def test_a_page_with_text_has_main_text(body: str) -> None:
    assert of(body).text.strip() == "words"
    assert of(body, "markdown").text.strip() == "words"


def test_hidden_text_and_scripts_are_no_text() -> None:
    hidden = "<p hidden>no</p><p style='display: none'>no</p><template>no</template><noscript>no</noscript>"
    found = of(f"<main><p>words</p>{hidden}<script>no()</script></main>")
    assert found.text.strip() == "words"


def test_a_page_without_text_has_none() -> None:
    assert of("<script>x()</script>") == MainText()


def test_a_text_of_which_most_is_left_out_is_marked() -> None:
    captions = f"<figure><figcaption>{SENTENCE}</figcaption></figure>" * 20
    found = of(f"<div><h1>News</h1>{CONTENTS['prose']}</div>{captions}", head="<meta property=og:type content=article>")
    assert (found.by, found.is_small) == ("trafilatura", True)


def test_cells_of_a_table_keep_their_vertical_bars() -> None:
    table = "<table><tr><th>a|b<th>c</tr><tr><td>1|2<td>x|</tr><tr><td>back\\<td>|y</tr></table>"
    found = of(f"<div><h1>News</h1>{CONTENTS['prose']}{table}</div>")
    assert found.by == "trafilatura"
    assert found.text.endswith("\na|b c\n1|2 x|\nback\\ |y")


def test_a_thread_has_its_comments() -> None:
    comments = "".join(f"<div class=comment><p>Answer {i}. {SENTENCE * 2}</p></div>" for i in range(20))
    found = of(f"<article><h1>Question</h1><p>{SENTENCE * 4}</p></article><section id=comments>{comments}</section>")
    assert all(f"Answer {i}." in found.text for i in range(20))


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_comments_beside_a_shorter_post_belong_to_it(form: TextForm) -> None:
    """As WordPress writes them."""
    comments = "".join(
        f"<li class=comment><div class=comment-body><cite class=fn>Jo</cite><p>Answer {i}. {SENTENCE * 2}</p></div></li>"
        for i in range(16)
    )
    parts = "".join(f"<p>Part {i} of it. {SENTENCE * 2}</p>" for i in range(9))
    post = f"<article class=post><h1>Question</h1><div class=entry-content>{parts}</div></article>"
    found = of(f"<div id=primary>{post}<div id=comments><ol class=comment-list>{comments}</ol></div></div>", form)
    assert all(f"Answer {i}." in found.text for i in range(16)), found
    assert all(f"Part {i} " in found.text for i in range(9)), found


COMMENT = (
    "<div id=comments><h3>Replies</h3><div class=comment><p>Jo says that it works again since today.</p></div></div>"
)
LEAVE_A_COMMENT = (
    "<div class=comments-area><form class=comment-form><p>Required fields are marked with a star</form></div>"
)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_ticket_has_its_only_comment(form: TextForm) -> None:
    found = of(f"{NAV}<div><h1>Ticket</h1>{CONTENTS['prose']}</div>{COMMENT}{LEAVE_A_COMMENT}{FOOTER}", form)
    assert "Jo says" in found.text
    assert "Required" not in found.text


def test_an_article_of_a_publisher_has_no_few_comments() -> None:
    head = "<meta property=og:type content=article>"
    found = of(f"{NAV}<article><h1>News</h1>{CONTENTS['prose']}</article>{COMMENT}{FOOTER}", head=head)
    assert "Item 11" in found.text
    assert "Jo says" not in found.text


@pytest.mark.parametrize(
    "page",
    [
        f"<noscript>{CONTENTS['prose']}</noscript>",
        f"<div style='display: none'>{CONTENTS['prose']}</div>",
        f"<div hidden><div><h1>A heading</h1>{CONTENTS['prose']}</div></div>",
    ],
)
def test_what_scripts_show_or_replace_is_text_if_it_is_the_page(page: str) -> None:
    found = of(f"{NAV}<div id=app>{page}</div>{FOOTER}")
    assert all(f"Item {i}." in found.text for i in ITEMS), found


def test_a_hidden_body_is_text() -> None:
    html = f"<!doctype html><title>t</title><body style='visibility:hidden'>{CONTENTS['prose']}"
    assert "Item 11." in main_text(turbohtml.parse(html), "https://site.test/", is_markdown=False).text


def test_an_article_in_a_header_is_found_on_a_page_of_links() -> None:
    """The rest of the page has only links."""
    found = of(f"<header><h1>News</h1>{CONTENTS['prose']}</header>{CONTENTS['links']}")
    assert all(f"Item {i}. {SENTENCE.strip()}" in found.text for i in ITEMS), found


def test_documentation_keeps_its_boxes_but_not_the_links_beside_it() -> None:
    box = f"<div class=sidebar><p>In short. {SENTENCE}</p></div>"
    found = of(
        f"<div>{CONTENTS['code']}{CONTENTS['prose']}{box}<div class=sidebar><a href=/b>Other page</a></div></div>"
    )
    assert found.by == "body"
    assert "In short." in found.text
    assert "Other page" not in found.text


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_documentation_of_prose_has_all_its_sections(form: TextForm) -> None:
    """Its headings have permalinks, and its sections their names."""
    sections = "".join(
        f"<section id={name}><h2>{name}<a class=headerlink href=#{name}>¶</a></h2><p>{name}: {SENTENCE * 4}</p></section>"
        for name in (
            "overview",
            "recommended-ways",
            "social-contract",
            "popular-packages",
            "share-a-package",
            "widgets",
        )
    )
    share = "<div class=share-bar>Share this page</div>"
    found = of(f"{NAV}<div role=main><section id=guide><h1>Guide</h1>{sections}{share}</section></div>{FOOTER}", form)
    assert found.by == "main"
    assert found.text.count(SENTENCE.strip()) == 24
    assert "Share this" not in found.text


def test_a_table_as_layout_is_no_documentation() -> None:
    song = "<br>".join(f"Item {i} of the long song. {SENTENCE}" for i in ITEMS)
    around = "<div><b>Weather</b> The sun will shine until the evening, and later it may rain in the north.</div>" * 4
    found = of(f"<table><tr><td>{song}<td>Photo: Jo</table>{around}")
    assert found.by == "trafilatura"
    assert all(f"Item {i} of" in found.text for i in ITEMS), found


def test_markdown_has_absolute_links_and_no_marks() -> None:
    body = (
        "<main><h1>Title<a class=headerlink href=#t>¶</a></h1><pre>x = 1</pre><dl><dt>H<sub>2</sub>O<dd>x<sup>2</sup></dl>"
        "<p><a href=b>link</a> <a href='javascript:no()'>script</a> <img src='data:image/png;base64,AAAA' alt=no> "
        "<img data-src=/lazy.png src='data:,' alt=lazy></p></main>"
    )
    found = of(body, "markdown", head="<base href=/other/>").text
    assert "# Title\n" in found
    assert "[link](https://site.test/other/b) script" in found
    assert "![lazy](https://site.test/lazy.png)" in found
    assert "H<sub>2</sub>O" in found
    assert "x<sup>2</sup>" in found
    assert "data:" not in found


@pytest.mark.parametrize(
    "code",
    [
        "<pre><code class='language-python'>x = 1</code></pre>",
        "<pre class='language-python'>x = 1</pre>",
        "<div class='highlight-python notranslate'><div class=highlight><pre>x = 1</pre></div></div>",
        "<div class='highlight highlight-source-python'><pre>x = 1</pre></div>",
        "<pre data-lang=python><code>x = 1</code></pre>",
        "<pre class='brush: python'>x = 1</pre>",
    ],
)
def test_markdown_names_the_language_of_code(code: str) -> None:
    assert "```python\nx = 1\n```" in of(f"<main>{code}</main>", "markdown").text


def test_links_that_cannot_be_read_do_no_harm() -> None:
    assert "b](https://site.test/b)" in of("<main><a href='http://[x/'>a</a> <a href=/b>b</a></main>", "markdown").text


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("essence", ["text/plain", "text/markdown"])
def test_plain_text_is_text(essence: str, form: TextForm) -> None:
    found = content_of(page(exchange("a", "# Żółw <b>\n".encode()), content_type=essence), form, structured=False)
    assert ((found.text or found.markdown), found.text_by) == ("# Żółw <b>\n", "plain")


def test_the_date_of_publication_is_as_the_page_says() -> None:
    meta = turbohtml.parse("<meta property='article:published_time' content='2026-03-01T10:00:00+01:00'>")
    assert publication_date(meta, []) == "2026-03-01T10:00:00+01:00"
    nothing = turbohtml.parse("<p>1 March 2026")
    assert (
        publication_date(nothing, [{"@graph": [{"@type": "NewsArticle", "datePublished": "2026-03-01"}]}])
        == "2026-03-01"
    )
    assert publication_date(nothing, [{"datePublished": 5}, "x", None]) is None
    body = b"<meta property='article:published_time' content='2026-03-01'>"
    assert (
        content_of(page(exchange("a", body), content_type="text/html"), "off", structured=True).published
        == "2026-03-01"
    )
    posts = [f"<time class='entry-date published' datetime=2026-03-0{day}>March {day}</time>" for day in (1, 2)]
    assert publication_date(turbohtml.parse(posts[0]), []) == "2026-03-01"
    assert publication_date(turbohtml.parse("".join(posts)), []) is None


OLD = "<time itemprop=datePublished datetime=2019-01-01>2019</time>"
MARKED = "<article><time itemprop=datePublished datetime=2026-03-04>4 March</time></article>"
ARTICLE = {"@type": "NewsArticle", "datePublished": "2026-03-04"}


@pytest.mark.parametrize(
    ("markup", "json_ld", "wanted"),
    [
        (f"<aside>{OLD}</aside>", [ARTICLE], "2026-03-04"),
        (f"<div>{OLD}</div>{MARKED}", [], "2026-03-04"),
        (f"<article>{OLD}</article>{MARKED}", [], None),
        (f"<div itemscope itemtype=https://schema.org/Comment>{OLD}</div>", [], None),
        (f"<div itemprop=review itemscope>{OLD}</div>", [], None),
        ("", [{"@type": "WebSite", "datePublished": "2001"}, ARTICLE], "2026-03-04"),
        ("", [{"@type": "WebPage", "datePublished": "2026", "mainEntity": ARTICLE}], "2026-03-04"),
        ("", [ARTICLE, {"@type": "BlogPosting", "datePublished": "2019"}], None),
        ("<meta name=article:published_time content=2026-03-04>", [], "2026-03-04"),
        ("<span itemprop=datePublished>4 March 2026</span>", [], "4 March 2026"),
    ],
)
def test_the_date_of_publication_is_not_that_of_something_else(
    markup: str, json_ld: list[Any], wanted: str | None
) -> None:
    assert publication_date(turbohtml.parse(markup), json_ld) == wanted


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("On <time>4 March</time>, from <time>9:00</time> to <time>17:00</time>, it rains.", "from 9:00 to 17:00"),
        ("Choose <label>the size</label>, then read <output>5</output> there.", "the size, then read 5"),
        ("If <math><mi>x</mi><mo>=</mo><mn>1</mn></math>, it is <math><mi>y</mi></math>.", "If x=1, it is y."),
    ],
)
def test_values_within_sentences_belong_to_them(written: str, wanted: str, form: TextForm) -> None:
    found = of(f"<article><h1>News</h1>{CONTENTS['prose']}<p>{written}</p><p>{SENTENCE}</p></article>", form)
    assert (found.by, wanted in found.text) == ("trafilatura", True), found.text


def test_japanese_with_readings_is_kept() -> None:
    ruby = "<p><ruby>漢字<rp>(</rp><rt>かんじ</rt><rp>)</rp></ruby>を読む。</p>"
    found = of(f"<article><h1>News</h1>{CONTENTS['prose']}{ruby}<p>{SENTENCE}</p></article>", "markdown")
    assert (found.by, "を読む。" in found.text) == ("trafilatura", True), found.text


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("shown", ["<img src=/a.png>", "<blockquote>Words</blockquote>", "<pre>Words</pre>"])
def test_a_figure_and_its_caption_are_text(shown: str, form: TextForm) -> None:
    figure = f"<figure>{shown}<figcaption>The old bridge, from the <b>east</b></figcaption></figure>"
    prose = f"<p>{SENTENCE * 3}</p>"
    found = of(f"{NAV}<article><h1>H</h1>{prose}{figure}{prose.upper()}</article>{FOOTER}", form)
    assert found.by == "trafilatura"
    assert "old bridge, from the" in found.text
    assert ("Words" in found.text) == ("Words" in shown)
    assert found.text.index("nine") < found.text.index("old bridge") < found.text.index("NINE")


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize(
    "part",
    [
        "<ul><li>200 g flour</li><li>3 eggs</li></ul>",
        "<ol><li>200 g flour</li><li>3 eggs</li></ol>",
        "<div><ul><li>200 g flour</li><li>3 eggs</li></ul></div>",
        "<h3><a name=eggs>200 g flour, 3 eggs</a></h3><ul><li>one</li><li>two</li></ul>",
    ],
)
def test_lists_between_paragraphs_of_an_article_are_text(part: str, form: TextForm) -> None:
    paragraphs = "".join(f"<p>Sentence {n} tells of thing {n}. {SENTENCE}</p>" for n in range(3))
    body = f"<div><h1>Cake</h1>{paragraphs}<h2>Ingredients</h2>{part}<h2>Method</h2>{paragraphs.upper()}</div>"
    found = of(body, form)
    assert (found.by, "200 g flour" in found.text, "3 eggs" in found.text) == ("trafilatura", True, True)


def test_newspapers_have_quotes_in_figures_but_captions_that_are_no_text() -> None:
    figures = (
        f"<figure>{shown}<figcaption>Photo: Agency</figcaption></figure>"
        for shown in ("<img src=/a.png>", "<blockquote>Words of a person</blockquote>")
    )
    head = "<meta property=og:type content=article>"
    found = of(f"<article><h1>H</h1><p>{SENTENCE * 3}</p>{''.join(figures)}<p>{SENTENCE * 3}</p></article>", head=head)
    assert found.by == "trafilatura"
    assert "Words of a person" in found.text and "Agency" not in found.text


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_an_index_of_documentation_is_text(form: TextForm) -> None:
    heading = "<h1>Index<a class=headerlink href=#i>\N{PILCROW SIGN}</a></h1>"
    chapters = "".join(f"<li><a href=/{i}>Chapter {i}: opening hours</a>" for i in range(20))
    found = of(f"{NAV}<div>{heading}<p>{SENTENCE * 2}</p><ul>{chapters}</ul></div>{FOOTER}", form)
    assert all(f"Chapter {i}:" in found.text for i in range(20))


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_buttons_that_open_sections_are_headings_and_others_no_text(form: TextForm) -> None:
    body = f"<h2><button>A question</button></h2><p>{SENTENCE * 3}</p><h2>Answers <button>Copy</button></h2>"
    found = of(f"<main>{body}<p>{SENTENCE * 3}</p><p><button>Buy</button></p></main>", form).text
    assert "A question" in found
    assert "Answers" in found
    assert "Copy" not in found
    assert "Buy" not in found


@pytest.mark.parametrize("kind", ["class='footnote brackets'", "class=topic", "class=sidebar", "role=doc-footnote"])
def test_asides_within_documentation_are_text(kind: str) -> None:
    headings = "".join(f"<h2 id=t{i}>Part {i}<a class=headerlink href=#t{i}>¶</a></h2><p>{SENTENCE}" for i in ITEMS)
    section = f"<section>{headings}<aside {kind}><p>A remark.</p></aside></section>"
    found = of(f"<main>{section}</main><aside {kind}>Other</aside>").text
    assert "A remark." in found
    assert "Other" not in found


PROSE = f"<p>{SENTENCE * 4}</p>" * 8


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_all_that_a_program_for_documentation_writes_is_text(form: TextForm) -> None:
    rows = "".join(
        f"<div><a href=/{i}>pack{i}</a></div><div><a href=/a{i}>Modules of a number {i}</a></div>" for i in ITEMS
    )
    body = f"<main><h1>Uses</h1><p>{SENTENCE * 8}</p><div>{rows}</div></main>"
    found = of(body, form, "<meta name=generator content='javadoc/PackageUseWriter'>")
    assert found.by == "main"
    assert all(f"pack{i}" in found.text for i in ITEMS)


def test_the_cards_of_a_short_page_are_text() -> None:
    cards = "".join(f"<div><h4>Plan {i}</h4><ul><li>{i} users</li><li>Help</li></ul></div>" for i in range(3))
    found = of(f"{NAV}<div><h1>Prices</h1><p>{SENTENCE * 2}</p></div><div>{cards}</div>{FOOTER}").text
    assert all(f"{i} users" in found for i in range(3))
    assert "rights" not in found


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize(
    ("name", "heading", "is_text"),
    [
        ("id=social-history", "Social history", True),
        ("id=cookies", "Cookies in HTTP", True),
        ("class=social-policy", "Social policy", True),
        ("id=social-links", "Follow us", False),
    ],
)
def test_a_section_with_a_name_from_its_heading_is_text(name: str, heading: str, is_text: bool, form: TextForm) -> None:
    section = f"<section {name}><h2>{heading}</h2><p>Words of it. {SENTENCE * 2}</p></section>"
    assert ("Words of it" in of(f"<article>{PROSE}{section}</article>", form).text) is is_text


@pytest.mark.parametrize("page", [PROSE, "<pre>code</pre>"])
def test_digits_keep_their_powers(page: str) -> None:
    body = f"<main>{page}<p>About 10<sup>6</sup> and x<sup>2</sup>.</p></main>"
    assert "10^6 and x2." in of(body).text
    assert "10<sup>6</sup>" in of(body, "markdown").text


@pytest.mark.timed
def test_dates_in_a_long_paragraph_take_no_time() -> None:
    began = time.process_time()
    of(f"<main><p>{(SENTENCE + '<time>1</time>') * 3_000}</p></main>")
    assert time.process_time() - began < 5.0  # quadratic: 8 s for as many
