"""Finds the main text of a page, and writes it as text or Markdown.

Semantic elements come first: what is in `main`, `role=main` or the only `article` is believed, and `nav`, `footer`,
`aside` and hidden elements are no text. If much of that is code, definitions or tables of data, all of it is the main text:
a page of documentation has little else, and extractors leave out a tenth to a third of its words. The same holds for lists
of links.

In other pages, trafilatura finds the article. On the two published sets of news and blogs, no other library comes near to
it (docs/explanation/main-text.md). It takes 20 ms for a page, so texts are extracted by processes beside the crawl. If it
finds only a small share of the text, the text of the semantic elements is the better guess. Comments belong to the text of
a ticket or a post, but not to that of a newspaper.

Markdown is made from the page itself, because trafilatura loses the languages of code, spanned cells and the base of links:
the blocks that are not in its text are removed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urljoin

from crawler.parse.tree import flatten_tables, restored

if TYPE_CHECKING:
    from turbohtml import Document, Element, Markdown, Node, Text

_NO_TEXT = "script, style, template, svg, iframe, object, select, textarea, button, datalist"
_VALUES = ", ".join(
    f"{block} {value}" for block in ("p", "li", "td", "dd", "blockquote") for value in ("time", "label", "output")
)
_IN_HEADINGS = ":is(h1, h2, h3, h4, h5, h6) > button"
_NOTES = (
    ":is(main, [role=main], article, section) aside:is([role=note], [role^=doc-], .footnote, .footnote-list, .footnotes, "
    ".topic, .sidebar, .admonition, .note, .warning, .tip, .important)"
)
"""Asides that documentation has within its text."""
_HIDDEN = (
    "noscript, dialog, [hidden], [style*='display:none' i], [style*='display: none' i], [style*='visibility:hidden' i], "
    "[style*='visibility: hidden' i]"
)
SURROUNDINGS = "nav, header, footer, aside, [role=navigation], [role=banner], [role=contentinfo], [role=complementary]"
"""Elements whose content is likely to be the same on many pages. The footer of an article is one, too, but is short."""

_AROUND = f"{SURROUNDINGS}, [role=search]"
MAIN = "main, [role=main]"
_TECHNICAL = "pre, code, kbd, samp, dl"
_BLOCKS_IN_CELLS = "table, p, div, ul, ol, h1, h2, h3, h4, h5, h6"
_PARTS = ":is(div, section, ul, ol, li, article, form, table)"


def _named(words: str) -> str:
    return ", ".join(f"{_PARTS}[{key}*={word} i]" for word in words.split() for key in ("class", "id"))


_COMMENTS = _named("comment")
_COMMENT_FORMS = f":is({_COMMENTS}) form, form:is({_COMMENTS}), {_named('respond')}"
_EXTRAS = _named("widget share social newsletter subscribe promo cookie popular recommend advert teaser author-bio")
_SIDES = _named("sidebar related breadcrumb")  # documentation has them, too, and boxes of prose with these names

_ARTICLE_OF_PUBLISHER = "meta[property='og:type' i][content*=article i]"
"""News and magazines say it, for their articles to be shared. Forums, trackers and blogs without more software do not."""

_LEAST_SECTION = 80  # characters outside of links that an extra with a heading hardly has

_GENERATORS = (
    "javadoc rustdoc docbook docutils sphinx doxygen makeinfo texinfo mkdocs mdbook docusaurus vitepress asciidoctor "
    "antora gitbook typedoc"
)
_GENERATED = ", ".join(f"meta[name=generator i][content*={name} i]" for name in _GENERATORS.split())
"""What programs write that make documentation alone."""

_LEAST_HIDDEN = 2 / 3
"""Share of a page's text from which a hidden element is the page itself: scripts show it, or replace it."""

_LARGEST_EXTRA = 0.25
"""Share of the content. A larger element with the name of an extra has it from its layout, as `content-with-sidebar`."""

_LEAST_PROSE, _LEAST_PROSE_IN_MAIN = 0.1, 0.25
"""Share of the text outside of links below which a page is a list."""

