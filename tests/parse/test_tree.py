"""Every document is parsed by `crawler.parse.tree`, which takes time and memory in proportion to its size."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from crawler.parse.tags import scan_tree
from crawler.parse.tree import parse, parse_text, restored, text_of
from tests.fuzz.scaling import resident_growth

ROOT = Path(__file__).parents[2]
MOST_S = 0.5
MOST_BYTES = 64 << 20


def roots(name: str, count: int) -> bytes:
    return b"".join(b"<%b a%d>" % (name.encode(), number) for number in range(count))


@pytest.mark.parametrize("name", ["html", "BODY", "body/x"])
def test_many_roots_take_little_time_and_memory(name: str) -> None:
    """Their attributes are added to those of the first (HTML 13.2.6.4.7). 190 KB of them took 7 s and 4 GB."""
    page = b"\0" + roots(name, 4_000)
    for encoded, charset in ((page, "utf-8"), (page.decode().encode("utf-16le"), "utf-16le")):
        began = time.process_time()
        assert resident_growth(lambda: parse(encoded, charset)) < MOST_BYTES  # noqa: B023
        assert resident_growth(lambda: scan_tree(page)) < MOST_BYTES
        assert time.process_time() - began < MOST_S


@pytest.mark.parametrize("start", ["", "<body x='>' ", "\0"])
def test_two_roots_of_many_attributes_take_little_time(start: str) -> None:
    """400 KB of them took 2 s."""
    first, second = ("".join(f" {name}{number}" for number in range(20_000)) for name in "ab")
    page = f"{start}<body{first}><body{second}><p lang=en>text".encode()
    began = time.process_time()
    document = parse(page, "utf-8")
    assert time.process_time() - began < MOST_S
    assert document.to_text() == "text"


def test_roots_are_found_where_an_encoding_hides_them() -> None:
    """In ISO-2022-JP, an escape sequence may be anywhere within a tag."""
    hidden = roots("html", 100).replace(b"<ht", b"<h\x1b(Bt")
    assert len(parse(hidden, "iso-2022-jp").root.attrs) < 10  # type: ignore[union-attr]


def test_the_first_roots_keep_their_attributes() -> None:
    document = parse_text("<html lang=en><body class=x>" + "<html a>" * 50 + "<p>text</p><a href=/x>")
    body = document.select_one("body")
    assert document.root is not None and body is not None
    assert (document.root.attr("lang"), body.attr("class"), document.to_text()) == ("en", "x", "text")
    assert [found.attr("href") for found in document.select("a")] == ["/x"]


@pytest.mark.parametrize("body", ["", " " * 9_000 + "<br>" * 5_000])
def test_what_a_shadow_root_shows_is_part_of_the_page(body: str) -> None:
    inner = "<x-b><template shadowrootmode=closed><p>within</p><img src=i.png></template></x-b>"
    page = f"<x-a><template shadowrootmode=open><h2>Title</h2>{inner}<slot></slot></template>light</x-a>{body}"
    document = parse((page + "<template><i>no text</i></template>").encode(), "utf-8")
    assert text_of(document).split()[:3] == ["Title", "within", "light"]
    assert "no text" not in text_of(document)
    assert [found.attr("src") for found in document.select("x-a > x-b > img")] == ["i.png"]


def test_shadow_roots_are_found_however_they_are_written() -> None:
    page = "<x-a><TEMPLATE SHADOWROOTMODE=open><p>within</TEMPLATE>light</x-a>"
    for encoding in ("ascii", "utf-16le", "utf-16be"):
        assert text_of(parse(page.encode(encoding), encoding)).split() == ["within", "light"]


def test_many_shadow_roots_take_little_time() -> None:
    for page in ("<p><template shadowrootmode=open>" * 20_000, "<template shadowrootmode=open>" + "<p>x" * 100_000):
        began = time.process_time()
        parse(page.encode(), "utf-8")
        assert time.process_time() - began < 4 * MOST_S


def test_roots_that_are_no_tags_are_restored() -> None:
    page = '<script>"<html a>"</script><textarea><BODY\n></textarea>' * 20
    document = parse_text(page)
    assert {restored(script.text) for script in document.select("script")} == {'"<html a>"'}
    assert {restored(area.text) for area in document.select("textarea")} == {"<BODY\n>"}


OPEN = "".join(f"<b a{number}>" for number in range(1_000))
PARAGRAPHS = "<p>x" * 1_000
MULTIPLIED = {
    "by paragraphs": "<p>" + OPEN + PARAGRAPHS,
    "by paragraphs that close one": "<p>" + OPEN + "<p>x</b>" * 1_000,
    "by cells": "<table><tr><td>" + OPEN + PARAGRAPHS,
    "with end tags that are none": "<p>" + OPEN.replace(">", """ x=">y</b>">""") + PARAGRAPHS,
    "with end tags that close others": "<p>" + OPEN.replace(">", "><object></b></object>") + PARAGRAPHS,
    "alike up to the first bracket": "<p>" + OPEN.replace(" a", """ x='>'""") + PARAGRAPHS,
    "alike": "<p>" + "<b><i><u><tt><em><big><code><font><small><strike><strong>" * 50 + PARAGRAPHS,
}


@pytest.mark.parametrize("name", MULTIPLIED)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16le"])
def test_open_formatting_elements_do_not_multiply(name: str, encoding: str) -> None:
    """25 KB of the first made a million elements."""
    page = MULTIPLIED[name]
    elements = len(parse(page.encode(encoding), encoding).select("*"))
    assert elements < 16_000 + 3 * page.count("<")


def test_formatting_elements_that_are_closed_keep_their_names() -> None:
    closed = "".join(
        f"<font color=c{number}>x</font><B a='{number}'>y <a href=/{number}>z</a><br></b\n><i a{number}><p>open"
        for number in range(3_000)
    )
    document = parse(closed.encode(), "utf-8")
    assert [len(document.select(name)) for name in ("font", "b", "i", "span", "a")] == [3_000, 3_000, 0, 3_000, 3_000]


HARMLESS = {
    *("turbohtml", "detect", "query", "unescape", "Detection", "Namespace", "Markdown"),
    *("Document", "DocumentFragment", "Element", "Node", "Text"),
}
"""What other modules may use of the library: nothing that builds a tree."""


def test_no_other_module_parses_a_document() -> None:
    found = {
        f"{path.name}: {name}"
        for room in ("crawler", "frontier", "politeness")
        for path in (ROOT / room).rglob("*.py")
        if path != ROOT / "crawler" / "parse" / "tree.py"
        for name in used_of_the_library(ast.parse(path.read_text())) - HARMLESS
    }
    assert found == set()


def used_of_the_library(module: ast.Module) -> set[str]:
    """The names that `module` uses of turbohtml. A call of `parse` with a constant is left out: it reads no document."""
    used, harmless = set(), set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turbohtml"):
            used |= {name.name for name in node.names}
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            harmless.add(node.func)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "turbohtml":
            used |= {node.attr} if node not in harmless else set()
    return used


def test_a_module_that_parses_a_document_is_noticed() -> None:
    source = "import turbohtml\nfrom turbohtml import parse_fragment\nturbohtml.parse(b'')\nturbohtml.parse_xml(body)"
    assert used_of_the_library(ast.parse(source)) == {"parse_fragment", "parse_xml"}


@pytest.mark.parametrize("head", [b"", b"<!-- " + b"x" * 10_000 + b" --><meta charset=utf-8>"])
def test_a_page_with_many_formatting_elements_is_decoded_like_others(head: bytes) -> None:
    body = head + "<p><i><b>Größe</b>".encode() * 300
    assert "Größe" in parse(body, None).text
