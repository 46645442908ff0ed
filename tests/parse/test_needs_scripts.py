"""Which pages need their scripts: shells of applications as their tools write them, and pages that say all themselves."""

from __future__ import annotations

import time

import pytest

from crawler.parse.needs_scripts import Need, count_words, needs_scripts, quoted_words, traits_of

SCRIPT = "<script src=/assets/index.js></script>"
PROSE = "<p>" + "The office is open from nine to five on weekdays. " * 30
ASKS = "<noscript>You need to enable JavaScript to run this app.</noscript>"

PAGES: list[tuple[Need, str]] = [
    ("yes", f"<body><div id=root></div>{SCRIPT}"),  # Vite with React
    ("yes", f"<body>{ASKS}<div id=root></div>"),  # Create React App, whose script is in the head
    ("yes", "<body><div id=app></div><script type=module src=/src/main.js></script>"),  # Vite with Vue, Svelte, Solid
    ("yes", "<body><app-root></app-root><script src=main.js type=module></script>"),  # Angular
    ("yes", f"<body><div id=app>Loading...</div>{SCRIPT}"),
    ("yes", f"<body><redoc spec-url=/openapi.json></redoc>{SCRIPT}"),
    ("yes", f"<body><my-app></my-app>{SCRIPT}"),  # Lit, Polymer
    ("yes", f"<body><div id=swagger-ui></div>{SCRIPT}"),
    ("yes", f"<body><p>Bitte aktivieren Sie JavaScript, um diese Seite zu sehen.{SCRIPT}"),
    ("yes", f"<body><p>この機能を使うには JavaScript を有効にしてください。{SCRIPT}"),
    ("no", "<body><div id=root></div>"),
    ("no", '<body><p>Recipe<script type="application/ld+json">{}</script>'),
    ("no", "<body><p>Short<script type='text/template'><p>no</script>"),
    ("ask", f"<body>{PROSE}{SCRIPT}"),
    ("ask", f"<body><div id=root>{PROSE}</div>{SCRIPT}"),  # the server has rendered it
    ("ask", f"<body>{PROSE}{ASKS}{SCRIPT}"),
    ("ask", f"<head><meta http-equiv=refresh content='0; url=/en/'></head><body>{SCRIPT}"),
]


@pytest.mark.parametrize(("need", "page"), PAGES)
def test_pages_that_need_their_scripts_are_told_from_others(need: Need, page: str) -> None:
    if page.startswith(f"<body>{ASKS}<div id=root></div>"):
        page = f"<head><script defer src=/static/js/main.js></script></head>{page}"
    assert needs_scripts(page.encode(), "utf-8", 0) == need


def test_pages_with_many_links_and_large_pages_are_not_looked_at() -> None:
    shell = f"<body><div id=root></div>{SCRIPT}".encode()
    assert needs_scripts(shell, None, 20) == "ask"
    assert needs_scripts(shell + b" " * 200_000, None, 0) == "ask"
    assert count_words(b" " * 200_000, None) is None


def test_only_words_that_are_shown_count() -> None:
    assert (
        count_words(b"<title>a b</title><style>c</style><p>d e</p><script>f</script><noscript>g</noscript>", None) == 2
    )


def traits(page: bytes, url: str = "https://a.test/doc/1", named: bytes = b"") -> frozenset[int]:
    return traits_of(page, url, quoted_words(named))


def test_pages_have_the_same_traits_if_what_their_scripts_look_for_is_the_same() -> None:
    page = b"<script src='/a/theme.js?v=1'></script><p>One<script>var x = 1; start(1)</script>"
    known = traits(page)
    assert known == traits(b"<script defer src=../theme.js></script><p>Two<script>var x = 2; start(2)</script>")
    place = page + b"<div class=box id='list-1'> Loading... </div >"
    own = [b"<script src=list.js></script>", b"<script>fetch('/list.json')</script>", b"<script>showList()</script>"]
    for more in (*(page + one for one in own), place, page + b"<div class=toc></div>"):
        assert known < traits(more)
    assert traits(place) == traits(page + b"<div class=box id='list-2'></div>")
    assert known == traits(page + b"<div id=text class='page list'>Text</div>")


@pytest.mark.parametrize(
    ("script", "of_list"),
    [
        (b"if (document.querySelector('body.list-page')) load()", b"<body class='wide list-page'>"),
        (b'$("#items-7 > p").html(all)', b"<section id=items-9>One</section>"),
        (b"switch (document.body.dataset.kind) { case `catalog`: load() }", b"<body data-kind=catalog>"),
    ],
)
def test_what_scripts_name_is_a_trait_of_the_pages_that_have_it(script: bytes, of_list: bytes) -> None:
    page = b"<script src=/site.js></script><p class=text>One"
    assert traits(page, named=script) == traits(page) == traits(page + of_list)
    assert traits(page, named=script) < traits(page + of_list, named=script)


def test_parts_of_the_url_that_scripts_name_are_traits() -> None:
    page, script = b"<script src=/site.js></script><p>One", b"if (location.pathname.startsWith('/list/')) load()"
    assert traits(page, named=script) < traits(page, "https://a.test/list/1", script)


def test_long_words_and_names_take_little_time() -> None:
    began = time.process_time()
    asking = f"<script></script><body><noscript>{'habilit' * 20_000}</noscript>".encode()
    assert needs_scripts(asking, "utf-8", 0) == "yes"
    for hostile in (
        b"<div " + b"data-" * 30_000 + b"></div>",
        *(part * 20_000 for part in (b"<script>", b'<p id="', b"$x(`")),
    ):
        traits(hostile)
        quoted_words(hostile)
    assert time.process_time() - began < 1
