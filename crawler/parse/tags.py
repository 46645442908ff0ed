"""Finds the few tags of a page that matter to a crawler. Pure.

One regular expression walks over the page as the tokenizer of the HTML standard does (13.2.5): it skips comments,
scripts and other raw text, quoted attribute values may contain anything, and whatever the page leaves open ends with the
page. It works on bytes, so only what is extracted needs decoding. In all encodings of the web except UTF-16 and
ISO-2022-JP, which must be transcoded first, the bytes of markup are those of ASCII.

A tokenizer alone cannot read every page: inside SVG and MathML, `<title/>` has no content and `<style>` may contain
tags. The expression skips an `svg` or `math` element that contains only drawing or formula elements. Any other one, a
frameset, a NUL, and a `base` in a page with a template are left to the tree of the page (`crawler.parse.tree`). The
expression may return a link too many, such as one in a frameset's fallback, but never one too few.

Time is linear in the size of the page: each construct is read to its end or to the end of the page, and no repetition
gives back what it matched (`++`, `*+`).

PCRE2 compiles the expression to machine code, and one substitution writes out everything that was found in the page, so no
Python code runs for what does not matter. This takes a quarter of the time of building a tree. It also extracts the hrefs
of links.
"""

from __future__ import annotations

import codecs
import itertools
import re
from functools import cache
from operator import not_
from typing import Any

import msgspec
import pcre2  # type: ignore[import-untyped]
from pcre2 import _cy

from crawler.parse.markup import ANY_VALUE, EQUALS, NAME, SPACE
from crawler.parse.tree import MOST_TAGS, first_tags, parse_text, restored


class Tags(msgspec.Struct):
    """The attributes of a page's tags, as written and in order. `crawler.parse.markup` parses them.

    `hrefs`: those of `a` and `area` elements, each once, as written, up to and including the `#`, because many links of a
    page lead to parts of one other page; `unfollowed`: those that are left out, because their `rel` contains nofollow.
    `is_cut`: the page has more tags than a tree may have.
    """

    hrefs: list[bytes] = msgspec.field(default_factory=list)
    base: list[bytes] = msgspec.field(default_factory=list)
    frame: list[bytes] = msgspec.field(default_factory=list)  # and iframe
    html: list[bytes] = msgspec.field(default_factory=list)
    link: list[bytes] = msgspec.field(default_factory=list)
    meta: list[bytes] = msgspec.field(default_factory=list)
    titles: list[bytes] = msgspec.field(default_factory=list)  # their contents
    unfollowed: list[bytes] = msgspec.field(default_factory=list)
    is_cut: bool = False

    def by_name(self) -> dict[bytes, list[bytes]]:
        """The lists, by the names of their tags. That of links is not among them."""
        lists = {b"base": self.base, b"frame": self.frame, b"iframe": self.frame, b"html": self.html}
        lists |= {b"a": self.unfollowed, b"area": self.unfollowed}
        return {**lists, b"link": self.link, b"meta": self.meta, b"title": self.titles}

    def size(self) -> int:
        """Bytes in all lists, except titles, which are cut, and `unfollowed`, which is only counted. Each entry counts for
        `ENTRY` more."""
        entries = [*self.hrefs, *self.base, *self.frame, *self.html, *self.link, *self.meta]
        return len(b"".join(entries)) + ENTRY * len(entries)

    def are_many_for(self, base: str) -> bool:
        """Whether joining all references to the URL `base` would hold up the event loop: each may become as long as the
        path of `base`."""
        references = len(self.hrefs) + len(self.frame) + len(self.link) + len(self.meta)
        joined = references * len(base.partition("?")[0]) // BASE
        return joined > INLINE_TAGS // 8 and joined + self.size() > INLINE_TAGS


ENTRY = 12
"""Joining a link to the URL of its page takes up to 12 us if its host is internationalized, and 3 us otherwise. A meta
element without attributes takes a microsecond."""

BASE = 12
"""Characters of joined links that take as long as a byte of a tag: up to 80 ns each if they have to be normalised."""

INLINE_PAGE = 1024 * 1024
"""The largest page, in bytes, that is scanned inline whatever it contains. *Inline* means in the event loop, and not in the
process for documents that take long."""

