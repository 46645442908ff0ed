"""Which shapes of URLs bring nothing new."""

from __future__ import annotations

import datetime
import time
from random import Random

import pytest

from crawler.scope.shapes import LAST, LEARNT_FROM, LEAST, PUT_OFF, Shapes, put_off, shapes_of
from frontier.entries import MOST_PRIORITY, Entry

SITE = "https://a.test"
SAME = "the terms of sale are the same for all of them " * 30
ATTRIBUTES = ["<input type ", "<input type=hidden ", " data-", " data-a=", ' value="', "url("]
DAY, DAYS = datetime.date(2026, 1, 1), datetime.timedelta(days=1)


def fetch(
    shapes: Shapes, path: str, title: str = "", text: str = "", noindex: bool = False, priority: float = 0
) -> str:
    """Note a page. Returns the shape whose pages are counted."""
    body = f"<title>{title}</title><p>{text or path}".encode()
    entry = Entry(SITE + path, "a.test", priority)
    return shapes.note(entry, title, noindex, body, lambda: body).shape


def prose(seed: int, count: int = 20) -> str:
    return " ".join(str(number) for number in Random(seed).choices(range(10**6), k=count))


def league(number: int) -> str:
    """The result of a match, whose words and numbers are all on other pages, too."""
    home, guest = Random(number).sample([f"Team of {hex(team)}" for team in range(30)], k=2)
    return f"<td>{home}<td>{number % 5}<td>{number % 4}<td>{guest}"


def index_ten_pages(shapes: Shapes) -> None:
    """Let `shapes` know ten pages without noindex, so that it means something on others."""
    for number in range(10):
        fetch(shapes, f"/about/{number}", f"About {number}")


def is_put_off(shapes: Shapes, path: str) -> bool:
    return bool(shapes.puts_off(SITE + path, "a.test"))


@pytest.mark.parametrize(
    ("path", "narrow", "wide"),
    [
        ("/", "/", "/*"),
        ("/a?b=1&a=2&b=3", "/a?a&b", "/*?a&b"),
        ("/2026/11/03/title", "/0/0/...", "/0/*/..."),
        ("/wiki/Foo?action=edit", "/wiki/Foo?action", "/wiki/*?action"),
        ("/pool/main/?C=N;O=D", "/pool/main/...?C&O", "/pool/*/...?C&O"),
        ("/pool/?C=N;O=D", "/pool/?C&O", "/*/?C&O"),
        ("/(S(lit3py55t21z5v55vlm25s55))/x", "/0/x", "/0/*"),
    ],
)
def test_a_shape_is_two_segments_and_the_names_of_the_parameters(path: str, narrow: str, wide: str) -> None:
    assert shapes_of(SITE + path) == (f"a.test{narrow}", f"a.test{wide}")


@pytest.mark.parametrize("kind", ["noindex", "copies", "near duplicates"])
def test_a_shape_is_put_off_after_thirty_pages_that_bring_nothing(kind: str) -> None:
    shapes = Shapes(0.1)
    index_ten_pages(shapes)
    for number in range(LEARNT_FROM + 1):
        assert not is_put_off(shapes, "/list?sort=x")
        text = "the same" if kind == "copies" else f"{number}<p>{'much is the same in both of them' * 5}"
        title = f"Page {number}" if kind == "noindex" else "List"
        if fetch(shapes, f"/list?sort={number}", title, text, noindex=kind == "noindex"):
            break
    assert is_put_off(shapes, "/list?sort=x")
    assert not is_put_off(shapes, "/list")
    assert not is_put_off(shapes, "/other?page=x")


def test_pages_with_new_titles_or_new_texts_are_never_put_off() -> None:
    shapes, rng = Shapes(0.1), Random(1)
    for number in range(2_000):
        text = " ".join(rng.choices(["one", "two", "three", "four", "five", "six", "seven"], k=30))
        assert not fetch(shapes, f"/topic/{number}", "A forum", text)
        assert not fetch(shapes, f"/product/{number}", f"Screw {number}", "In stock.")
    assert not is_put_off(shapes, "/topic/5000")


