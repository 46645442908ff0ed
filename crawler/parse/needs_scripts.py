"""Tells from what a server has sent whether a page needs its scripts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING, Literal

from xxhash import xxh3_64_intdigest

from crawler.parse.tags import INLINE_TREE
from crawler.parse.tree import parse

if TYPE_CHECKING:
    from turbohtml import Document

Need = Literal["no", "yes", "ask"]

MAX_SCRIPT = 1 << 20
"""Bytes of a script that are read for its words."""

_LINKS = 20
"""Links from which on a page is no empty one."""

_EMPTY, _EMPTY_LINKS = 200, 3
"""Characters and links of a page below which it has nothing to say."""

_ROOT_TEXT = 1_000
"""Characters beside an empty root below which the root was meant to have the text."""

_ASKING_TEXT, _ASKING_LINKS = 700, 10
"""Characters and links of a page below which a sentence that asks for JavaScript speaks of the whole page."""

_DIGITS = b"0123456789"
_LOADING = 30  # characters of "Loading..." in an empty root
_HAS_SCRIPT = re.compile(rb"<script\b", re.IGNORECASE)
_SCRIPT_FILE = re.compile(
    rb"<script\b[^<>]*?\ssrc\s*=\s*[\"']?([^\"'\s>?#]+)"
)  # ignoring case would take 50 times as long
_EMPTY_PLACE = re.compile(
    rb"<(div|ul|ol|dl|table|tbody|section|main|[a-z]++-[a-z-]++)\b([^<>]*+)>\s*+(?:loading[^<]{0,20})?</\1\s*+>",
    re.IGNORECASE,
)
_NAMES = re.compile(rb"(?<![\w-])(?:id|class|data-[a-z-]++)\s*+=\s*+(\"[^\"]*+|'[^']*+|[^\"'\s>]++)")
_WORD = re.compile(rb"[A-Za-z][A-Za-z_-]{2,39}")
_CALL = re.compile(rb"\b([A-Za-z_$][\w$.]{2,39})\(")
_QUOTED = re.compile(rb"[\"'`]([^\"'`\n]{3,80})[\"'`]")
_ASK_FOR_DATA = (b"fetch(", b"XMLHttpRequest", b".ajax(", b"getJSON(", b"axios")
_EXECUTABLE = re.compile(r"(?:text|application)/(?:javascript|ecmascript|babel|jsx)|module|", re.IGNORECASE)
_ROOTS = "#root, #app, #__next, #__nuxt, #___gatsby, #svelte, #q-app, #application, #main-app, #react-root, #swagger-ui"
_NO_TEXT = "script, style, noscript, template, svg, head"
_ASKS = re.compile(
    r"(?:enable|activate|turn on|activer|aktivieren|activar|habilit\w{1,9}+|включит\w{1,9}+|有効|启用|啟用)"
    r"\W{0,12}(?:\w{1,20}\W{1,6}){0,3}java\s?script"
    r"|java\s?script\W{0,12}(?:\w{1,20}\W{1,6}){0,4}(?:required|disabled|enabled|deaktiviert|désactivé|activado|無効)"
    r"|(?:requires?|needs?|without)\W{1,6}(?:\w{1,20}\W{1,6}){0,3}java\s?script",
    re.IGNORECASE,
)
"""A sentence that asks for JavaScript, in seven languages."""


def needs_scripts(body: bytes, charset: str | None, links: int) -> Need:
    """Whether a browser shows more of the HTML document `body` than it says itself. `links`: how many it has. `no`: it has
    no script. `yes`: it is the shell of an application, or asks for JavaScript and has little else. `ask`: only rendering
    tells; so for large pages, which are not looked at."""
    if not _HAS_SCRIPT.search(body):
        return "no"
    if links >= _LINKS or len(body) > INLINE_TREE:
        return "ask"
    document = parse(body, charset)
    scripts = [script.attr("type") or "" for script in document.select("script")]
    if not any(_EXECUTABLE.fullmatch(kind.partition(";")[0].strip()) for kind in scripts):
        return "no"
    asking = " ".join(part.text for part in document.select("noscript"))
    refreshes = document.select_one("meta[http-equiv=refresh i]") is not None
    text = _shown_text(document)
    has_empty_root = any(
        len(_text(part.text)) <= _LOADING and not part.select_one("a[href]") for part in document.select(_ROOTS)
    )
    if not has_empty_root and len(text) < _ROOT_TEXT:  # custom elements, such as app-root
        has_empty_root = any("-" in part.tag and not _text(part.text) for part in document.select("body > *"))
    if has_empty_root and len(text) < _ROOT_TEXT:
        return "yes"
    if len(text) < _ASKING_TEXT and links < _ASKING_LINKS and (_ASKS.search(asking) or _ASKS.search(text)):
        return "yes"
    return "yes" if len(text) < _EMPTY and links < _EMPTY_LINKS and not refreshes else "ask"


def traits_of(body: bytes, url: str, named: Set[bytes]) -> frozenset[int]:
    """What tells the scripts of the HTML document `body` at `url` from those of others: their files, what they call,
    whether they ask for data, the empty elements that they may fill, such as that of a list, and the names of elements and
    parts of the URL that are among the words `named` by them (`quoted_words`). Without numbers."""
    body = body[:INLINE_TREE].translate(None, _DIGITS)
    tags = (part.partition(b">") for part in body.split(b"<script")[1:])
    inline = b"".join(rest.partition(b"</script")[0] for tag, _, rest in tags if b"json" not in tag)
    names = {name.rpartition(b"/")[2] for name in _SCRIPT_FILE.findall(body)}
    names |= {
        b":".join((place[1], *_WORD.findall(b"".join(_NAMES.findall(place[2])[:1]))[:1]))
        for place in _EMPTY_PLACE.finditer(body)
    }
    names |= {b"()" + name for name in _CALL.findall(inline)}
    names |= {word for word in _ASK_FOR_DATA if word in body}
    words = set(_WORD.findall(b" ".join((url.encode(), *_NAMES.findall(body)))))
    return frozenset(map(_trait, names | {b"." + word for word in words & (named | quoted_words(inline))}))


def quoted_words(script: bytes) -> set[bytes]:
    """The words in quotes in `script`, such as names of elements and paths, without numbers."""
    script = script[:MAX_SCRIPT].translate(None, _DIGITS)
    return {word for text in _QUOTED.findall(script) for word in _WORD.findall(text)}


def data_traits(urls: Iterable[str]) -> frozenset[int]:
    """The traits of a page whose scripts ask for the data at `urls`."""
    return frozenset(_trait(url.encode()) for url in urls)


def _trait(name: bytes) -> int:
    return xxh3_64_intdigest(name) >> 40  # 24 bits tell a hundred traits apart, and are short in a lease


def count_words(body: bytes, charset: str | None) -> int | None:
    """The number of words that the HTML document `body` shows; None for a large one, which is not looked at."""
    if len(body) > INLINE_TREE:
        return None
    return len(_shown_text(parse(body, charset)).split())


def _shown_text(document: Document) -> str:
    """The text of `document`, from which all that is not shown is removed."""
    for part in document.select(_NO_TEXT):
        part.decompose()
    return _text(document.root.text) if document.root is not None else ""


def _text(text: str) -> str:
    return " ".join(text.split())
