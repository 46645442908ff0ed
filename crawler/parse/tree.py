"""Parses a document into a tree with a WHATWG parser (turbohtml), and limits what hostile markup can cost. Pure.

Every document is parsed here. The parser is linear and releases the interpreter lock, whatever it parses (tags nested a
million deep, attributes of megabytes), except for two constructions that the standard itself makes quadratic:

- Formatting elements that a paragraph leaves open are opened again in each later paragraph (HTML 13.2.4.3): 25 KB made a
  million elements. Where copies could outnumber `_MOST_COPIES`, all that are not seen to be closed are therefore renamed
  to `span`, which has no such effect. So each tree has at most a few elements for each tag, or some thousand more.
- The attributes of each `<html>` and `<body>` are compared with those of the first one, and added to them (13.2.6.4.7):
  200 KB of such tags took seven seconds and gigabytes. All but the first few, if these have few attributes, are
  therefore renamed to `bgsound`, which is allowed everywhere, and has neither content nor effect.

The library takes a tenth of the time in which a replica starts, so it is imported with the first tree: few pages need
one.

A renamed tag in an attribute or a script is not a tag, but only the parser can tell, so text from the tree must be
`restored`.
"""

from __future__ import annotations

import contextlib
import html
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from crawler.parse.encoding import codec_of, encoding_guessed, encoding_sent
from crawler.parse.markup import ANY_VALUE, NAME, SPACE

if TYPE_CHECKING:
    from turbohtml import CData, Document, Element, Text

_MOST_COPIES = 16_000  # elements: as many as in a page of 250 KB
MOST_TAGS = 1_000_000
"""Tags of a page of which links are read in its tree. At worst, they take a second and 300 MB; ten million would take more
than a document may, and so cost all of its links."""
_PRESCANNED = 8_192  # bytes: the standard looks at 1,024, and real pages declare within a few thousand
_PRESCANNED_TAGS = 250  # of which no more than `_MOST_COPIES` can be made

_FORMATTING = rf"<(?=(?P<name>b|i|u|s|tt|em|big|code|font|nobr|small|strike|strong)[{SPACE}/>])"
"""Start tags of the formatting elements (HTML 13.2.4.2) except `a`, of which only one can be open."""

_SIMPLE_VALUE = rf"""[{SPACE}]*+=[{SPACE}]*+(?:"[^"<>]*+"|'[^'<>]*+'|[^{SPACE}<>"'=`]++)"""
_SIMPLE_END = rf"""(?:[{SPACE}]++[^{SPACE}<>"'=/]++(?:{_SIMPLE_VALUE})?+)*+[{SPACE}]*+/?>"""
"""The rest of a tag that ends with its first `>`, whatever is before the tag."""

_SIMPLE_CONTENT = rf"(?:[^<]++|</?(?:a|br|img|span)(?=[{SPACE}/>]){_SIMPLE_END})*+"
_OPEN_FORMATTING = re.compile(
    rf"{_FORMATTING}(?!(?P=name){_SIMPLE_END}{_SIMPLE_CONTENT}</(?P=name)[{SPACE}]*+>)"
    rf"(?=(?P<simple>(?P=name){_SIMPLE_END})?)",
    re.IGNORECASE,
)
"""The `<` of those that may stay open: what follows is not their end tag, with nothing between that could keep it from
closing them. `simple`: the tag, if it ends with its first `>`."""

_FORMATTING_IN_BYTES = re.compile(_FORMATTING.encode(), re.IGNORECASE)
_MOST_ALIKE = 3
"""Of elements with the same name and attributes, only the last three are opened again (HTML 13.2.4.3)."""

_RENAMED = "<span \ue000"
"""What renamed tags begin with. No page contains this private-use character. Like the formatting elements, `span` ends SVG
and MathML (HTML 13.2.6.5)."""

_SAFE_ROOTS = 8
_SAFE_ATTRIBUTES = 64
"""The first roots with attributes keep their names, if they have so few. Browsers would add the attributes of the others,
but a page means the same without them."""

_ROOT = f"<(?=(?:html|body)[{SPACE}/])"
_HEAVY_ROOT = f"{_ROOT}(?!....(?:[{SPACE}/]*+{NAME}(?:{ANY_VALUE})?+){{0,{_SAFE_ATTRIBUTES}}}+[{SPACE}/]*+>)"
_ROOTS = re.compile(_ROOT, re.IGNORECASE)
_HEAVY_ROOTS = re.compile(_HEAVY_ROOT, re.IGNORECASE)
_ROOTS_IN_BYTES = re.compile(_ROOT.encode(), re.IGNORECASE)
_HEAVY_ROOTS_IN_BYTES = re.compile(_HEAVY_ROOT.encode(), re.IGNORECASE)
_RENAMED_ROOT = "<bgsound \ue000"