@pytest.mark.parametrize("kind", ["text", "binary", "Chinese"])
def test_documents_without_tags_or_titles_are_never_put_off(kind: str) -> None:
    """Such as the records of an API, plain texts and images."""
    shapes, rng = Shapes(0.1), Random(1)
    for number in range(200):
        noise = rng.randbytes(3_000)
        hanzi = "".join(map(chr, rng.choices(range(0x4E00, 0x9FA5), k=500))).encode()
        body = {"text": noise.hex().encode(), "binary": noise, "Chinese": hanzi}[kind]
        shapes.note(Entry(f"{SITE}/files/{number}", "a.test", 0), "", False, body, lambda body=body: body)
    assert not is_put_off(shapes, "/files/777")


@pytest.mark.parametrize(
    "kind",
    [
        *("intranet", "gallery", "videos", "catalogue", "rates", "shop"),
        *("glossary", "signatures", "descriptions", "forum", "league", "parts", "timetable", "scans"),
        *("lazy", "sizes", "backgrounds", "plans", "posters", "JSON", "props", "values", "players", "drawings"),
    ],
)
def test_sites_that_say_little_of_their_pages_are_never_put_off(kind: str) -> None:
    """All say noindex; only the images or the videos differ; only the headings differ; only a line between a long menu
    and a footer does."""
    shapes, same = Shapes(0.1), f"<p>{SAME}"
    for number in range(300):
        parts = {
            "intranet": f"<title>Minutes {number}</title><h1>Minutes</h1>{same}",
            "videos": f"<title>Video</title>{same}<iframe src='/embed/{number}?from=9'>",
            "gallery": f"<title>Photo</title>{same}<img src=x alt='Sight number {number}'>",
            "catalogue": f"<title>Catalogue</title><h1>Part {number}</h1>{same}",
            "rates": f"<title>Rates</title>{same}<p>{DAY + number * DAYS}<td>{'<td>'.join(prose(number, 4).split())}",
            "shop": f"<title>Shop</title>{same}<b>{hex(number * 7919)}</b><td>{number % 40}.90 EUR",
            "glossary": f"<title>Terms</title>{same}<dt>{hex(number * 7919)}<dd>What it is.",
            "signatures": f"<title>Reference</title>{same}<code>def {hex(number * 7919)}(self) -&gt; int",
            "descriptions": f"<title>Record</title><meta name=description content='On {hex(number * 7919)}'>{same}",
            "parts": f"<title>Parts</title>{same}<h2>Part {number}</h2>",
            "timetable": f"<title>Stop</title>{same}<td>6:{number % 59:02}<td>7:{number % 53:02}<td>8:{number % 47:02}",
            "scans": f"<title>Scan</title>{same}<img src='/image?size=2&amp;no={number}'>",
            "lazy": f"<title>Photo</title>{same}<img src=blank.gif data-src=/photo/{number}.jpg>",
            "sizes": f"<title>Photo</title>{same}<picture><img srcset='/photo/{number}.jpg 2x'></picture>",
            "backgrounds": f"<title>Photo</title>{same}<p style='background-image: url(/photo/{number}.jpg)'>",
            "plans": f"<title>Plan</title>{same}<object data='/plan/{number}.pdf' type=application/pdf></object>",
            "posters": f"<title>Video</title>{same}<video controls poster='/still/{number}.jpg'></video>",
            "JSON": f'<title>Shop</title>Home<script type=application/json>{{"name": "{number}"}}</script>',
            "props": f"<title>Shop</title>Home<div id=app data-page='{{&quot;id&quot;:{number}}}'></div>",
            "values": f"<title>Record</title>Home<input name=name value='{prose(number, 2)}'>",
            "players": f"<title>Videos</title>Home<div class=player data-video-id={hex(number * 7919)}></div>",
            "drawings": f"<title>Pattern</title>Home<svg viewBox='0 0 9 9'><path d='M{number} 7 L{number % 7} 9'/></svg>",
            "league": f"<title>League</title>{same}{league(number)}<a href=/>Home</a>",
            "forum": f"<title>Forum</title>{same}<td>{hex(number * 7919)}?<td>bob<td>yes<td>ann<td>no",
        }
        body = parts[kind].encode()
        title = parts[kind][7 : parts[kind].index("</")]
        shapes.note(
            Entry(f"{SITE}/item?no={number}", "a.test", 0), title, kind == "intranet", body, lambda body=body: body
        )
    assert not is_put_off(shapes, "/item?no=777")