_LEAST_TECHNICAL, _LEAST_TABLES = 0.05, 0.3
"""Share of code, definitions and tables of data from which a page is documentation. News have at most 0.04, nine of ten
pages of documentation more. Without a `main` or `article`, tables count from `_LEAST_TABLES`: old pages have them as
layout."""

_MOST_EXTRAS = 0.01
"""Share of extras and comments that documentation may have. Blogs about programs have more."""

_FOUND_IN_MAIN, _FOUND_IN_BODY = 0.5, 0.25
"""Share of the text outside of links that trafilatura has to find, in a `main` or in several articles, and elsewhere."""

_FOUND_IN_DOCUMENTATION = 2 / 3
"""The same share of all text, if a heading has a permalink: of a list of chapters, trafilatura finds some lines only."""

_SHORT_PAGE, _FOUND_IN_SHORT = 600, 0.8
"""Characters of a body below which trafilatura has to find this share: it takes cards and short lists for links."""

_LEAST_COMMENTS = 0.5
"""Length of the comments of a publisher's article, in that of the article, from which they belong to the text."""

_SHORT_COMMENT = 30  # characters that hardly say more than "leave a comment"

_ARTICLES = 3  # make a list or a thread

_PIECE, _PIECES = 15, 100
"""Length and number of the pieces of a text that are looked for in another."""

_LONGEST, _MOST_TAGS = 1_500_000, 15_000
"""Characters and tags of a page that trafilatura reads. The longest of the published sets takes it a fifth of a second."""

_SMALL = 0.5
"""If the main text is a smaller share of the text outside of links, most was left out."""


class MainText(NamedTuple):
    """`by`: where the main text is from: `main` and `article`, these elements; `trafilatura`; `body`, all that is in no
    navigation; `visible`, all that is visible. `is_small`: whether most of the content was left out."""

    text: str = ""
    by: str = ""
    is_small: bool = False


def main_text(document: Document, url: str, is_markdown: bool) -> MainText:
    """The main text of `document`, which was received from `url`. Changes `document`."""
    whole = document.select_one("body") or document.root
    if whole is None:
        return MainText()
    _remove_hidden(document, whole)
    _unwrap_values(document)
    sections = {link.attr("href") for link in document.select(_PERMALINKS_OF_HEADINGS) if _is_mark(link)}
    if sections:
        for part in document.select(_NOTES):
            part.tag = "div"
    _forget_names(document)
    if not is_markdown:
        _mark_powers(document)
    html = restored(document.html)
    if is_markdown:
        _prepare_markdown(document, url)
    visible = _length(whole)
    around = surroundings(document, _AROUND)
    everything = _written(whole, is_markdown) if 2 * _total(around) > visible else ""
    for part in around:
        part.decompose()
    content, by = _content(document, whole)
    text, is_small = _article(document, whole, content, by, html, sections)
    if not text:
        text = _written(content, is_markdown)
    else:
        by = "trafilatura"
        article, is_completed = _pruned(whole, text)
        if is_markdown:
            text = _written(article, is_markdown)
        elif is_completed:
            text = max(text, _written(article, is_markdown), key=_size)
    if not text.strip():
        by, text = "body", _written(whole, is_markdown)
    if not text.strip():
        by, text = "visible", everything
    if not text.strip():
        return MainText()
    return MainText(text, "body" if by == "articles" else by, is_small)


def surroundings(document: Document, selector: str = SURROUNDINGS) -> list[Element]:
    """The elements of `document` around its content that match `selector`: no header of an article."""
    return [part for part in document.select(selector) if part.tag != "header" or not part.closest(f"{MAIN}, article")]


def _remove_hidden(document: Document, whole: Element) -> None:
    for part in document.select(_IN_HEADINGS):
        if _length(cast("Element", part.parent)) == _length(part):  # opens a section
            part.unwrap()
    for part in document.select(_NO_TEXT):
        part.decompose()
    least = _LEAST_HIDDEN * _length(whole)
    for part in document.select(_HIDDEN):
        if part.tag in ("html", "body"):
            continue
        if _length(part) > least:
            part.unwrap()
        else:
            part.decompose()


