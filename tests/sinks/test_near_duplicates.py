"""Near-duplicates and soft 404s: which pages are marked or dropped, and which are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from crawler.page import Content, Page
from crawler.parse.html import ExtractPolicy, extract
from crawler.parse.text import content_of
from crawler.scope.next_visit import Visits
from crawler.sinks.near_duplicates import Likeness
from tests.sinks import readers
from tests.sinks.values import archiving, exchange, page

DJANGO = Path("/usr/share/doc/python-django-doc/html/releases")
POSTGRES = Path("/usr/share/doc/postgresql-doc-15/html")


def html_page(name: str, body: bytes, **more: Any) -> Page:
    """The page that a crawl makes of `body`."""
    made = exchange(name, body, **more)
    found = extract(body, made.url, "text/html", ExtractPolicy())
    return page(made, title=found.title, content_type="text/html", charset=found.charset)


def words(count: int, first: int = 0) -> str:
    return " ".join(f"word{number}" for number in range(first, first + count))


def text_page(name: str, text: str, title: str = "A page") -> Page:
    return html_page(name, f"<!doctype html><title>{title}</title><main><p>{text}</p></main>".encode())


def judged(likeness: Likeness, one: Page, is_settled: bool = True) -> Content:
    said = likeness.judge(one, content_of(one, "off", structured=False, judged=True, error_pages=True))
    if is_settled:
        likeness.confirm()
    return said


# Near copies


@pytest.fixture(scope="module")
def documentation() -> None:
    """Debian's documentation packages."""
    if DJANGO.exists() and POSTGRES.exists():
        return
    if os.environ.get("CI"):
        raise RuntimeError("CI must install the documentation packages; see .ci/run")
    pytest.skip("needs python-django-doc and postgresql-doc-15")


@pytest.mark.usefixtures("documentation")
def test_real_pages_that_differ_in_a_version_are_near_copies() -> None:
    """Django releases security fixes for several versions at once, with release notes that differ in the number."""
    likeness = Likeness("mark", "off", 1_000)
    notes = [html_page(f"{path.name}", path.read_bytes()) for path in sorted(DJANGO.glob("*.html"))]
    found = {one.url.rpartition("/")[2]: judged(likeness, one).near_of for one in notes}
    marked = {name: near.rpartition("/")[2] for name, near in found.items() if near}
    assert marked["2.2.8.html"] == "2.1.15.html"
    assert marked["1.7.10.html"] == "1.4.22.html"
    assert "1.2.5.html" not in marked  # it has a paragraph of 1.1.4 and much of its own
    assert not {"3.0.html", "3.1.html", "4.0.html", "index.html", "security.html"} & set(marked)


@pytest.mark.usefixtures("documentation")
def test_real_pages_that_only_look_alike_are_none() -> None:
    """A thousand pages of one template, many of them tables with the same headings."""
    likeness = Likeness("mark", "mark", 10_000)
    pages = [html_page(path.name, path.read_bytes()) for path in sorted(POSTGRES.glob("*.html"))]
    verdicts = [judged(likeness, one) for one in pages]
    assert len(verdicts) > 1_000
    assert [(said.near_of, said.soft_404) for said in verdicts] == [(None, False)] * len(verdicts)


def test_a_page_is_compared_with_those_of_its_own_group_and_of_earlier_ones() -> None:
    likeness = Likeness("mark", "off", 100)
    first = judged(likeness, text_page("first", words(5_000)), is_settled=False)
    second = judged(likeness, text_page("second", words(5_000) + " changed"))
    third = judged(likeness, text_page("third", words(5_000) + " again"))
    other = judged(likeness, text_page("other", words(5_000, first=5_000)))
    assert [said.near_of for said in (first, second, third, other)] == [
        None,
        "https://site.test/first",
        "https://site.test/first",
        None,
    ]