INLINE_PLAIN = 3 * INLINE_PAGE
"""The largest plain page, in bytes, that is scanned there (`is_plain`)."""

INLINE_TREE = 192 * 1024
"""The largest page, in bytes, that is read in the event loop if only its tree tells its tags, or if it is XML."""

INLINE_TAGS = 48 * 1024
"""The most bytes of tags (`Tags.size`) that are parsed in the event loop. Each takes up to a microsecond."""


_MARKS = b"\t\n\f\r \"#&'-/<"
"""Every step of the expression consumes one of these bytes. All other bytes cost 1 to 2 ns each."""


_MATCHED = 7_000_000
"""Bytes that cannot contain too many tags for the expression. Of a page with too many, only so much is read."""


class TakesLong(Exception):
    """Reading a page would hold up the event loop."""


def scan(page: bytes, obey_nofollow: bool = False, is_inline: bool = False) -> Tags:
    """The tags of `page`, whose encoding must write ASCII as ASCII. `obey_nofollow`: leave out links whose `rel` contains
    nofollow. `is_inline`: raise TakesLong if the tags of this page take much more time than usual for its size."""
    tags = _scan(page, obey_nofollow, is_inline)
    if is_inline and tags.size() > INLINE_TAGS:
        raise TakesLong
    return tags


def is_plain(page: bytes) -> bool:
    """Whether scanning `page` takes no longer than the worst page of `INLINE_PAGE` bytes, by its marks and tags: a page
    that is mostly text, such as the index of a book. Starting a process for it takes thirty times as long as reading it."""
    marks = len(page) - len(page.translate(None, _MARKS)) if len(page) <= INLINE_PLAIN else len(page)
    return marks <= INLINE_PAGE // 2 and page.count(b"<") <= INLINE_PAGE // 8


def _scan(page: bytes, obey_nofollow: bool, is_inline: bool) -> Tags:
    if b"\0" not in page:  # a NUL means something else in each state of the tokenizer
        try:
            tags = _classify(_find(page, obey_nofollow))
        except pcre2.LibraryError:  # PCRE2 limits the steps of one match: 2.5 million tags without a link are too many
            if len(page) > _MATCHED:
                tags = _scan(page[:_MATCHED], obey_nofollow, is_inline)
                tags.is_cut = True
            else:  # or as many attributes of one tag
                tags = None
        if tags is not None:
            return tags
    if is_inline and len(page) > INLINE_TREE:
        raise TakesLong
    return scan_tree(page, obey_nofollow)


def _classify(found: bytes) -> Tags | None:
    """The tags in `found`; None if only the tree can tell which tags the page has."""
    pieces = found.split(b"\0")
    names, contents = pieces[:-1:2], pieces[1::2]
    tags = Tags(hrefs=list(dict.fromkeys(itertools.compress(contents, map(not_, names)))))
    templates: list[bytes] = []
    lists = tags.by_name() | {b"template": templates}
    for name, content in itertools.compress(zip(names, contents, strict=True), names):
        of_name = lists.get(name.lower())
        if of_name is None:  # svg, math, frameset
            return None
        of_name.append(content)
    return None if templates and tags.base else tags


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

_OTHER_ATTRIBUTES = f"(?:[{SPACE}/]*+(?!%s[{SPACE}/>=]){NAME}(?:{ANY_VALUE})?)*+[{SPACE}/]*+"
"""The attributes before the first one of that name, which is the one that counts."""


def _up_to_fragment(ends: str) -> str:
    """A value without the bytes `ends`, matched up to its `#`. The `#` of a character reference (`&#38;`) is not one."""
    return f"((?:[^#&{ends}]++|&#?+)*+#?+)[^{ends}]*+"


_DOUBLE, _SINGLE, _BARE = map(_up_to_fragment, ('"', "'", f"{SPACE}>"))
_HREF = rf"""{_OTHER_ATTRIBUTES % "href"}href{EQUALS}(?>(?|"{_DOUBLE}"?|'{_SINGLE}'?|{_BARE}))"""