@pytest.mark.parametrize("style", ["%A, %B %d, %Y", "%A, %d", "%d %b", "%B"])
def test_days_of_a_calendar_are_alike_and_those_of_an_archive_are_not(style: str) -> None:
    """Names of days and months beside a date are as much a part of it as its numbers."""
    shapes, days = Shapes(0.1), [datetime.date(2026, 1, 1) + datetime.timedelta(days=number) for number in range(365)]
    Random(1).shuffle(days)
    hours = "".join(f"<td>{hour}:00" for hour in range(24))
    for day in days[:60]:
        text = f"<b>{day.strftime(style)} {day.year if style == '%B' else ''}</b>{hours}{prose(1)}"
        fetch(shapes, f"/day?on={day}", "Calendar", text)
        fetch(shapes, f"/news?on={day}", f"News of {day:%A, %d %B %Y}", f"{text}<li>{prose(day.toordinal(), 4)}")
    assert is_put_off(shapes, "/day?on=x")
    assert not is_put_off(shapes, "/news?on=x")


@pytest.mark.parametrize("noise", ["Page {} of 9", "made in 0.{} s, {} users online", "{}"])
def test_numbers_in_the_footer_make_no_page_new(noise: str) -> None:
    shapes, rows = Shapes(0.1), "".join(f"<td>row {number}" for number in range(200))
    for number in range(60):
        fetch(shapes, f"/list?sort={number}", "List", f"{rows}<p>{noise.replace('{}', str(number * 77))}")
    assert is_put_off(shapes, "/list?sort=x")


def test_tokens_and_links_make_no_page_new() -> None:
    shapes, scripts = Shapes(0.1), "<script src=/a.js></script><script>var menu = true</script>"
    for number in range(60):
        token = f"<input name=token type='hidden' value='{prose(number, 1)}'>"
        fetch(
            shapes, f"/list?d={number}", "List", f"Nothing.{scripts}{token}<a href='?d={number + 1}&value=3'>Next</a>"
        )
    assert is_put_off(shapes, "/list?d=x")


@pytest.mark.parametrize("said", ["You are at {path}", "Log in to return to {query}"])
def test_pages_that_repeat_their_url_are_not_new(said: str) -> None:
    shapes = Shapes(0.1)
    for number in range(60):
        path, query = f"/menu/x/{hex(number)}", f"/page/{hex(number)}"
        fetch(shapes, f"{path}?next={query}", "Menu", f"<p>{prose(1)}<p>{said.format(path=path, query=query)}")
    assert is_put_off(shapes, "/menu/x/y?next=/page/z")


def test_lists_of_known_pages_are_useless_however_they_are_put_together() -> None:
    shapes, rng = Shapes(0.1), Random(1)
    for number in range(200):
        rows = (f"<tr><td><a href=/{row}>Row {hex(row)}</a><td>{row}" for row in rng.sample(range(50), k=10))
        if fetch(shapes, f"/list?filter={number}", "List", "".join(rows)):
            break
    assert number < 100