def _unwrap_values(document: Document) -> None:
    """Make formulas, and dates and the like within sentences, plain text, and figures with their captions blocks:
    trafilatura leaves out what is in them. Nearly no caption of a newspaper is in the text that people marked."""
    for part in document.select("math annotation, math annotation-xml"):
        part.decompose()
    for part in document.select("math, math *"):
        part.unwrap()
    is_published = document.select_one(_ARTICLE_OF_PUBLISHER) is not None
    for part in document.select("figure:has(blockquote, pre, table)" if is_published else "figure"):
        part.unwrap()
    for part in () if is_published else document.select("figcaption"):
        part.tag = "p"
    lengths: dict[Element, int] = {}
    for part in document.select(_VALUES):
        parent = cast("Element", part.parent)
        if parent not in lengths:
            lengths[parent] = _length(parent)
        if lengths[parent] > _length(part):
            part.unwrap()


def _forget_names(document: Document) -> None:
    """Remove the names that sections have from their headings, as `social-history`: extras have such names."""
    for part in document.select(_EXTRAS):
        heading = _key(title.text) if (title := part.select_one(_HEADINGS)) else ""
        for key in ("id", "class"):
            name = part.attr(key) or ""
            is_telling = "-" in name or (key == "id" and part.tag == "section")
            if name and is_telling and heading.startswith(_key(name)) and _prose(part) > _LEAST_SECTION:
                del part.attrs[key]


def _mark_powers(document: Document) -> None:
    """Let `10<sup>6</sup>` be 10^6, not 106."""
    import turbohtml  # noqa: PLC0415

    for part in document.select("sup"):
        before = part.previous_sibling
        if before and before.text[-1:].isdigit() and part.text[:1].isdigit():
            part.insert(0, turbohtml.Text("^"))


def _size(text: str) -> int:
    """The number of characters that are no white space."""
    return len("".join(text.split()))


def _length(part: Element) -> int:
    return _size(part.text)


def _prose(content: Element) -> int:
    return _length(content) - sum(map(_length, content.select("a")))


def _outermost(parts: Sequence[Element]) -> Iterator[Element]:
    """Those of `parts`, in the order of the document, that are in no other."""
    known = set(parts)
    return (part for part in parts if known.isdisjoint(part.ancestors))


def _total(parts: Sequence[Element]) -> int:
    return sum(map(_length, _outermost(parts)))


def _content(document: Document, whole: Element) -> tuple[Element, str]:
    """The element of the content, and its kind, which is a value of `MainText.by`, or `articles` for several."""
    enough = _prose(whole) / 4
    most = _length(whole) / 2
    mains = [
        part for part in document.select(MAIN) if _length(part) and (_prose(part) >= enough or _length(part) >= most)
    ]
    if mains:
        return max(mains, key=_prose), "main"
    articles = list(_outermost(document.select("article")))
    if len(articles) == 1 and _length(articles[0]) and _prose(articles[0]) >= enough:
        return articles[0], "article"
    return whole, "articles" if len(articles) >= _ARTICLES else "body"


def _article(
    document: Document, whole: Element, content: Element, by: str, html: str, sections: Collection[str | None]
) -> tuple[str, bool]:
    """The article that trafilatura finds in `html`, with its comments, and whether it is small. Empty if all of `content`
    is the main text. Removes the extras of a site from `content`. `sections`: the permalinks of headings, as those of
    documentation have them."""
    length = _length(content)
    if by == "main" and _prose(content) < _LEAST_PROSE_IN_MAIN * length:
        return "", False
    if _prose(content) < _LEAST_PROSE * length:
        found = _article_text(html)
        return ("" if _is_in(found, content) else found), False
    if _is_documentation(content, by, sections) or document.select_one(_GENERATED):
        return "", False
    found = _article_text(html)
    prose = _prose(content) - _total(content.select(_COMMENTS))
    least = (_FOUND_IN_BODY if by == "body" else _FOUND_IN_MAIN) * prose
    if sections:
        least = _FOUND_IN_DOCUMENTATION * length
    elif by == "body" and length < _SHORT_PAGE:
        least = max(least, _FOUND_IN_SHORT * length)
    if _size(found) < least:
        return "", False
    _remove_small(whole, _COMMENT_FORMS, _LARGEST_EXTRA * _length(whole))
    comments = [part for part in _outermost(whole.select(_COMMENTS)) if _prose(part) > _SHORT_COMMENT]
    least = _LEAST_COMMENTS * _size(found) if document.select_one(_ARTICLE_OF_PUBLISHER) else 0
    if sum(map(_length, comments)) > least:
        found = "\n\n".join((found, *(part.to_text() for part in comments)))
    return found, _size(found) < _SMALL * prose