_SKIP = "(*SKIP)(*FAIL)"
_QUOTED = f'(?:[{SPACE}]++(?![hr])[a-z-]++="[^"]*+")*+'
_COMMON_LINK = f'a{_QUOTED}[{SPACE}]++()href="(?:#[^"]*+"{_ATTRIBUTES}>{_SKIP}|{_DOUBLE}"{_QUOTED}>)'
"""Most links: all values are in double quotes, and there is neither a `rel` nor a second `href`. Half of the links of
documentation lead to a part of the same page, and are skipped."""


def _has_nofollow(quote: str) -> str:
    word = f"nofollow[{SPACE}{quote}]"
    return f"{quote}(?:[{SPACE}]*+(?!{word})[^{SPACE}{quote}]++)*+[{SPACE}]*+{word}"


_SAYS_NOFOLLOW = (
    f"{_OTHER_ATTRIBUTES % 'rel'}rel{EQUALS}"
    rf"""(?:{_has_nofollow('"')}|{_has_nofollow("'")}|nofollow(?=[{SPACE}>]))"""
)

_DRAWING = _tag(
    *("g", "path", "use", "circle", "ellipse", "rect", "line", "poly(?:gon|line)", "text", "tspan", "image", "symbol"),
    *("defs", "(?:linear|radial)gradient", "stop", "clippath", "mask", "pattern", "marker", "filter", "fe[a-z]++"),
    *(
        "animate[a-z]*+",
        "m(?:row|frac|sup|sub|subsup|over|under|underover|sqrt|root|table|tr|td|style|space|padded|fenced)",
    ),
    *("semantics",),
)
_LABEL = _tag("title", "desc", "style", "m[inos]", "mtext", "annotation")
_FOREIGN = "|".join(
    f"{name}(?=[{SPACE}>]){_ATTRIBUTES}(?<!/)>(?:[^<]++|<(?:/?{_DRAWING}{_ATTRIBUTES}>"
    f"|{_LABEL}{_ATTRIBUTES}>[^<]*+</{_LABEL}|/{_LABEL}{_ATTRIBUTES}>|!{_COMMENT}))*+</{name}>"
    for name in ("svg", "math")
)
"""An element of SVG or MathML in which all tags mean the same whether they are read as HTML or not."""

_RAW = ("style", "textarea", "xmp", "noembed", "noframes")
_SPECIAL = _tag(
    *("a", "area", "link", "meta", "base", "html", "frame", "iframe", "title", "script", "plaintext", *_RAW),
    *("svg", "math", "frameset", "template"),
)
_END_TAG = r"""/[a-z][^>"']*+>"""
_COMMON = "(?=[cdegjkoqruvwyz]|b(?!a)|f[^r]|h[^t]|i(?!f)|l(?:[^i]|i[^n])|n(?!o)|p(?!l)|s(?:[^ctv]|t[^y])|t[^ei])"
"""The beginnings of tags that are not `_SPECIAL`: one look at two letters instead of a comparison with twenty names."""
_SIMPLE_TAG = rf"""{_COMMON}[a-z](?:[a-z0-9]*+>|[^>']*+(?<=[^={SPACE}]")>)"""
"""Most tags. In one without `'`, a `"` that follows neither a `=` nor a space does not begin a value, so the next `>` ends
the tag."""
_NO_TAG = "(?![a-z/!?])"
"""Behind a `<` that begins no tag or comment. With all other expressions tried, a megabyte of them took 60 ms."""


