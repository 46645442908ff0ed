"""Finds the main text of a page, and writes it as text or Markdown. Pure.

Semantic elements come first: what is in `main`, `role=main` or the only `article` is believed, and `nav`, `footer`,
`aside` and hidden elements are no text. If much of that is code, definitions or tables of data, all of it is the main text:
a page of documentation has little else, and extractors leave out a tenth to a third of its words. The same holds for lists
of links, and for threads, whose comments are as long as the text above them.

In other pages, trafilatura finds the article. On the two published sets of news and blogs, no other library comes near to
it (docs/explanation/main-text.md). It takes 20 ms for a page, so texts are extracted by processes beside the crawl. If it
finds only a small share of the text, the text of the semantic elements is the better guess.

Markdown is made from the page itself, because trafilatura loses the languages of code, spanned cells and the base of links:
the blocks that are not in its text are removed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from crawler.parse.tree import flatten_tables, restored

if TYPE_CHECKING:
    from turbohtml import Document, Element, Markdown, Node, Text

_NO_TEXT = (
    "script, style, noscript, template, svg, iframe, object, select, textarea, button, datalist, dialog, [hidden], "
    "[style*='display:none' i], [style*='display: none' i], [style*='visibility:hidden' i], [style*='visibility: hidden' i]"
)
_AROUND = (
    "nav, header, footer, aside, [role=navigation], [role=banner], [role=contentinfo], [role=complementary], "
    "[role=search]"
)
_MAIN = "main, [role=main]"
_TECHNICAL = "pre, code, kbd, samp, dl"
_BLOCKS_IN_CELLS = "table, p, div, ul, ol, h1, h2, h3, h4, h5, h6"
_PARTS = ":is(div, section, ul, ol, li, article, form, table)"


def _named(words: str) -> str:
    return ", ".join(f"{_PARTS}[{key}*={word} i]" for word in words.split() for key in ("class", "id"))


_COMMENTS = _named("comment")
_EXTRAS = _named("widget share social newsletter subscribe promo cookie popular recommend advert teaser author-bio")
_SIDES = _named("sidebar related breadcrumb")
"""Extras that documentation has, too."""

_LARGEST_EXTRA = 0.25
"""Share of the content. A larger element with the name of an extra has it from its layout, as `content-with-sidebar`."""

_IN_DOCUMENTATION = 0.01
"""Share of extras and comments that documentation may have. Blogs about programs have more."""

_TECHNICAL_MAIN, _TECHNICAL_BODY = 0.05, 0.05
"""Share of code, definitions and tables from which a page is documentation, with a `main` or `article` and without. News
have at most 0.04, nine of ten pages of documentation more."""

_LEAST_PROSE = 0.1
"""Share of the text outside of links below which a page is a list."""

_FOUND_IN_MAIN, _FOUND_IN_BODY = 0.5, 0.1
"""Share of the text outside of links that trafilatura has to find, in a `main` or in several articles, and elsewhere."""

_ARTICLES = 3  # make a list or a thread

_THREAD = 1.5
"""Length of the comments, in that of the article, from which they belong to the text. With 1.0, those of many news do, too,
and F1 is below 0.915."""

_LONGEST, _MOST_TAGS = 1_500_000, 15_000
"""Characters and tags of a page that trafilatura reads. The longest of the published sets takes it a fifth of a second."""

_SMALL = 0.5
"""If the main text is a smaller share of the text outside of links, most was left out."""


class MainText(NamedTuple):
    """`by`: where the main text is from: `main` and `article`, these elements; `trafilatura`; `body`, all that is in no
    navigation; `visible`, all that is visible. `is_small`: whether most of the content
    was left out."""

    text: str = ""
    by: str = ""
    is_small: bool = False


def main_text(document: Document, url: str, is_markdown: bool) -> MainText:
    """The main text of `document`, which was received from `url`. Changes `document`."""
    for part in document.select(_NO_TEXT):
        part.decompose()
    html = restored(document.html)
    if is_markdown:
        _prepare_markdown(document, url)
    whole = document.select_one("body") or document.root
    if whole is None:
        return MainText()
    visible, prose = _length(whole), 0
    around = [
        part for part in document.select(_AROUND) if part.tag != "header" or not part.closest(f"{_MAIN}, article")
    ]
    everything = _written(whole, is_markdown) if 2 * sum(map(_length, _outermost(around))) > visible else ""
    for part in around:
        part.decompose()
    content, by = _content(document, whole)
    found = ""
    if _may_be_article(content, by):
        found = _article_text(html)
        comments = list(_outermost(whole.select(_COMMENTS)))  # those beside an article, too
        least = _FOUND_IN_BODY if by == "body" else _FOUND_IN_MAIN
        size, prose = _size(found), _prose(content) - sum(map(_length, _outermost(content.select(_COMMENTS))))
        if size < least * prose:
            found = ""
        elif sum(map(_length, comments)) > _THREAD * size:
            found = "\n\n".join((found, *(part.to_text() for part in comments)))
    if found:
        by = "trafilatura"
    text = found if found and not is_markdown else _written(_pruned(whole, found) if found else content, is_markdown)
    if not text.strip():
        by, text = "body", _written(whole, is_markdown)
    if not text.strip():
        by, text = "visible", everything
    if not text.strip():
        return MainText()
    is_small = bool(found) and _size(found) < _SMALL * prose
    return MainText(text, "body" if by == "articles" else by, is_small)


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


def _content(document: Document, whole: Element) -> tuple[Element, str]:
    """The element of the content, and its kind, which is a value of `MainText.by`, or `articles` for several."""
    enough = _prose(whole) / 4
    mains = [part for part in document.select(_MAIN) if _length(part) and _prose(part) >= enough]
    if mains:
        return max(mains, key=_prose), "main"
    articles = list(_outermost(document.select("article")))
    if len(articles) == 1 and _length(articles[0]) and _prose(articles[0]) >= enough:
        return articles[0], "article"
    return whole, "articles" if len(articles) >= _ARTICLES else "body"


def _may_be_article(content: Element, by: str) -> bool:
    """Whether `content` is prose, in which trafilatura finds the article. If not, removes the extras of a site."""
    length = _length(content)
    if _prose(content) < _LEAST_PROSE * length:
        return False
    extra = _removed(content, _EXTRAS, _LARGEST_EXTRA * length)
    _removed(content, _SIDES, _LARGEST_EXTRA * length)
    length = _length(content)
    comments = sum(map(_length, _outermost(content.select(_COMMENTS))))
    technical = sum(map(_length, _outermost(content.select(_TECHNICAL))))
    technical += sum(_length(part) for part in content.select("table") if not part.select_one(_BLOCKS_IN_CELLS))
    least = _TECHNICAL_BODY if by in ("body", "articles") else _TECHNICAL_MAIN
    return technical <= least * length or extra + comments > _IN_DOCUMENTATION * length


def _removed(content: Element, selector: str, longest: float) -> int:
    """Remove the elements with at most `longest` characters that match `selector`. Returns how many characters they had."""
    sizes = [(part, _length(part)) for part in _outermost(content.select(selector))]
    for part, size in sizes:
        if size <= longest:
            part.decompose()
    return sum(size for _, size in sizes if size <= longest)


def _article_text(html: str) -> str:
    """The text that trafilatura finds, without comments."""
    if len(html) > _LONGEST or html.count("<") > _MOST_TAGS:
        return ""
    import trafilatura  # noqa: PLC0415 - takes half a second

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # it reports every page without an article
    try:
        found = trafilatura.extract(html, include_comments=False) or ""
    except Exception:  # of lxml, of the interpreter: sites send anything, and there is another way
        return ""
    return _TABLE_ROW.sub(lambda row: " ".join(row[0].replace("|", " ").split()), _TABLE_RULE.sub("", found))


_TABLE_RULE = re.compile(r"^\|[-| ]+\|[ ]*(?:\n|\Z)", re.MULTILINE)
_TABLE_ROW = re.compile(r"^\|.*\|[ ]*$", re.MULTILINE)


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
_MARKS = frozenset("¶#§🔗\ue9cb")


@cache
def _markdown() -> Markdown:
    import turbohtml  # noqa: PLC0415

    tags = {name: lambda part, text: f"<{part.tag}>{text}</{part.tag}>" for name in ("sub", "sup")}
    return turbohtml.Markdown(converters=tags)


def _prepare_markdown(document: Document, url: str) -> None:
    """Make links absolute, name the languages of code, and remove the marks of permalinks and images without an address."""
    for link in document.select("a[href]"):
        is_mark = link.matches(_PERMALINKS) or (link.attr("href") or "").startswith("#")
        if (is_mark and set(link.text.split()) <= _MARKS and not link.select_one("img[alt]")) or (
            link.attr("href") or ""
        ).lower().lstrip().startswith("javascript:"):
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
    from urllib.parse import urljoin  # noqa: PLC0415

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


def _pruned(whole: Element, text: str) -> Element:
    """The smallest element in `whole` with nearly all of `text` and its heading, without the blocks that `text` lacks."""
    wanted, at, total = _key(text), 0, 0
    headings = set(whole.select("h1, h2, h3, h4"))
    unsure: list[tuple[Element, list[Text]]] = []
    lengths: dict[Node, int] = {}
    for block in list(_blocks(whole)):
        key = _key("".join(node.data for node in block))
        if not key:
            continue
        start = wanted.find(key, at) if len(key) >= _LONG else wanted.find(key, at, at + len(key) + _NEAR)
        if start < 0 and len(key) >= _LONG:
            start = _partly(block, wanted, len(key))
        if start < 0 and (named := next((around for around in block[0].ancestors if around in headings), None)):
            unsure.append((cast("Element", named), block))
            continue
        if start < 0:
            for node in block:
                node.decompose()
            continue
        at, total = start + len(key), total + len(key)
        for around in block[0].ancestors:
            lengths[around] = lengths.get(around, 0) + len(key)
    article = whole
    while (
        part := max(
            (part for part in article.children if part in lengths), key=lambda part: lengths[part], default=None
        )
    ) is not None and lengths[part] >= _CONTAINED * total:
        article = cast("Element", part)
    for named, block in unsure:  # trafilatura often loses headings, above all those with links
        if named.tag == "h1" or named.parent in lengths:
            lengths.setdefault(named, 0)
        else:
            for node in block:
                node.decompose()
    heading = whole.select_one("h1")
    if heading is not None and heading in lengths:
        while article is not whole and heading not in (article, *article.select("h1")):
            article = cast("Element", article.parent)
    _remove_empty(article, lengths)
    return article


def _remove_empty(article: Element, lengths: Collection[Node]) -> None:
    """Remove what has become empty, and images that are not near an element in `lengths`."""
    for part in reversed(article.select("*")):
        if part.tag == "img":
            is_kept = any(near in lengths for near, _ in zip(part.ancestors, range(_FIGURE), strict=False))
        else:
            is_kept = part.tag in _VOID or bool(part.text.strip()) or part.select_one("img, br") is not None
        if not is_kept:
            part.decompose()


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


# Dates

_PUBLISHED = (
    'meta[property="article:published_time" i], meta[itemprop=datePublished], meta[name="dc.date.issued" i], '
    "time[pubdate], [itemprop=datePublished]"
)
_LONGEST_DATE = 60  # characters


def published_in(document: Document, json_ld: Sequence[Any]) -> str | None:
    """When the page says that it was published, as it is written in its markup, or in its `json_ld`."""
    said = [part.attr("content") or part.attr("datetime") or "" for part in document.select(_PUBLISHED)[:1]]
    for value in (*said, *_dates(json_ld, depth=4)):
        if 0 < len(value.strip()) <= _LONGEST_DATE:
            return restored(value.strip())
    return None


def _dates(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(date := value.get("datePublished"), str):
            yield date
        value = value.get("@graph")
    if isinstance(value, list) and depth:
        for part in value[:_LONGEST_DATE]:
            yield from _dates(part, depth - 1)
