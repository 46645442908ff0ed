"""Generates the HTML of a page from its data."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from random import Random

from crawler.simweb.features import Charset
from crawler.simweb.links import PlacedLink
from crawler.simweb.resource import Markup, Resource

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PARAGRAPHS = 64
_PARAGRAPH_BYTES = 500

# Text that looks like a link but is none. The judge reports a crawler that requests one of these.
_DECOYS = """
<!-- <a href="/decoy/comment">old</a> -->
<script>document.write('<a href="/decoy/script">x</a>');</script>
<style>body { background: url(/decoy/style.png) }</style>
<textarea><a href="/decoy/textarea">x</a></textarea>
<img src="/decoy/logo.png" alt=""><script src="/decoy/app.js"></script>
<link rel="stylesheet" href="/decoy/site.css">
<a name="part-2"></a><a href="#part-2">down</a><a href="mailto:editor@d00000.test">mail</a>
<a href="javascript:void(0)">nothing</a><a href="tel:+491234">call</a><a href="data:text/html,x">data</a>
<a href="http://[bad/">broken</a>
"""


def html(resource: Resource) -> bytes:
    """The page in its encoding. Characters that it cannot represent become character references."""
    markup = resource.markup or Markup()
    text = "".join((_head(markup, resource.charset), _body(markup, resource.links)))
    body = text.encode(resource.charset.encoding, errors="xmlcharrefreplace")
    return b"\xef\xbb\xbf" + body if resource.charset is Charset.UTF8_BOM else body


def _head(markup: Markup, charset: Charset) -> str:
    """<meta charset> comes first, because it must be within the first 1,024 bytes (HTML, section 4.2.5.4)."""
    return "".join(
        (
            '<?xml version="1.0"?>\n' if markup.prolog else "",
            '<!doctype html>\n<html lang="en"><head>\n',
            f'<meta charset="{charset.encoding}">\n' if charset.value.endswith("/meta") else "",
            f"<title>{escape(markup.title)}</title>\n",
            f'<base href="{markup.base}">\n' if markup.base else "",
            f'<link rel="canonical" href="{escape(markup.canonical)}">\n' if markup.canonical else "",
            f'<meta name="robots" content="{markup.meta_robots}">\n' if markup.meta_robots else "",
            "</head><body>\n",
        )
    )


def _body(markup: Markup, links: tuple[PlacedLink, ...]) -> str:
    """Puts a paragraph of filler between every two links while it lasts, and the rest at the end."""
    paragraphs = _filler(markup.size, markup.offset)
    parts = [f"<h1>{escape(markup.title)}</h1>\n", markup.article, _DECOYS if markup.decoys else ""]
    for index, link in enumerate(links):
        rel = ' rel="noopener nofollow"' if link.nofollow else ""
        parts.append(f'<a href="{link.href.replace("&", "&amp;")}"{rel}>link {index}</a>\n')
        if index < len(paragraphs):
            parts.append(paragraphs[index])
    parts.extend(paragraphs[len(links) :])
    parts.append("</body></html>\n")
    return "".join(parts)


def _filler(size: int, offset: int) -> list[str]:
    paragraphs = _paragraphs()
    return [paragraphs[(offset + n) % _PARAGRAPHS] for n in range(size // _PARAGRAPH_BYTES)]


@lru_cache(maxsize=1)
def _paragraphs() -> tuple[str, ...]:
    """ASCII words that compress about as well as prose."""
    rng = Random(4)
    words = ["".join(rng.choices(_LETTERS, k=rng.randint(2, 9))) for _ in range(800)]
    return tuple(
        f"<p>{' '.join(rng.choices(words, k=120))}"[: _PARAGRAPH_BYTES - 5] + "</p>\n" for _ in range(_PARAGRAPHS)
    )