def parse(body: bytes, charset: str | None) -> Document:
    """The document in `body`. `charset`: its encoding as found by `crawler.parse.html`; None: detect it here. An unknown
    one is ignored."""
    if _may_have_copies(body) or _may_have_heavy_roots(body):
        encoding = _parse_whole(first_tags(body[:_PRESCANNED], _PRESCANNED_TAGS), charset).encoding
        if not charset and encoding in (None, "windows-1252"):  # also the default, if nothing is declared there
            encoding = encoding_sent(body, None) or encoding_guessed(body, is_xml=False)
        document = parse_text(body.decode(codec_of(encoding or "UTF-8"), "replace").removeprefix("\ufeff"))
    else:
        document = _parse_whole(body, charset)
    # Browsers show what a shadow root contains, so it takes the place of its template. A DOM is written like this.
    has_shadow_roots = b"shadowroot" in body.replace(b"\0", b"").lower()  # without zeros, UTF-16 reads as ASCII
    for template in document.select("template[shadowrootmode]") if has_shadow_roots else ():
        template.replace_with(*(node for fragment in template.children for node in fragment.children))
    return document


def first_tags(body: bytes, count: int) -> bytes:
    """The part of `body` with its first `count` tags."""
    if body.count(b"<") <= count:
        return body
    starts = (found.start() for found in re.finditer(b"<", body))
    return body[: next(islice(starts, count, None))]


def without_torn_end(body: bytes) -> bytes:
    """`body`, which was cut off, up to its last whole tag, or its last whole line if it has no tags: a value that the cut
    falls into would look right and be wrong (`1299.00` as `12`)."""
    return body[: (body.rfind(b">") if b"<" in body else body.rfind(b"\n")) + 1]


def parse_text(text: str) -> Document:
    """The document in `text`. Text from it must be `restored`."""
    import turbohtml  # noqa: PLC0415

    if _has_copies(text):
        text = _OPEN_FORMATTING.sub(_RENAMED, text)
    text = _with_light_roots(text)
    # Templates with a shadow root are ordinary ones here: their links belong to the page, and `parse` replaces them.
    return turbohtml.parse(text, positions=False, allow_declarative_shadow_roots=False)


def is_xml(content_type: str) -> bool:
    """Whether a page with the media type `content_type` is XML, and not XHTML, which browsers and others read as HTML."""
    is_generic = content_type in ("text/xml", "application/xml")
    return is_generic or (content_type.endswith("+xml") and content_type != "application/xhtml+xml")


_ENTITY = re.compile(r"&(?:#[0-9]+;|#x[0-9a-fA-F]+;|(?:amp|lt|gt|quot|apos);|(?P<name>[A-Za-z][A-Za-z0-9]{1,31};)?)")
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_CDATA = re.compile(r"(<!\[CDATA\[.*?(?:\]\]>|\Z))", re.DOTALL)


def parse_xml(body: bytes, charset: str) -> Document | None:
    """The XML document in `body`, such as a feed, None if it is not well-formed. Entities of HTML, `&` that begin none, and
    characters that XML forbids are mended first: many feeds have them."""
    import turbohtml  # noqa: PLC0415

    text = _NO_XML.sub("", body.decode(codec_of(charset or "UTF-8"), "replace").removeprefix("\ufeff").lstrip())
    parts = _CDATA.split(text)  # every second one is CDATA
    text = "".join(part if number % 2 else _ENTITY.sub(_mended, part) for number, part in enumerate(parts))
    try:
        return turbohtml.parse_xml(text)
    except turbohtml.HTMLParseError:
        return None


def _mended(found: re.Match[str]) -> str:
    if found[0] != "&" and not found["name"]:
        return found[0]
    known = html.unescape(found[0])
    return found[0].replace("&", "&amp;") if known == found[0] else html.escape(known)


def restored(text: str) -> str:
    """`text` from a document, with tag names as in the page."""
    return text.replace(_RENAMED, "<").replace(_RENAMED_ROOT, "<") if "\ue000" in text else text


_HIDDEN = frozenset({"script", "style", "template", "noscript"})
"""Elements whose content is not part of the text around them."""

_BLOCKS = frozenset(
    re.findall(
        r"\w+",
        """address article aside blockquote body br caption center dd details dialog dir div dl dt fieldset figcaption
        figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li listing main menu nav ol optgroup option
        p plaintext pre search section select summary table tbody td textarea tfoot th thead title tr ul xmp""",
    )
)
"""Elements that browsers show on lines or in cells of their own (HTML 15.3)."""


def text_of(root: Element | Document, split_digits: bool = False) -> str:
    """The text of `root` as a reader sees it: a line end separates blocks, lines and cells. What scripts, styles,
    templates and `noscript` within it contain is no text. Digits that continue others in a raised or lowered element are
    separated by a space. `split_digits`: those that follow others in any element are, by a line end, because `19` and `99`
    in two elements may be shown as 19.99, and white space between them separates two numbers."""
    return restored("".join(text for _, text in _texts(root, split_digits)))