@cache
def _tags_where(followed: str) -> Any:
    """The expression for the tags, and for the hrefs of links that are `followed`. A link has no name."""
    tag = f"[a-z][^{SPACE}/>]*+{_ATTRIBUTES}{_END}"
    skipped = [
        *[f"{_tag(name)}{_ATTRIBUTES}>{_raw_text(name)}" for name in _RAW],
        f"{_SCRIPT_TAG}{_ATTRIBUTES}>{_SCRIPT}",
        f"{_tag('plaintext')}{_ATTRIBUTES}>(?s:.*+)",
        _FOREIGN,
    ]
    alternatives = [
        _COMMON_LINK,
        f"(?!{_SPECIAL}){tag}{_SKIP}",
        f"{_tag('a', 'area')}(){followed}{_HREF}{_ATTRIBUTES}>",
        *([f"({_tag('a', 'area')})(?={_SAYS_NOFOLLOW}){_HREF}{_ATTRIBUTES}>"] if followed else []),
        f"({_tag('title')}){_ATTRIBUTES}>({_raw_text('title')})",
        f"({_tag('iframe')})({_ATTRIBUTES})>{_raw_text('iframe')}",
        f"(?:{'|'.join(skipped)}){_SKIP}",
        f"({_tag('link', 'meta', 'base', 'html', 'frame', 'svg', 'math', 'frameset', 'template')})({_ATTRIBUTES})>",
        f"(?:/?{tag}|/[^>]*+|!(?:{_COMMENT}|[^>]*+)|\\?[^>]*+)?{_SKIP}",  # a `<` alone, too: never look back into a tag
    ]
    simple = f"(?:(?:{_END_TAG}|{_SIMPLE_TAG}|{_NO_TAG})[^<]*+<)*+"
    return pcre2.compile(f"(?i)<{simple}(?|{'|'.join(alternatives)})".encode())


_IS_FOLLOWED = f"(?!{_SAYS_NOFOLLOW})"
_NAME_AND_CONTENT = b"$1\0$2\0"
_ALL_AND_NOTHING_ELSE = int(
    _cy.SubstituteOption.GLOBAL | _cy.SubstituteOption.UNSET_EMPTY | _cy.SubstituteOption.REPLACEMENT_ONLY
)


def _find(page: bytes, obey_nofollow: bool) -> bytes:
    """The names and contents of tags. The public `sub` cannot leave out the text between them, which would take a third of
    the time."""
    tags = _tags_where(_IS_FOLLOWED if obey_nofollow else "")
    found: bytes
    found, _ = _cy.substitute(tags._pcre2_code, _NAME_AND_CONTENT, page, 0, options=_ALL_AND_NOTHING_ELSE)
    return found


# What only the tree can tell

_HIGH = 0xF700
_AS_CHARACTERS = "".join(chr(byte if byte < 0x80 else _HIGH + byte) for byte in range(0x100))
"""Bytes beyond ASCII are private-use characters in the tree, which differ from the characters that references stand for."""

_AS_BYTES = codecs.charmap_build(_AS_CHARACTERS)


def scan_tree(page: bytes, obey_nofollow: bool = False) -> Tags:
    """Return what `scan` returns, from the tree of the page."""
    from turbohtml import Namespace  # noqa: PLC0415 - see `crawler.parse.tree`

    first = first_tags(page, MOST_TAGS)
    tags = Tags(is_cut=len(first) < len(page))
    lists = tags.by_name()
    text, _ = codecs.charmap_decode(first, "strict", _AS_CHARACTERS)
    for element in parse_text(text).select("a, area, base, frame, iframe, html, link, meta, title"):
        name = element.tag.encode()
        if name in (b"a", b"area"):
            href = element.attr("href") or element.attr("xlink:href")
            relations = re.split(f"[{SPACE}]+", (element.attr("rel") or "").lower())
            if href:
                before, mark, _ = href.partition("#")
                is_left_out = obey_nofollow and "nofollow" in relations
                (tags.unfollowed if is_left_out else tags.hrefs).append(_written(before + mark))
        elif element.namespace is not Namespace.HTML:
            continue
        elif name == b"title":
            tags.titles.append(_written(element.text))
        elif name in lists and not (name == b"base" and element.closest("template")):
            written = ((key.encode("ascii", "replace"), _written(element.attr(key) or "")) for key in element.attrs)
            lists[name].append(b" ".join(b'%b="%b"' % attribute for attribute in written))
    tags.hrefs[:] = dict.fromkeys(tags.hrefs)
    return tags


def _written(text: str) -> bytes:
    """`text` of the tree as it may be written in the page, between quotation marks: bytes beyond ASCII as they were, and
    character references for other characters."""
    text = restored(text).replace("&", "&amp;").replace('"', "&quot;")
    return codecs.charmap_encode(text, "xmlcharrefreplace", _AS_BYTES)[0]