@pytest.mark.parametrize(
    ("said", "is_original"),
    [
        ({}, True),
        ({"noindex": True}, False),
        ({"canonical": "https://site.test/now"}, False),
        ({"canonical": "http://www.site.test/old/"}, True),
    ],
)
def test_an_old_version_that_is_found_first_is_not_the_original(said: dict[str, Any], is_original: bool) -> None:
    likeness = Likeness("drop", "off", 100)
    old = msgspec.structs.replace(text_page("old", words(5_000)), **said)
    assert judged(likeness, old).near_of is None
    now = judged(likeness, text_page("now", words(5_000)))
    assert (now.near_of, now.is_dropped) == ("https://site.test/old" if is_original else None, is_original)


def test_no_page_is_a_copy_of_one_that_was_not_written() -> None:
    """After a full disk, the group may be written again, or never."""
    likeness = Likeness("mark", "off", 100)
    assert judged(likeness, text_page("one", words(5_000)), is_settled=False).near_of is None
    likeness.undo()
    assert judged(likeness, text_page("other", words(5_000))).near_of is None
    assert judged(likeness, text_page("one", words(5_000))).near_of == "https://site.test/other"


def test_a_page_that_is_fetched_again_is_no_copy_of_itself() -> None:
    likeness = Likeness("mark", "off", 100)
    assert [judged(likeness, text_page("one", words(5_000))).near_of for _ in range(2)] == [None, None]


@pytest.mark.parametrize("treatment", ["mark", "drop"])
async def test_a_near_copy_keeps_its_line_and_loses_its_body_if_asked(tmp_path: Path, treatment: str) -> None:
    original = text_page("original", words(5_000))
    copy = text_page("copy", words(5_000) + " more")
    async with archiving(tmp_path, near_duplicates=treatment, text="text") as sink:
        await sink.write([original, copy])
        await sink.write([replace(copy, url="https://site.test/later")])
    is_kept = treatment == "mark"
    lines = readers.lines(tmp_path)
    assert [line["near_of"] for line in lines] == [None, *["https://site.test/original"] * 2]
    assert [line["warc"] is not None for line in lines] == [True, is_kept, is_kept]
    assert [line["text"] is not None for line in lines] == [True, is_kept, is_kept]
    assert all(len(str(line["simhash"])) == 16 and line["digest"] for line in lines)


async def test_the_fingerprint_alone_marks_nothing(tmp_path: Path) -> None:
    async with archiving(tmp_path, simhash=True) as sink:
        await sink.write([text_page("a", words(5_000)), text_page("b", words(5_000)), page(None, "c")])
    a, b, c = readers.lines(tmp_path)
    assert a["simhash"] == b["simhash"] is not None
    assert (c["simhash"], b["near_of"], b["soft_404"]) == (None, None, None)


@pytest.mark.parametrize("text", ["text", "markdown", "off"])
def test_the_fingerprint_is_the_same_whatever_else_is_kept(text: Any) -> None:
    one = text_page("a", words(5_000))
    likeness = Likeness("off", "off", simhash=True)
    same = likeness.judge(one, content_of(one, "off", structured=True, judged=True)).simhash
    other = likeness.judge(one, content_of(one, text, structured=False, judged=True)).simhash
    assert same == other is not None


# Soft 404s