@contextlib.contextmanager
def separate_texts(document: Document | Element, split_digits: bool, only_digits: bool = False) -> Iterator[None]:
    """Let the joined texts of each element of `document` be those of `text_of` in the block. Hidden texts of properties are
    empty there. `only_digits`: change no texts but those that begin with a digit."""
    import turbohtml  # noqa: PLC0415

    hidden = document.select("script, style, template, [itemprop] noscript, [property] noscript")
    nodes = ((node, "") for part in hidden for node in part.descendants if isinstance(node, turbohtml.Text))
    texts = {node: text for node, text in (*_texts(document, split_digits), *nodes) if node is not None}
    if only_digits:
        texts = {node: text for node, text in texts.items() if text.lstrip()[:1].isdigit()}
    before = [(node, node.data) for node in texts]
    try:
        for node, text in texts.items():
            node.data = text
        yield
    finally:
        for node, text in before:
            node.data = text


def _texts(root: Element | Document, split_digits: bool) -> Iterator[tuple[Text | CData | None, str]]:
    """Yield the texts of `root`, each after what separates it from the one before, and what follows the last one."""
    import turbohtml  # noqa: PLC0415

    between = ""  # blocks that have begun or ended since the text before
    joint = ""  # separates digits where a raised or lowered element has begun or ended
    has_edge = last_digit = False  # whether any element has; whether the text ends with a digit
    waiting: list[Any] = list(reversed(root.children))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (turbohtml.Text, turbohtml.CData)):
            text = node.data.replace("\n", " ") if split_digits else node.data
            if not text or (split_digits and text.isspace()):
                yield node, between + text
                between = ""
                continue
            if has_edge and last_digit and (text.lstrip() if split_digits else text)[0].isdigit():
                between += "\n" if split_digits else joint
            yield node, between + text
            between, joint, has_edge = "", "", False
            last_digit = (text.rstrip() if split_digits else text)[-1].isdigit()
            continue
        if isinstance(node, turbohtml.Element):
            name = node.tag
            if name in _HIDDEN:
                continue
            waiting.append(name)  # its end
            waiting += reversed(node.children)
        elif isinstance(node, str):
            name = node
        else:
            continue  # a comment
        has_edge = True
        if name in _BLOCKS:
            between += "\n"
            last_digit = False
        elif name in ("sub", "sup"):
            joint = " "
    yield None, between


def flatten_tables(document: Document | Element) -> None:
    """Make each row of the tables in `document` a line of its text, and separate the cells by a space.

    The parser would make columns: with one long cell, it pads each row to the length of that cell, which made 90 MB of a
    kilobyte, and many rows and columns take it quadratic time even if they are empty.
    """
    import turbohtml  # noqa: PLC0415

    is_first = True
    for part in document.select("table, caption, tr, td, th"):
        if part.tag in ("table", "caption"):
            is_first = is_first or part.tag == "table"
            part.tag = "div"
        elif part.tag != "tr":
            part.append(turbohtml.Text(" "))
        elif is_first:
            is_first = False
        else:
            part.insert(0, turbohtml.Element("br"))


def _may_have_copies(body: bytes) -> bool:
    """Whether formatting elements could make many copies, even if all stayed open."""
    tags = body.count(b"<")
    return tags * tags > 4 * _MOST_COPIES and len(_FORMATTING_IN_BYTES.findall(body)) * tags > _MOST_COPIES


def _has_copies(text: str) -> bool:
    """Whether formatting elements could make many copies: each tag could open all again that have stayed open."""
    most_open = _MOST_COPIES // max(1, text.count("<"))
    alike = Counter[str]()
    for found in _OPEN_FORMATTING.finditer(text):
        kind = (found["simple"] or "").lower()
        alike[kind] += 1
        most_open -= not kind or alike[kind] <= _MOST_ALIKE
        if most_open < 0:
            return True
    return False


def _may_have_heavy_roots(body: bytes) -> bool:
    """Whether `body`, in whatever encoding, may have roots that must be renamed. In UTF-16, tags contain NUL, and in
    ISO-2022-JP they may contain ESC."""
    if b"\0" in body or b"\x1b" in body or len(_ROOTS_IN_BYTES.findall(body)) > _SAFE_ROOTS:
        return True
    return _HEAVY_ROOTS_IN_BYTES.search(body) is not None


def _with_light_roots(text: str) -> str:
    starts = [found.start() for found in islice(_ROOTS.finditer(text), _SAFE_ROOTS + 1)]
    if not starts:
        return text
    kept = starts[_SAFE_ROOTS] if len(starts) > _SAFE_ROOTS else len(text)
    return _HEAVY_ROOTS.sub(_RENAMED_ROOT, text[:kept]) + _ROOTS.sub(_RENAMED_ROOT, text[kept:])


def _parse_whole(body: bytes, charset: str | None) -> Document:
    import turbohtml  # noqa: PLC0415

    try:
        return turbohtml.parse(body, encoding=charset, positions=False, allow_declarative_shadow_roots=False)
    except LookupError:
        return turbohtml.parse(body, positions=False, allow_declarative_shadow_roots=False)
