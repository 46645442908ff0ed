"""Data sets in tables of a real PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.page import Item
from crawler.sinks.items import save_types
from crawler.sinks.postgres import ItemTail
from tests.postgres import PASSWORD, PostgresProcess, need_postgres
from tests.sinks.postgres.exports import Export, product
from tests.sinks.test_items import item
from tests.sinks.values import NOON, archiving, exchange, page, settings
from tests.typed import Typed

need_postgres()


async def crawled(folder: Path, *groups: tuple[Item, ...], at: float = NOON, replica: str = "host-1a2b") -> None:
    """Write a page with each of `groups`, settled in this order from `at` on."""
    async with archiving(folder, replica=replica) as archive:
        pages = [page(exchange(f"{n}", b"x"), items=items, settled_at=at + n) for n, items in enumerate(groups)]
        await archive.write(pages)


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
    assert (done.code, done.out) == (0, "3 items; 3 rows of the table shop new or replaced\n")
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
    assert export().out == "3 items; 0 rows of the table shop new or replaced\n"
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
    assert export().out == "2 items; 0 rows of the table shop new or replaced\n"


async def test_one_batch_may_have_a_key_twice(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    await crawled(tmp_path / "out", (product("a", _number=1), product("a", _number=2)), (product("b", _number=3),))
    assert export().out == "3 items; 2 rows of the table shop new or replaced\n"
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
    assert done.out == "3 items; 3 rows of the table shop new or replaced\n"
    assert "n: float (1.5), where the column has int" in done.err
    assert 'data: text ("text"), where the column has json' in done.err
    assert 'ok: text ("t"), where the column has bool' in done.err
    assert "url: no value, and it is the key" in done.err
    assert done.err.count("the character NUL") == 2
    assert "n: 9223372036854775808 is too large a number" in done.err
    assert "7 items left out for values that do not fit the table: see export/shop.rejected.jsonl" in done.err
    assert len((tmp_path / "export" / "shop.rejected.jsonl").read_bytes().splitlines()) == 7
    found = server.query("SELECT url, n, at::text, data, ok, more FROM shop ORDER BY url")
    assert found[1] == ("e", None, "2026-01-31", None, None, None)
    assert [found[0], found[2]] == [("a", 1, "2026-01-31", [1], True, "x"), ("g", None, None, None, None, "a\\u0000b")]


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
            "--to is not a valid URL of PostgreSQL: postgresql://HOST/DATABASE",
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
        ("", {"to": "postgresql://me:s3cret\u2100x@127.0.0.1:1/x"}, "--to is not a valid URL of PostgreSQL"),
        ("", {"to": "postgresql://me:se[s3cret]x@127.0.0.1:1/x"}, "--to is not a valid URL of PostgreSQL"),
        ("", {"to": "postgresql://me:se[s3cret@127.0.0.1:1/x"}, "--to is not a valid URL of PostgreSQL"),
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
    save_types(tmp_path / "out", settings(tmp_path).crawl, {"shop": {f"field{number}": "int" for number in range(600)}})
    done = export()
    assert server.query("SELECT url, n FROM shop ORDER BY url") == [("a", 1), ("b", 2)], done.err
    assert done.code == 2
    assert "cannot be the name of a column" in done.err
    assert "more than 500 fields" in done.err
    assert "the key is longer than 2,000 bytes" in done.err


async def test_values_of_different_types_make_a_new_column_text(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    values = (5, [1], "x", None, True)
    await crawled(tmp_path / "out", *((product(str(number), price=value),) for number, value in enumerate(values)))
    assert export().code == 0
    await crawled(tmp_path / "out", (product("9", price=0.5),), replica="later", at=NOON + 60)
    assert export().code == 0
    assert [price for (price,) in server.query("SELECT price FROM shop ORDER BY url")] == [
        *("5", "[1]", "x", None, "true", "0.5")
    ]


async def test_a_new_table_has_the_types_that_the_crawl_has_kept(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    await crawled(tmp_path / "out", (product("a", price=5),))
    save_types(tmp_path / "out", settings(tmp_path).crawl, {"shop": {"url": "text", "price": "float", "sku": "int"}})
    assert export().code == 0
    await crawled(tmp_path / "out", (product("b", price=5.5, sku=1),), replica="later", at=NOON + 60)
    assert export().code == 0
    assert server.query("SELECT url, price, sku FROM shop ORDER BY url") == [("a", 5.0, None), ("b", 5.5, 1)]


async def test_an_item_that_a_type_or_a_trigger_refuses_is_left_out_alone(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    server.query("CREATE TABLE shop (url text PRIMARY KEY, path jsonpath, _settled_at timestamptz)")
    server.query(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS $$ BEGIN IF NEW.url = 'bad' THEN RAISE 'not here'; END IF; "
        "RETURN NEW; END $$ LANGUAGE plpgsql"
    )
    server.query("CREATE TRIGGER refuse BEFORE INSERT ON shop FOR EACH ROW EXECUTE FUNCTION refuse()")
    await crawled(
        tmp_path / "out", (product("a", path="$.x"), product("b", path="a & b"), product("bad"), product("c"))
    )
    done = export()
    assert (done.code, "2 items left out" in done.err) == (2, True), done.err
    assert server.query("SELECT url FROM shop ORDER BY url") == [("a",), ("c",)]


async def test_large_items_are_written_in_small_parts(tmp_path: Path) -> None:
    """The memory for a batch has a limit, whatever the items are."""
    await crawled(tmp_path / "out", *[(product(str(number), text="x" * (3 << 20)),) for number in range(12)])
    sizes = [len(batch.items) for batch in ItemTail([tmp_path / "out"], "shop", {}).batches()]
    assert sizes == [6, 6]
