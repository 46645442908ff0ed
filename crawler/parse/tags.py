"""From the bytes of a page to the few tags that matter to a crawler, without a tree. Pure.

One regular expression walks over the page as the tokenizer of the HTML standard does (13.2.5): comments, scripts and
other raw text are passed over, quoted attribute values may hold anything, and what the page leaves open ends with the
page. It works on bytes, so only what is taken needs decoding: in all encodings of the web but UTF-16 and ISO-2022-JP,
which have to be transcoded before, the bytes of markup are those of ASCII.

What a tree would know and this does not: that the content of `template` is inert, that SVG has no raw text, and, where a
quoted attribute value holds a `>` and after it a whole tag `a`, that this is no tag. Each may give a link too many.

Linear in the page, whatever it holds: every construct, once begun, is taken to its end or to that of the page, and no
repetition gives back what it took (`++`, `*+`).

PCRE2 compiles the expression to machine code, and one substitution for the whole page writes out what was found, so that
nothing is done in Python for what does not matter: 2 us a kilobyte of documentation pages, where a tree takes 9. It
takes the hrefs of links out of their tags as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from operator import not_
from typing import Any

import msgspec
import pcre2  # type: ignore[import-untyped]
from pcre2 import _cy
from turbohtml import Element, Namespace

from crawler.parse.attributes import ANY_VALUE, EQUALS, NAME, SPACE
from crawler.parse.tree import parse_text, restored


class Tags(msgspec.Struct):
    """The attributes of a page's tags, as they are written and in their order; `crawler.parse.attributes` takes them apart.

    `hrefs` are those of `a` and `area`, each once, as written and up to the `#`, as pages of documentation lead to many
    parts of another. `title` is the content of the first one, None if there is none. `count`: of all tags found; `others`:
    of those that are no links, with so many `bytes`.
    """

    hrefs: list[bytes] = msgspec.field(default_factory=list)
    base: list[bytes] = msgspec.field(default_factory=list)
    frame: list[bytes] = msgspec.field(default_factory=list)  # and iframe
    html: list[bytes] = msgspec.field(default_factory=list)
    link: list[bytes] = msgspec.field(default_factory=list)
    meta: list[bytes] = msgspec.field(default_factory=list)
    title: bytes | None = None
    count: int = 0
    others: int = 0
    other_bytes: int = 0


def scan(page: bytes, obey_nofollow: bool = False) -> Tags:
    """The tags of `page`, in an encoding that writes ASCII as ASCII. Links to a part of the page itself are left out
    where they are written as is usual, and with `obey_nofollow` those whose `rel` says nofollow."""
    page = _without_nuls(page)
    try:
        told = _found_in(page, obey_nofollow)
    except pcre2.LibraryError:  # PCRE2 limits its steps for one match: three million attributes are too many for it
        told = _found_in_tree(page, obey_nofollow)
    return _classify(page, told)


def scan_quickly(page: bytes, obey_nofollow: bool, at_most: int) -> Tags | None:
    """As `scan`; None if there are more tags than `at_most`, after two thirds of the time or less, and for a page that
    only a tree can tell."""
    page = _without_nuls(page)
    try:
        told = _found_in(page, obey_nofollow)
    except pcre2.LibraryError:
        return None
    return _classify(page, told) if told.count(b"\0") <= 2 * at_most else None


def _without_nuls(page: bytes) -> bytes:
    return page.replace(b"\0", b"?")  # in HTML an error in all places


def _classify(page: bytes, told: bytes) -> Tags:
    pieces = told.split(b"\0")
    names, contents = pieces[:-1:2], pieces[1::2]
    if names and names[-1] and page.endswith(b"<%b%b" % (names[-1], contents[-1])):
        del names[-1], contents[-1]  # a tag that the page leaves open is none
    hrefs = list(dict.fromkeys(compress(contents, map(not_, names))))
    others = list(compress(zip(names, contents, strict=True), names))
    size = sum(len(content) for _, content in others)
    tags = Tags(hrefs=hrefs, count=len(names), others=len(others), other_bytes=size)
    lists = {b"base": tags.base, b"frame": tags.frame, b"iframe": tags.frame}
    lists |= {b"html": tags.html, b"link": tags.link, b"meta": tags.meta}
    images = 0  # SVG images that are open: their titles are not the page's
    for name, content in others:
        name = name.lower()
        if name in lists:
            lists[name].append(content)
        elif name == b"title":
            if tags.title is None and not images:
                tags.title = content
        else:
            images = images + 1 if name == b"svg" else max(0, images - 1)
    return tags


def _tag(*names: str) -> str:
    return f"(?:{'|'.join(names)})(?=[{SPACE}/>])"


def _raw_text(name: str) -> str:
    return f"(?:[^<]++|<(?!/{_tag(name)}))*+"


_ATTRIBUTES = f"(?:[{SPACE}/]*+{NAME}(?:{ANY_VALUE})?)*+[{SPACE}/]*+"
_END = r"(?:>|\z)"
_COMMENT = r"--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\z))"

# The script data states (13.2.5.15 to 31): `<!--` and then `<script` hide a `</script`.
_SCRIPT_TAG = _tag("script")
_DOUBLY_ESCAPED = rf"(?:[^-<]++|-(?!->)|<(?!/{_SCRIPT_TAG}))*+(?:</{_SCRIPT_TAG}|(?=-->)|\z)"
_ESCAPED = rf"(?:[^-<]++|<{_SCRIPT_TAG}{_DOUBLY_ESCAPED}|-(?!->)|<(?!/?{_SCRIPT_TAG}))*+(?:-->|(?=<)|\z)"
_SCRIPT = f"(?:[^<]++|<!(?=--){_ESCAPED}|<(?!/{_SCRIPT_TAG}|!--))*+"

_SKIPPED = f"(?:[{SPACE}/]*+(?!%s[{SPACE}/>=]){NAME}(?:{ANY_VALUE})?)*+[{SPACE}/]*+"
"""The attributes before the one of that name: the first counts."""


def _fragment_links(ends: str) -> str:
    """A value without the bytes `ends`, taken up to its `#`. The one of a character reference (`&#38;`) is none."""
    return f"((?:[^#&{ends}]++|&#?+)*+#?+)[^{ends}]*+"


_DOUBLE, _SINGLE, _BARE = map(_fragment_links, ('"', "'", f"{SPACE}>"))
_HREF = rf"""{_SKIPPED % "href"}(?:href(?:{EQUALS}(?|"{_DOUBLE}"?|'{_SINGLE}'?|{_BARE}))?+)?+"""


def _has_word(word: str, quote: str) -> str:
    return f"{quote}(?:[{SPACE}]*+(?!{word}[{SPACE}{quote}])[^{SPACE}{quote}]++)*+[{SPACE}]*+{word}[{SPACE}{quote}]"


_SAYS_NOFOLLOW = (
    f"{_SKIPPED % 'rel'}rel{EQUALS}"
    rf"""(?:{_has_word("nofollow", '"')}|{_has_word("nofollow", "'")}|nofollow(?=[{SPACE}>]))"""
)

_HERE = f'[{SPACE}]++(?:class="[^"]*+"[{SPACE}]++)?href="#[^">]*+"'
"""Half of the links of documentation lead to a part of the same page."""

_NO_END_TAG = "(?!/(?!svg))"
_NOT_THESE = "(?!s[empu]|[acdeou]|t[abdhr]|b[^a]|h[^t]|i[^f]|p[^l]|l[^i]|li[^n])"
"""Most tags are of no interest. To turn the commonest of them away first saves a quarter of the time."""

_OTHERS = [
    f"({_tag('link', 'meta', 'base', 'html', 'frame', 'svg', '/svg')})({_ATTRIBUTES}){_END}",
    f"{_SCRIPT_TAG}{_ATTRIBUTES}{_END}{_SCRIPT}",
    f"({_tag('title')}){_ATTRIBUTES}{_END}({_raw_text('title')})",
    f"({_tag('iframe')})({_ATTRIBUTES}){_END}{_raw_text('iframe')}",
    *[
        f"{_tag(name)}{_ATTRIBUTES}{_END}{_raw_text(name)}"
        for name in ("style", "textarea", "xmp", "noembed", "noframes")
    ],
    f"{_tag('plaintext')}(?s:.*+)",
    f"!(?:{_COMMENT}|[^>]*+)",
    r"\?[^>]*+",
]

_AROUND_ANOTHER = f"(?=[a-z][^<>]*+<){_ATTRIBUTES}{_END}"
"""A tag in whose attributes a `<` stands is passed over as a whole, since what begins there is no tag."""


def _tags_where(followed: str) -> Any:
    """The expression for the tags, and the hrefs of links that are `followed`. A link has no name; one that the page leaves
    open, or that is not followed, has no content either."""
    link = f"{_tag('a', 'area')}(?!{_HERE})(?|(){followed}{_HREF}{_ATTRIBUTES}>|{_ATTRIBUTES}{_END})"
    return pcre2.compile(f"(?i)<{_NO_END_TAG}(?|{_NOT_THESE}(?|{'|'.join(_OTHERS)})|{link}|{_AROUND_ANOTHER})".encode())


_TAGS = _tags_where("")
_FOLLOWED = _tags_where(f"(?!{_SAYS_NOFOLLOW})")
_TOLD = b"$1\0$2\0"
"""Name and content of a match, with a NUL after each."""
_ALL_AND_NOTHING_ELSE = int(
    _cy.SubstituteOption.GLOBAL | _cy.SubstituteOption.UNSET_EMPTY | _cy.SubstituteOption.REPLACEMENT_ONLY
)


def _found_in(page: bytes, obey_nofollow: bool) -> bytes:
    """What the expression's `sub` would put in the place of the tags, without the text between them, which takes a third of
    the time and which the public call cannot leave out."""
    tags = _FOLLOWED if obey_nofollow else _TAGS
    told: bytes
    told, _ = _cy.substitute(tags._pcre2_code, _TOLD, page, 0, options=_ALL_AND_NOTHING_ELSE)
    return told


_TOLD_OF_TREE = frozenset({"link", "meta", "base", "html", "frame", "iframe"})
_HIGH = 0xF700
"""Bytes beyond ASCII are private-use characters in the tree, so that they differ from what references stand for."""
_AS_CHARACTERS = {byte: chr(_HIGH + byte) for byte in range(0x80, 0x100)}


def _found_in_tree(page: bytes, obey_nofollow: bool) -> bytes:
    """As `_found_in`, from the tree of the page: for what the expression cannot tell."""
    told: list[bytes] = []
    for element in parse_text(page.decode("latin-1").translate(_AS_CHARACTERS)).iter_elements():
        if element.tag in ("a", "area"):
            href = element.attr("href")
            if href and not href.startswith("#") and not (obey_nofollow and _says_nofollow(element)):
                told += b"", _written(href.partition("#")[0])
        elif element.tag == "title" and element.namespace is Namespace.HTML:
            told += b"title", _written(element.text)
        elif element.tag in _TOLD_OF_TREE:
            told += element.tag.encode(), b" ".join(_attributes_of(element))
    return b"".join(b"%b\0" % part for part in told)


def _says_nofollow(element: Element) -> bool:
    return "nofollow" in (element.attr("rel") or "").lower().split()


def _attributes_of(element: Element) -> Iterator[bytes]:
    for name in element.attrs:
        yield b'%b="%b"' % (name.encode("latin-1", "replace"), _written(element.attr(name) or ""))


def _written(text: str) -> bytes:
    """`text` of the tree as it may stand in the page, between quotation marks."""
    escaped = restored(text).replace("&", "&amp;").replace('"', "&quot;").translate(_AS_BYTES)
    return escaped.encode("latin-1")


class _AsBytes(dict[int, str]):
    """For `str.translate`: bytes beyond ASCII as they were, references for characters beyond ASCII."""

    def __missing__(self, code: int) -> str:
        found = chr(code) if code < 0x80 else chr(code - _HIGH) if 0x80 <= code - _HIGH < 0x100 else f"&#{code};"
        self[code] = found
        return found


_AS_BYTES = _AsBytes()