NGINX = (
    b"<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n<center><h1>404 Not Found</h1></center>\r\n"
    + (b"<hr><center>nginx/1.22.1</center>\r\n</body>\r\n</html>\r\n")
)
APACHE = (
    b'<!DOCTYPE HTML PUBLIC "-//IETF//DTD HTML 2.0//EN">\n<html><head>\n<title>404 Not Found</title>\n</head><body>\n'
    b"<h1>Not Found</h1>\n<p>The requested URL was not found on this server.</p>\n<hr>\n</body></html>\n"
)
TITLES = [
    "Page not found – My Blog",
    "404: This page could not be found.",
    "Error 404 (Not Found)!!1",
    "HTTP Status 404 – Not Found",
    "404",
    "Oops! That page can&rsquo;t be found.",
    "We&#39;re sorry, the page you requested is no longer available",
    "This site doesn&#39;t exist",
    "Seite nicht gefunden | Firma",
    "Diese Seite existiert nicht",
    "Page introuvable - Société",
    "Página no encontrada",
    "Página não encontrada",
    "Pagina non trovata",
    "Pagina niet gevonden",
    "Strona nie została znaleziona",
    "Stránka nebyla nalezena",
    "Sidan kunde inte hittas",
    "Siden blev ikke fundet",
    "Страница не найдена",
    "Sayfa bulunamadı",
    "お探しのページは見つかりません",
    "页面不存在",
    "找不到页面",
    "페이지를 찾을 수 없습니다",
]
OTHER_TITLES = [
    "Lost and found",
    "Peugeot 404",
    "Area code 404",
    "The page size of a database",
    "Nothing else matters",
    "How to write a not-found handler",
    "NOT NULL constraints",
    "Seite 404 von 500",
    "Page 404 of the register",
]


@pytest.mark.parametrize("body", [NGINX, APACHE], ids=["nginx", "apache"])
def test_the_error_pages_of_servers_are_recognised(body: bytes) -> None:
    assert judged(Likeness("off", "mark", 0), html_page("gone", body)).soft_404 is True


@pytest.mark.parametrize("title", TITLES)
def test_a_short_page_whose_title_or_heading_says_so_is_a_soft_404(title: str) -> None:
    text = "Try our search, or go back to the home page."
    assert judged(Likeness("off", "mark", 0), text_page("gone", text, title)).soft_404 is True
    heading = f"<title>My site</title><main><h1>{title}</h1><p>{text}</p></main>".encode()
    assert judged(Likeness("off", "mark", 0), html_page("gone", b"<meta charset=utf-8>" + heading)).soft_404 is True


@pytest.mark.parametrize("title", OTHER_TITLES)
def test_a_title_with_such_words_alone_is_not_enough(title: str) -> None:
    assert judged(Likeness("off", "mark", 0), text_page("there", words(40), title)).soft_404 is False


def test_a_long_page_about_the_error_is_none() -> None:
    assert judged(Likeness("off", "mark", 0), text_page("http-404", words(400), "404 Not Found")).soft_404 is False


def test_a_page_that_equals_the_domains_own_error_page_is_one() -> None:
    """In any language. Most such pages repeat the requested URL."""
    likeness = Likeness("off", "mark", 0)
    text = f"Nie ma tu nic: /{{}} {words(30)}"

    def answer(name: str, status: int) -> Page:
        return html_page(name, f"<title>Sklep</title><main><p>{text.format(name)}</p></main>".encode(), status=status)

    assert judged(likeness, answer("a", 200)).soft_404 is False  # nothing known yet
    judged(likeness, answer("b", 404))
    assert judged(likeness, answer("c", 200)).soft_404 is True
    elsewhere = replace(answer("d", 200), domain="other.test")
    assert judged(likeness, elsewhere).soft_404 is False
    assert judged(likeness, text_page("e", words(30, first=30), "Sklep")).soft_404 is False


def test_a_home_page_is_never_one() -> None:
    """Some sites send their home page with status 404 for missing pages."""
    likeness = Likeness("off", "mark", 0)
    judged(likeness, html_page("gone", b"<p>Welcome to our little shop", status=404))
    assert judged(likeness, html_page("", b"<p>Welcome to our little shop")).soft_404 is False


async def test_a_soft_404_loses_its_body_if_asked_and_a_real_one_is_kept(tmp_path: Path) -> None:
    async with archiving(tmp_path, soft_404="drop") as sink:
        alike = text_page("alike", words(50), "Why is my item not found?")
        await sink.write(
            [html_page("hard", NGINX, status=404), html_page("soft", NGINX), alike, text_page("page", words(40))]
        )
    lines = readers.lines(tmp_path)
    assert [line["soft_404"] for line in lines] == [None, True, True, False]
    assert [line["warc"] is not None for line in lines] == [True, False, True, True]