def test_pages_that_lead_to_new_files_are_not_put_off_for_long() -> None:
    """Days of a newspaper, of which each has its file. The calendar beside it leads to new days and months of its own."""
    shapes, body = Shapes(0.1), f"<title>Paper</title><p>{prose(1)}"

    def note(path: str, links: list[str], priority: float = 0) -> None:
        page = f"{body}<!--{path}-->".encode()
        shapes.note(Entry(SITE + path, "a.test", priority), "Paper", False, page, lambda: page, links)

    for number in range(60):
        note(f"/paper/{DAY + number * DAYS}", [f"{SITE}/files/{number}.pdf"], PUT_OFF if number > 45 else 0)
        note(f"/day/{DAY + number * DAYS}", [f"{SITE}/month/{number}", f"{SITE}/login?next={number}"])
        note(f"/month/{number}", [f"{SITE}/day/{DAY + number * DAYS * 31}"])
        if number == 45:
            assert is_put_off(shapes, "/paper/2026-12-31")
            for known in range(number):
                entry = Entry(f"{SITE}/files/{known}.pdf", "a.test", 0)
                shapes.note(entry, "", False, b"%%PDF %d" % known, None)
    assert not is_put_off(shapes, "/paper/2026-12-31")
    assert is_put_off(shapes, "/day/2026-12-31")
    assert is_put_off(shapes, "/month/77")


def test_a_shape_that_becomes_useless_late_is_put_off_soon() -> None:
    """Combinations of filters over a list: the first ones show it in parts, and the others the same parts."""
    shapes = Shapes(0.1)
    for number in range(30):
        fetch(shapes, f"/list?filter={number}", "List", prose(number))
    for number in range(30, 200):
        fetch(shapes, f"/list?filter={number}", "List", f"{prose(number % 3)}<p>{number}")
    assert is_put_off(shapes, "/list?filter=x")


def test_combinations_of_filters_are_learnt_together_and_good_ones_stay() -> None:
    """A shop that combines filters, and a wiki whose articles and views have one path."""
    shapes = Shapes(0.1)
    for number in range(12):
        for names in ("size={0}", "size={0}&shop=1", "colour={0}", "colour={0}&shop=1"):
            fetch(shapes, f"/list?{names.format(number)}", "Products", f"{number}<p>{'the same for all filters' * 9}")
        for view in ("action=edit", "action=raw", "oldid=1", "diff=1&oldid=2"):
            fetch(shapes, f"/index.php?title={number}&{view}", f"View {number}", noindex=True)
        if number < 3:
            fetch(shapes, f"/index.php?title={number}", f"Article {number}")
            fetch(shapes, f"/index.php?title={number}&page=2", f"More {number}")
    assert all(is_put_off(shapes, f"/list?{query}") for query in ("brand=1&size=2", "brand=1&new=2", "colour=77"))
    assert is_put_off(shapes, "/index.php?printable=yes&title=5")
    good = ("/list", "/list?page=2", "/other?a=1&b=2", "/index.php?title=9", "/index.php?title=9&page=2", "/index.php")
    assert [path for path in good if is_put_off(shapes, path)] == []


def test_views_of_many_pages_are_learnt_together_and_a_good_page_among_them_stays() -> None:
    shapes = Shapes(0.1)
    index_ten_pages(shapes)
    for article in range(10):
        for view in range(3):
            fetch(shapes, f"/wiki/{'abcdefghij'[article]}?action={view}", f"{article} {view}", noindex=True)
    assert is_put_off(shapes, "/wiki/New?action=edit")
    assert not is_put_off(shapes, "/wiki/New")


def test_a_shape_whose_pages_turn_out_to_be_new_is_not_put_off_any_more() -> None:
    shapes = Shapes(0.1)
    index_ten_pages(shapes)
    for number in range(LEARNT_FROM):
        fetch(shapes, f"/list?id={number}", noindex=True)
    assert is_put_off(shapes, "/list?id=x")
    for number in range(10):
        fetch(shapes, f"/list?id={number + 100}", f"New {number}", priority=PUT_OFF)
    assert not is_put_off(shapes, "/list?id=x")


