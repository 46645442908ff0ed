"""Data sets in tables of a real PostgreSQL server."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from crawler.page import Item
from crawler.sinks.archive import Archive
from crawler.sinks.journal import JournalEntry, encoded
from frontier.entries import Entry
from frontier.queue import LeasedUrl
from tests.e2e.harness import ROOT, Running, wait_until
from tests.postgres import PASSWORD, PostgresProcess, need_postgres
from tests.sinks import readers
from tests.sinks.test_items import item
from tests.sinks.values import NOON, exchange, page, settings
from tests.typed import Finished, Typed

need_postgres()

Export = Callable[..., Finished]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    with PostgresProcess() as server:
        yield server


@pytest.fixture
def export(typed: Typed, server: PostgresProcess) -> Iterator[Export]:
    """Exports the data set `shop` of the folder `out` to the table `shop`, with the key `url`."""

    def run(*words: str, to: str = "", keys: tuple[str, ...] = ("--key", "url")) -> Finished:
        given = ("export", "out", "--items", "shop", "--to", to or server.url, *keys, *words)
        return typed(*given, environment={"PGPASSWORD": PASSWORD})

    server.query("DROP TABLE IF EXISTS shop, crawler_positions")
    yield run
    server.query("DROP TABLE IF EXISTS shop, crawler_positions")


async def crawled(folder: Path, *groups: tuple[Item, ...], at: float = NOON, replica: str = "host-1a2b") -> None:
    """Write a page with each of `groups`, settled in this order from `at` on."""
    archive = Archive(settings(folder, replica=replica))
    await archive.start()
    pages = [page(exchange(f"{n}", b"x"), items=items, settled_at=at + n) for n, items in enumerate(groups)]
    await archive.write(pages)
    await archive.stop()


def product(url: str, /, **fields: object) -> Item:
    return item("shop", url=url, **fields)


GROUPS = (
    (product("a", price=1, tags=["x"], new=True, name="é"), item("other", n=1)),
    (),
    (product("b", price=2.5, size={"w": 1}), product("c", price=None)),
)


async def test_a_table_is_made_of_the_items_and_a_second_run_changes_nothing(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    await crawled(tmp_path / "out", *GROUPS)
    done = export()
    assert (done.code, done.out) == (0, "3 items; 3 rows of the table shop new or changed\n")
    assert (
        "new columns of the table shop: url text, price double precision, tags jsonb, new boolean, name text"
        in done.err
    )
    found = server.query("SELECT url, price, tags, new, name, size, _settled_at FROM shop ORDER BY url")
    assert [row[:-1] for row in found] == [
        ("a", 1.0, ["x"], True, "é", None),
        ("b", 2.5, None, None, None, {"w": 1}),
        ("c", None, None, None, None, None),
    ]
    assert [round(row[-1].timestamp() - NOON, 2) for row in found] == [0, 2, 2]
    versions = server.query("SELECT xmin FROM shop ORDER BY url")
    assert export().out == "3 items; 0 rows of the table shop new or changed\n"
    assert server.query("SELECT xmin FROM shop ORDER BY url") == versions


async def test_the_visit_that_was_settled_last_counts(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    """Whatever the names of the files are, and in whichever order they are exported. What it lacks becomes null."""
    await crawled(tmp_path / "late", (product("a", price=2),), at=NOON + 60, replica="a")
    await crawled(tmp_path / "early", (product("a", price=1, old=1),), at=NOON, replica="b")
    (tmp_path / "out").mkdir()
    for name in ("late", "early"):
        for path in (tmp_path / name).glob("*.jsonl"):
            path.rename(tmp_path / "out" / path.name)
        assert export().code == 0
    assert server.query("SELECT url, price, old FROM shop") == [("a", 2, None)]
    assert export().out == "2 items; 0 rows of the table shop new or changed\n"


async def test_one_batch_may_have_a_key_twice(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    await crawled(tmp_path / "out", (product("a", _number=1), product("a", _number=2)), (product("b", _number=3),))
    assert export().out == "3 items; 2 rows of the table shop new or changed\n"
    assert server.query("SELECT url, _number FROM shop ORDER BY url") == [("a", 2), ("b", 3)]


async def test_items_that_do_not_fit_are_left_out_and_reported(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    server.query(
        "CREATE TABLE shop (url varchar PRIMARY KEY, n integer, at date, data json, ok boolean, _settled_at timestamptz)"
    )
    await crawled(
        tmp_path / "out",
        (product("a", n=1, at="2026-01-31", data=[1], ok=True, more="x"), product("b", n=1.5)),
        (product("c", data="text"), product("d", ok="t"), product("e", at=20260131), item("shop", n=1)),
        (
            product("f", more="a\0b"),
            product("g", more="a\\u0000b"),
            product("h", data={"a\0": 1}),
            product("i", n=1 << 63),
        ),
    )
    done = export()
    assert done.code != 0
    assert done.out == "2 items; 2 rows of the table shop new or changed\n"
    assert "n: float (1.5), where the column has int" in done.err
    assert 'data: text ("text"), where the column has json' in done.err
    assert 'ok: text ("t"), where the column has bool' in done.err
    assert "at: int (20260131), where the column has text" in done.err
    assert "url: no value, and it is the key" in done.err
    assert done.err.count("the character NUL") == 2
    assert "n: 9223372036854775808 is too large a number" in done.err
    assert "8 items left out, because they do not fit the table: see export/shop.rejected.jsonl" in done.err
    assert len((tmp_path / "export" / "shop.rejected.jsonl").read_bytes().splitlines()) == 8
    found = server.query("SELECT url, n, at::text, data, ok, more FROM shop ORDER BY url")
    assert found == [("a", 1, "2026-01-31", [1], True, "x"), ("g", None, None, None, None, "a\\u0000b")]


async def test_types_of_new_fields_and_columns_of_others(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    """A later run adds fields, keeps types, and leaves alone what somebody else has added."""
    await crawled(tmp_path / "out", (product("a", n=1),))
    assert export().code == 0
    server.query("ALTER TABLE shop ADD COLUMN mine text; UPDATE shop SET mine = 'x'")
    await crawled(tmp_path / "out", (product("a", n=2, extra=0.5), product("b", n=0.5)), at=NOON + 60, replica="b")
    done = export()
    assert "new columns of the table shop: extra double precision\n" in done.err
    assert "n: float (0.5), where the column has int" in done.err
    assert server.query("SELECT url, n, extra, mine FROM shop") == [("a", 2, 0.5, "x")]


async def test_several_keys_and_names_that_must_be_quoted(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    server.query('DROP SCHEMA IF EXISTS "of Us" CASCADE; CREATE SCHEMA "of Us"')
    groups = [(item("shop", **{'a"b': n, "select": text, "Ü %s {}": None}),) for n in (1, 2) for text in "xy"]
    await crawled(tmp_path / "out", *groups)
    assert export("--table", "of Us.The Shop", keys=("--key", 'a"b', "--key", "select")).code == 0
    assert server.query('SELECT "a""b", "select" FROM "of Us"."The Shop" ORDER BY 1, 2') == [
        (n, text) for n in (1, 2) for text in "xy"
    ]


@pytest.mark.parametrize(
    ("table", "words", "said"),
    [
        ("", {"keys": ("--key", "sku")}, "no item has a field 'sku', the --key; the fields are url, n"),
        ("", {"keys": ()}, "--to needs --key: the field that tells items apart, such as --key url"),
        (
            "CREATE TABLE shop (url text PRIMARY KEY, n int)",
            {},
            "not one of `crawler export`: choose another one with --table",
        ),
        (
            "CREATE TABLE shop (url text, n int, _settled_at timestamptz)",
            {},
            "the table shop has no unique index for the --key: CREATE UNIQUE INDEX ON shop (url)",
        ),
        (
            "CREATE TABLE shop (url text PRIMARY KEY, n int, _settled_at timestamptz, must int NOT NULL)",
            {},
            'PostgreSQL: null value in column "must" of relation "shop" violates not-null constraint',
        ),
        ("CREATE TABLE shop ()", {}, 'PostgreSQL: relation "shop" already exists'),
        ("", {"keys": ("--key", "url", "--key", "x")}, "no item has a field 'x', the --key"),
        ("", {"to": "mysql://x/y"}, "--to takes a URL: postgresql://HOST/DATABASE"),
        (
            "",
            {"to": "postgresql://me:s3cret@[::/x"},
            "--to is no valid URL of PostgreSQL: postgresql://HOST/DATABASE",
        ),
        ("", {"to": "postgresql://me:s3cret@127.0.0.1:1/x"}, "PostgreSQL: connection failed: "),
        (
            "",
            {"to": "postgresql://me:a@s3cret@127.0.0.1:1/x"},
            "--to has an @ or / in its user or password: write %40 or %2F",
        ),
        ("", {"to": "postgresql://me:a#b@s3cret@127.0.0.1:1/x"}, "--to has an @ or / in its user or password"),
        ("", {"to": "postgresql://me:s3cret/b@127.0.0.1:1/x"}, "--to has an @ or / in its user or password"),
        ("", {"to": "postgresql://me:12/s3cret@127.0.0.1:1/x"}, "--to has an @ or / in its user or password"),
        ("", {"to": "postgresql://me:s3cret@/x?host=/nowhere"}, "PostgreSQL: connection is bad: "),
    ],
)
async def test_a_mistake_gets_one_line(
    export: Export, server: PostgresProcess, tmp_path: Path, table: str, words: dict[str, str], said: str
) -> None:
    if table:
        server.query(table)
    await crawled(tmp_path / "out", (product("a", n=1),))
    done = export(**words)  # type: ignore[arg-type]
    assert done.code == 2
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert done.err.splitlines()[-1] == line
    assert said in line
    assert "s3cret" not in done.err + done.out
    assert server.query("SELECT * FROM shop") == [] if table else True


async def test_a_wrong_password_is_not_shown(typed: Typed, server: PostgresProcess, tmp_path: Path) -> None:
    await crawled(tmp_path / "out", (product("a", n=1),))
    url = server.url.replace("crawler@", "crawler:wr0ng@")
    done = typed("export", "out", "--items", "shop", "--to", url, "--key", "url")
    assert done.code == 2
    assert "password authentication failed for user" in done.err
    assert "wr0ng" not in done.err
    right = server.url.replace("crawler@", f"crawler:{PASSWORD}@")
    assert typed("export", "out", "--items", "shop", "--to", right, "--key", "url").code == 0


async def test_items_that_the_server_refuses_are_left_out_and_the_others_are_written(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    server.query("CREATE TABLE shop (url text PRIMARY KEY, n int CHECK (n <> 4), day date, _settled_at timestamptz)")
    odd = (product("5", n=5, day="yesterday or so"), product("6", n=1 << 40), product("7", n=7, day="2026-03-01"))
    await crawled(tmp_path / "out", *[(product(str(n), n=n),) for n in range(5)], odd)
    done = export()
    assert done.code == 2
    assert server.query("SELECT url FROM shop ORDER BY url") == [("0",), ("1",), ("2",), ("3",), ("7",)]
    for reason in ("check constraint", "invalid input syntax for type date", "out of range"):
        assert reason in done.err


async def test_an_item_without_a_value_that_the_table_needs_is_left_out(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    server.query("CREATE TABLE shop (url text PRIMARY KEY, n int NOT NULL, _settled_at timestamptz)")
    await crawled(tmp_path / "out", (product("a", n=1), product("b"), product("c", n=3)))
    done = export()
    assert server.query("SELECT url FROM shop ORDER BY url") == [("a",), ("c",)], done.err
    assert 'null value in column "n"' in done.err
    assert len((tmp_path / "export" / "shop.rejected.jsonl").read_bytes().splitlines()) == 1


async def test_an_item_that_fits_no_table_holds_up_no_other(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    names = ("ctid", "_settled_at", "", "x" * 64)
    odd = [product(f"odd {name[:9]}", **{name: 1}) for name in names]
    many = product("many", **{f"field{number}": number for number in range(600)})
    long = product("".join(map(chr, range(0x4E00, 0x4E00 + 3_000))))
    await crawled(tmp_path / "out", (product("a", n=1), *odd, many, long, product("b", n=2)))
    done = export()
    assert server.query("SELECT url, n FROM shop ORDER BY url") == [("a", 1), ("b", 2)], done.err
    assert done.code == 2
    assert "cannot be the name of a column" in done.err
    assert "more than 500 fields" in done.err
    assert "the key is longer than 2,000 bytes" in done.err


def rows(server: PostgresProcess) -> int:
    """The number of rows of the table, 0 if there is none."""
    return server.query("SELECT count(*) FROM shop")[0][0] if server.query("SELECT to_regclass('shop')")[0][0] else 0


def lines(*numbers: int) -> bytes:
    """Lines of pages with an item each."""
    made = (
        {"url": f"https://a.test/{n}", "settled_at": "2026-01-01T00:00:00.000Z", "items": {"shop": [{"url": n}]}}
        for n in numbers
    )
    return b"".join(msgspec.json.encode(line) + b"\n" for line in made)


class Following:
    """`crawler export --follow` on the folder `out`, in a process of its own. `more`: words in place of the folder."""

    def __init__(self, folder: Path, server: PostgresProcess, *more: str) -> None:
        words = ["export", *(more or ("out",)), "--items", "shop", "--to", server.url, "--key", "url", "--follow"]
        environment = {"PGPASSWORD": PASSWORD, "PYTHONPATH": str(ROOT)}
        self.process = Running([sys.executable, "-m", "crawler", *words], folder, "follow", environment)


def test_items_are_followed_as_their_pages_are_settled(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    """Through the end of a file, a kill of the command, and a restart of the server."""
    (tmp_path / "out").mkdir()
    opened, journal = tmp_path / "out/a.pages.jsonl.open", tmp_path / "out/a.journal.open"
    journal.write_bytes(encoded(JournalEntry("crawl", 0, len(lines(1, 2)), [])))
    opened.write_bytes(lines(1, 2, 3)[:-1])
    following = Following(tmp_path, server).process
    wait_until(lambda: rows(server) == 2, "two rows")  # the third is not settled
    journal.write_bytes(b"")  # while it is written anew, nothing is known
    opened.write_bytes(lines(1, 2, 3, 4))
    time.sleep(1.5)
    assert rows(server) == 2
    journal.write_bytes(encoded(JournalEntry("crawl", 0, len(lines(1, 2, 3)), [])))
    wait_until(lambda: rows(server) == 3, "three rows")
    following.kill()
    opened.write_bytes(lines(1, 2, 3, 5))  # the fourth page was taken back
    journal.unlink()
    opened.rename(tmp_path / "out/a.pages.jsonl")
    server.query("DELETE FROM shop WHERE url = 1")
    following = Following(tmp_path, server).process
    wait_until(lambda: rows(server) == 3, "the fifth item")
    assert server.query("SELECT url FROM shop ORDER BY url") == [(2,), (3,), (5,)]  # what was read is not read again
    server.kill()
    (tmp_path / "out/b.pages.jsonl").write_bytes(lines(6))
    wait_until(lambda: "database_away" in following.err, "the outage to be noticed")
    server.start()
    wait_until(lambda: rows(server) == 4, "the sixth item")
    following.send(signal.SIGINT)
    done = following.wait()
    assert (done.code, done.out) == (0, "2 items; 2 rows of the table shop new or changed\n")


async def test_items_arrive_while_a_short_crawl_runs(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    """Also those of the last group, which no other one follows. Those of a group that is not settled do not."""
    archive = Archive(settings(tmp_path / "out"))
    await archive.start()
    following = Following(tmp_path, server).process

    async def write(name: str) -> None:
        one = page(exchange(name, b"x"), items=(product(name),))
        await archive.write([one], (), [LeasedUrl(0, "site.test", 7, Entry(one.url, "site.test"))])

    for number in range(3):
        await write(f"{number}")
        await archive.settled()
    await asyncio.to_thread(wait_until, lambda: rows(server) == 3, "three rows", 20)
    await write("3")
    await asyncio.sleep(2.5)
    assert rows(server) == 3
    await archive.settled()
    await asyncio.to_thread(wait_until, lambda: rows(server) == 4, "the fourth row", 20)
    assert readers.files(tmp_path / "out", ".pages.jsonl.open")
    following.send(signal.SIGINT)
    assert following.wait().code == 0
    await archive.stop()


def test_crawls_whose_files_have_the_same_names_share_a_table(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    """One after the other, and at once."""
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder / "out").mkdir(parents=True)
        (tmp_path / folder / "out/1.pages.jsonl").write_bytes(lines(10 * number, 10 * number + 1))
        follow_until(tmp_path / folder, server, 2 * number + 2)
    both = ("--table", "shop", "a/out", "b/out")
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder / "out/2.pages.jsonl").write_bytes(lines(20 + number))
    follow_until(tmp_path, server, 6, *both)
    server.query("DELETE FROM shop")
    (tmp_path / "b/out/3.pages.jsonl").write_bytes(lines(30))
    follow_until(tmp_path, server, 1, *both)  # what was read is not read again


def test_a_file_that_was_written_anew_is_read_from_the_start(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    """After `crawler forget`, or if Redis has lost that pages were settled: other lines are at the same places."""
    (tmp_path / "out").mkdir()
    file = tmp_path / "out/a.pages.jsonl"
    file.write_bytes(lines(10, 11, 12))
    follow_until(tmp_path, server, 3)
    file.write_bytes(lines(10, 13, 14, 15))
    follow_until(tmp_path, server, 6)
    file.write_bytes(lines(10, 15, 160_000))
    follow_until(tmp_path, server, 7)


def test_a_table_that_was_dropped_and_made_again_is_filled_again(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.pages.jsonl").write_bytes(lines(1, 2))
    follow_until(tmp_path, server, 2)
    server.query("DROP TABLE shop; CREATE TABLE shop (url numeric PRIMARY KEY, _settled_at timestamptz)")
    follow_until(tmp_path, server, 2)


def test_a_table_of_positions_from_before_they_named_a_line_is_kept(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    server.query(
        "CREATE TABLE crawler_positions (target text, data_set text, file text, position bigint, "
        "PRIMARY KEY (target, data_set, file)); "
        "INSERT INTO crawler_positions VALUES ('shop', 'shop', 'a.pages.jsonl', 1000)"
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.pages.jsonl").write_bytes(lines(1, 2))
    follow_until(tmp_path, server, 2)
    assert server.query("SELECT count(*) FROM crawler_positions") == [(2,)]


def follow_until(folder: Path, server: PostgresProcess, number: int, *words: str) -> None:
    """Follow the crawl in `folder` until the table has this `number` of rows."""
    following = Following(folder, server, *words).process
    wait_until(lambda: rows(server) == number, f"{number} rows", 20)
    following.send(signal.SIGTERM)
    assert following.wait().code == 0


def test_exporters_that_start_at_once_share_the_table(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    followings = []
    for number in range(4):
        folder = tmp_path / str(number)
        (folder / "out").mkdir(parents=True)
        (folder / f"out/{number}.pages.jsonl").write_bytes(lines(number))
        followings.append(Following(folder, server).process)
    try:
        wait_until(lambda: rows(server) == 4, "four rows", 20)
    finally:
        for following in followings:
            following.send(signal.SIGINT)
        ends = [(following.wait().code, following.err) for following in followings]
    assert [code for code, _ in ends] == [0] * 4, ends


@pytest.mark.parametrize("state", ["53100", "57014"])  # a full disk, and a statement that takes too long
def test_an_error_that_need_not_pass_ends_the_command(
    export: Export, server: PostgresProcess, tmp_path: Path, state: str
) -> None:
    server.query(
        "CREATE TABLE shop (url int PRIMARY KEY, _settled_at timestamptz); CREATE OR REPLACE FUNCTION refuse() RETURNS "
        f"trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{state}'; END $$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON shop EXECUTE FUNCTION refuse()"
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.pages.jsonl").write_bytes(lines(1))
    following = Following(tmp_path, server).process
    wait_until(lambda: "as told" in following.err, "the error")
    assert "database_away" not in following.err
    assert following.wait().code == 2


def test_a_table_that_was_dropped_is_filled_again(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.pages.jsonl").write_bytes(lines(1, 2))
    for _ in range(2):
        follow_until(tmp_path, server, 2)
        server.query("DROP TABLE shop")