def _is_in(found: str, content: Element) -> bool:
    """Whether most of `found` is in `content`. If not, the page has its article in a header or an aside."""
    within, step = _key(content.text), max(_PIECE, len(found) // _PIECES)
    lines = map(_key, found.splitlines())  # parts between them may be missing
    pieces = [line[at : at + _PIECE] for line in lines for at in range(0, len(line), step)]
    return 2 * sum(piece in within for piece in pieces) >= len(pieces)


def _is_documentation(content: Element, by: str, sections: Collection[str | None]) -> bool:
    """Whether `content` is documentation. Removes the extras of its site, and the links beside it."""
    length = _length(content)
    extra = _remove_small(content, _EXTRAS, _LARGEST_EXTRA * length, sections)
    for part in _outermost(content.select(_SIDES)):
        if 2 * _prose(part) < _length(part) <= _LARGEST_EXTRA * length:
            part.decompose()
    length = _length(content)
    if extra + _total(content.select(_COMMENTS)) > _MOST_EXTRAS * length:
        return False
    if len(sections) >= _LEAST_PERMALINKS:
        return True
    technical = _total(content.select(_TECHNICAL))
    tables = sum(_length(part) for part in content.select("table") if _has_data(part))
    if by in ("main", "article") or tables > _LEAST_TABLES * length:
        technical += tables
    return technical > _LEAST_TECHNICAL * length


def _has_data(table: Element) -> bool:
    """Whether `table` is no layout: it has no blocks in its cells, and no cell with most of its text."""
    if table.select_one(_BLOCKS_IN_CELLS):
        return False
    return 2 * max(map(_length, table.select("td, th")), default=0) <= _length(table)


def _remove_small(
    content: Element, selector: str, longest: float, sections: Collection[str | None] = frozenset()
) -> int:
    """Remove the elements with at most `longest` characters that match `selector`, but not those to which a permalink of
    `sections` leads: these have their names from a heading. Returns how many characters they had."""
    sizes = [
        (part, _length(part))
        for part in _outermost(content.select(selector))
        if not sections or f"#{part.attr('id')}" not in sections
    ]
    for part, size in sizes:
        if size <= longest:
            part.decompose()
    return sum(size for _, size in sizes if size <= longest)


@cache
def extractor() -> Callable[..., str | None]:
    """The function of trafilatura. Its import takes half a second, and it would report every page without an article."""
    import trafilatura  # noqa: PLC0415

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    return trafilatura.extract


def _article_text(html: str) -> str:
    """The text that trafilatura finds, without comments."""
    if len(html) > _LONGEST or html.count("<") > _MOST_TAGS:
        return ""
    try:
        found = extractor()(html, include_comments=False) or ""
    except Exception:  # of lxml, of the interpreter: sites send anything, and there is another way
        return ""
    return _TABLE_ROW.sub(
        lambda row: " ".join(_CELL_END.sub(" ", row[0]).replace("\\|", "|").split()), _TABLE_RULE.sub("", found)
    )


_TABLE_RULE = re.compile(r"^\|[-| ]+\|[ ]*(?:\n|\Z)", re.MULTILINE)
_TABLE_ROW = re.compile(r"^\|.*\|[ ]*$", re.MULTILINE)
_CELL_END = re.compile(r"(?<!\\)\|")  # others are escaped


def _written(element: Element, is_markdown: bool) -> str:
    if is_markdown:
        return restored(element.to_markdown(_markdown()))
    flatten_tables(element)
    return restored(element.to_text())


# Markdown

_LANGUAGE = re.compile(
    r"\b(?:language-|lang-|highlight-source-|highlight-|brush: ?)(?!text|none|default|plain|wrap)([\w+#]+)",
    re.IGNORECASE,
)
_LANGUAGE_KEYS = ("data-lang", "data-language", "lang")
_PERMALINKS = ", ".join(
    f"a.{name}"
    for name in ("headerlink", "anchor", "anchorjs-link", "permalink", "header-anchor", "heading-anchor", "hash-link")
)
_PERMALINKS_OF_HEADINGS = f":is(h1, h2, h3, h4, h5, h6) :is({_PERMALINKS})"
_LEAST_PERMALINKS = 3  # of headings, from which a page is documentation
_MARKS = frozenset("¶#§🔗\ue9cb")


@cache
def _markdown() -> Markdown:
    import turbohtml  # noqa: PLC0415

    tags = {name: lambda part, text: f"<{part.tag}>{text}</{part.tag}>" for name in ("sub", "sup")}
    return turbohtml.Markdown(converters=tags)


def _is_mark(link: Element) -> bool:
    return set(link.text.split()) <= _MARKS and not link.select_one("img[alt]")


def _prepare_markdown(document: Document, url: str) -> None:
    """Make links absolute, name the languages of code, and remove the marks of permalinks and images without an address."""
    for link in document.select("a[href]"):
        is_mark = link.matches(_PERMALINKS) or (link.attr("href") or "").startswith("#")
        if (is_mark and _is_mark(link)) or (link.attr("href") or "").lower().lstrip().startswith("javascript:"):
            if link.text.strip() and set(link.text.split()) - _MARKS:
                link.unwrap()
            else:
                link.decompose()
    for image in document.select("img"):
        source = image.attr("src") or ""
        lazy = image.attr("data-src") or image.attr("data-original") or ""
        if lazy:
            image.attrs["src"] = lazy
        elif not source or source.startswith("data:"):
            image.decompose()
    for code in document.select("pre"):
        if name := _language(code):
            code.attrs["class"] = f"language-{name}"
    try:
        document.resolve_links(document.base_url(url))
    except ValueError:  # urllib cannot read one of them
        document.rewrite_links(lambda link: _absolute(url, link))


def _absolute(base: str, link: str) -> str | None:
    try:
        return urljoin(base, link)
    except ValueError:
        return None


def _language(code: Element) -> str:
    """The language of the code block `code`, as it or an element around it is named by a highlighter; "" if unknown."""
    import turbohtml  # noqa: PLC0415

    for part in (code.select_one("code"), code, code.parent, code.parent and code.parent.parent):
        if part is None or isinstance(part, turbohtml.Document | turbohtml.DocumentFragment):
            continue
        if found := _LANGUAGE.search(part.attr("class") or ""):
            return found[1].lower()
        for key in _LANGUAGE_KEYS[: 3 if part.tag in ("pre", "code") else 2]:
            if (value := part.attr(key)) and value.isascii() and value.isalnum():
                return value.lower()
    return ""


# The blocks of an article

_HEADINGS = "h1, h2, h3, h4"
_SIGNS = re.compile(r"[\W_]+")
_INLINE_TAGS = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark q rp rt ruby s samp small span "
    "strike strong sub sup time tt u var wbr"
)
_INLINE = frozenset(_INLINE_TAGS.split())
_LONG = 30  # characters of a block that hardly occurs twice
_NEAR = 200  # characters between the blocks of an article that trafilatura may have from elsewhere
_FIGURE = 3  # elements around an image, in one of which there must be text of the article
_VOID = frozenset({"br", "hr", "td", "th"})
_CONTAINED = 0.9  # of the found text is in the element of the article