def test_a_share_of_the_pages_is_fetched_and_none_is_put_off_with_all_of_them() -> None:
    shapes, everything = Shapes(0.1), Shapes(1.0)
    for number in range(300):
        fetch(shapes, f"/good/{number}", f"Title {number}")
    fetched = 0
    while shapes.may_fetch("a.test", PUT_OFF):
        fetch(shapes, f"/list?sort={fetched}", noindex=True, priority=PUT_OFF)
        fetched += 1
    assert fetched == 30
    for number in range(LEAST):
        assert Shapes(0.0).may_fetch("b.test", PUT_OFF)
        fetch(everything, f"/list?sort={number * 10}", noindex=True)
    assert not is_put_off(everything, "/list?sort=x")


def test_pages_that_are_put_off_earn_more_of_them_if_they_bring_something() -> None:
    """Of two hundred days, each eighth has an event, and all later ones are empty."""
    shapes, number = Shapes(0.1), 0

    def fetch_day(priority: float) -> None:
        event = prose(number) if number % 8 == 0 and number < 200 else "None"
        fetch(shapes, f"/day?number={number}", "Calendar", f"Day {number}<p>{event}<p>{SAME}", priority=priority)

    while not is_put_off(shapes, "/day?number=x"):
        number += 1
        fetch_day(0)
    while shapes.may_fetch("a.test", PUT_OFF) and number < 1_000:
        number += 1
        fetch_day(PUT_OFF)
    assert 200 < number < 300


def test_links_that_are_only_looked_at_are_not_remembered() -> None:
    shapes, number = Shapes(0.1), 0
    while not is_put_off(shapes, "/day?number=x"):
        number += 1
        fetch(shapes, f"/day?number={number}", "Calendar", "None", priority=0)
    known = repr(shapes)
    for name in range(1_000):
        shapes.puts_off(f"{SITE}/day?name{name}=1", "a.test")
    assert repr(shapes) == known


def test_urls_that_are_put_off_keep_their_order_but_some_come_before_them() -> None:
    """Those nearest to the seed may all be dead links of one menu."""
    after = [[put_off(-depth, f"{SITE}/{number}") for number in range(200)] for depth in range(1, 4)]
    drawn = [number for number in range(200) if after[0][number] == after[2][number]]
    assert 2 <= len(drawn) < 20
    assert len({after[0][number] for number in drawn}) == len(drawn)
    assert all(PUT_OFF >= after[2][number] > PUT_OFF - 1 for number in drawn)
    others = set(range(200)) - set(drawn)
    assert {tuple(row[number] for row in after) for number in others} == {(PUT_OFF - 2, PUT_OFF - 3, PUT_OFF - 4)}
    assert all(put_off(-0.3, f"{SITE}/{number}") <= PUT_OFF - 1 for number in others)
    assert put_off(LAST, f"{SITE}/{min(others)}") == -MOST_PRIORITY
    assert put_off(PUT_OFF - 7, SITE) == PUT_OFF - 7


def test_a_page_that_is_visited_again_is_no_copy_of_itself() -> None:
    shapes = Shapes(1.0)
    entries = [Entry(f"{SITE}/{name}", "a.test") for name in "aab"]
    assert [shapes.note(one, "", False, b"body", bytes).is_copy for one in entries] == [False, False, True]
    assert not shapes.note(Entry("https://b.test/", "b.test"), "", False, b"body", bytes).is_copy


@pytest.mark.timed
@pytest.mark.parametrize(
    "unit", ["<script>", "<title>", "<h1>a ", "<meta name=description ", "<img src ", "12:30 ", *ATTRIBUTES]
)
def test_comparing_a_page_takes_time_in_proportion_to_its_size(unit: str) -> None:
    shapes, page = Shapes(0.1), (unit * 8_192)[:65_536]
    began = time.process_time()
    for number in range(10):
        fetch(shapes, f"/page/{number}", "Page", f"{page}{number}")
    assert time.process_time() - began < 1