def table_page(name: str, rows: str, status: int = 200) -> Page:
    footer = f"<footer><p>Example Ltd. {words(40)}</p></footer>"
    return html_page(name, f"<title>Shop</title><main><h1>Prices</h1>{rows}</main>{footer}".encode(), status=status)


def test_pages_of_tables_with_one_footer_are_neither_copies_nor_error_pages() -> None:
    """The main text was the paragraph of the footer."""
    likeness = Likeness("drop", "drop", 100)
    judged(likeness, table_page("missing", "Oops", status=404))
    tables = [
        table_page(f"{page}", "".join(f"<tr><td>Item {page}-{row}<td>{page * row} EUR" for row in range(20)))
        for page in range(1, 9)
    ]
    found = [judged(likeness, one) for one in tables]
    assert [(said.near_of, said.soft_404, said.is_dropped) for said in found] == [(None, False, False)] * 8
    assert judged(likeness, table_page("later", "Oops")).soft_404


def test_pages_of_their_own_title_or_heading_are_not_dropped() -> None:
    """Six screws with the same terms of delivery, and an application whose server knows only titles."""
    likeness = Likeness("drop", "drop", 100)
    terms = f"<p>{words(400)}</p>"
    screws = [
        html_page(f"screw{size}", f"<title>Shop</title><article><h1>M{size}</h1>{terms}</article>".encode())
        for size in range(1, 7)
    ]
    shells = [text_page(f"shell{number}", words(60, 9_000), f"Lamp {number}") for number in range(3)]
    judged(likeness, html_page("gone", shells[0].shown.body.replace(b"Lamp 0", b"Shop"), status=404))
    found = [judged(likeness, one) for one in (*screws, *shells)]
    assert not any(said.is_dropped for said in found)
    assert all(said.near_of for said in (*found[1:6], *found[7:]))
    assert judged(likeness, replace(screws[2], url="https://site.test/copy")).near_of == "https://site.test/screw3"
    assert judged(likeness, replace(screws[2], url="https://site.test/copy2")).is_dropped
    assert judged(likeness, text_page("copy3", words(60, 9_000), "Lamp 0 https://site.test/copy3")).is_dropped


def test_a_header_of_an_article_tells_pages_apart() -> None:
    likeness = Likeness("mark", "mark", 100)
    found = [
        judged(
            likeness, html_page(name, f"<main><header><h1>{name}</h1>{price}</header><p>{words(60)}</main>".encode())
        )
        for name, price in (("oak", "Price 15.50 EUR, weight 3 kg"), ("elm", "Not on sale before the end of May"))
    ]
    assert [said.near_of for said in found] == [None, None]


def test_sold_out_products_are_not_dropped_for_their_words() -> None:
    likeness = Likeness("off", "drop", 100)

    def sold_out(name: str) -> Page:
        said = f"<h1>{name}</h1><p>Price 15.50 EUR, article {name}</p><p>{words(65)}</p>"
        return html_page(name, f"<title>Product {name} is currently not available</title><main>{said}</main>".encode())

    assert not any(judged(likeness, sold_out(f"Lamp{number}")).is_dropped for number in range(40))
    assert judged(likeness, replace(sold_out("Lamp39"), url="https://site.test/x")).is_dropped


async def test_what_was_left_out_is_asked_for_without_a_condition(tmp_path: Path) -> None:
    state = str(Visits(1.0, 1.0, validator='e"1"'))
    original, copy = (replace(text_page(name, words(5_000)), visit_state=state) for name in ("original", "copy"))
    barred = replace(text_page("barred", words(90, 6_000)), visit_state=state, noarchive=True)
    async with archiving(tmp_path, near_duplicates="drop") as sink:
        written = await sink.write([original, copy, barred])
    assert written.bodiless.keys() == {copy.url, barred.url}
    kept = [Visits.parse(str(line["visit_state"])).validator for line in readers.lines(tmp_path)]
    assert kept == ['e"1"', "", ""]