def _pruned(whole: Element, text: str) -> tuple[Element, bool]:
    """The smallest element in `whole` with nearly all of `text`, its heading and comments, without the blocks that `text`
    lacks; and whether it has lists or headings with links that `text` lacks, between its blocks."""
    wanted, at, total = _key(text), 0, 0
    headings = set(whole.select(_HEADINGS))
    found = (_with_wrapper(part) for part in _outermost(whole.select("ul, ol, dl")))
    lists = {part for part in found if 5 * _prose(part) >= 4 * _length(part)}
    unsure: list[tuple[Element, list[Text]]] = []
    lengths: dict[Node, int] = {}
    for block in list(_blocks(whole)):
        key = _key("".join(node.data for node in block))
        if not key:
            continue
        start = wanted.find(key, at) if len(key) >= _LONG else wanted.find(key, at, at + len(key) + _NEAR)
        if start < 0 and (base := _key("".join(node.data for node in block if not _is_reading(node)))) != key:
            key = base  # trafilatura leaves out the readings of Japanese
            start = wanted.find(key, at, None if len(key) >= _LONG else at + len(key) + _NEAR)
        if start < 0 and len(key) >= _LONG:
            start = _partly(block, wanted, len(key))
        if start < 0 and (inside := next((one for one in block[0].ancestors if one in headings or one in lists), None)):
            unsure.append((cast("Element", inside), block))
            continue
        if start < 0:
            for node in block:
                node.decompose()
            continue
        at, total = start + len(key), total + len(key)
        for around in block[0].ancestors:
            lengths[around] = lengths.get(around, 0) + len(key)
    article = whole
    least = _CONTAINED * total
    while inner := [part for part in article.children if part in lengths and lengths[part] >= least]:
        article = cast("Element", inner[0])
    is_completed = False
    for part, block in unsure:  # trafilatura often loses headings, above all those with links, and lists of short items
        if part.tag == "h1" or (part.parent in lengths and (part in headings or _is_beside(part, lengths))):
            is_completed |= part.parent in lengths and (part in lists or (part.tag != "h1" and bool(part.select("a"))))
            lengths.setdefault(part, 0)
        else:
            for node in block:
                node.decompose()
    beside = [part for part in (*whole.select("h1")[:1], *whole.select(_COMMENTS)) if part in lengths]
    while article is not whole and not all(article in (part, *part.ancestors) for part in beside):
        article = cast("Element", article.parent)
    _remove_empty(article, lengths)
    return article, is_completed


def _with_wrapper(part: Element) -> Element:
    """The `div` that has the text of `part` alone, if that is around it, or `part`."""
    around = cast("Element", part.parent)
    return around if around.tag == "div" and around.text.strip() == part.text.strip() else part


def _is_beside(part: Element, others: Collection[Node]) -> bool:
    """Whether what is before or after `part`, apart from headings, is among `others`."""
    import turbohtml  # noqa: PLC0415

    for siblings in (part.previous_siblings, part.next_siblings):
        texts = (one for one in siblings if isinstance(one, (turbohtml.Element, turbohtml.Text)))
        if next((one for one in texts if one.text.strip() and not one.matches(_HEADINGS)), None) in others:
            return True
    return False


def _remove_empty(article: Element, lengths: Collection[Node]) -> None:
    """Remove what has become empty, and images that are not near an element in `lengths`."""
    for part in reversed(article.select("*")):
        if part.tag == "img":
            is_kept = any(near in lengths for near, _ in zip(part.ancestors, range(_FIGURE), strict=False))
        else:
            is_kept = part.tag in _VOID or bool(part.text.strip()) or part.select_one("img, br") is not None
        if not is_kept:
            part.decompose()


def _is_reading(node: Text) -> bool:
    return getattr(node.parent, "tag", "") in ("rt", "rp")


def _key(text: str) -> str:
    return _SIGNS.sub("", text).lower()


def _partly(block: list[Text], wanted: str, length: int) -> int:
    """Where most of `block` is in `wanted`; -1 if it is not."""
    starts = [(wanted.find(key), len(key)) for node in block if len(key := _key(node.data)) >= _LONG / 2]
    found = [(start, size) for start, size in starts if start >= 0]
    return found[0][0] if 2 * sum(size for _, size in found) >= length else -1


def _blocks(whole: Element) -> Iterator[list[Text]]:
    """The runs of text nodes in `whole` that no block separates."""
    import turbohtml  # noqa: PLC0415

    block: list[Text] = []
    around: Node | None = None
    for node in whole.descendants:
        if isinstance(node, turbohtml.Text):
            nearest = next((part for part in node.ancestors if getattr(part, "tag", "") not in _INLINE), None)
            if nearest is not around and block:
                yield block
                block = []
            around = nearest
            block.append(node)
        elif block and isinstance(node, turbohtml.Element) and node.tag not in _INLINE:
            yield block
            block = []
    if block:
        yield block
