"""Data sets and changes in the lines of pages, and the tables that are made of them."""

from __future__ import annotations

import csv
import gzip
import json
import re
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from crawler.cli.main import app
from crawler.errors import UserError
from crawler.page import Item, Outcome, RejectedItem
from crawler.sinks.items import (
    TableForm,
    export_changes,
    export_items,
    kept_types,
    read_items,
    save_types,
    since_time,
    types_of,
)
from crawler.sinks.parquet import write_parquet
from crawler.sinks.postgres import ItemTail
from tests.sinks.values import NOON, archived, archiving, exchange, page
from tests.typed import Typed


def item(name: str, /, **fields: object) -> Item:
    return Item(name, msgspec.json.encode(fields))


async def written(folder: Path, *groups: tuple[Item, ...]) -> None:
    """Write a page with each of `groups`."""
    await archived(folder, [page(exchange(str(n), b"x"), items=items) for n, items in enumerate(groups)])


def lines_file(folder: Path) -> Path:
    (path,) = folder.glob("*.pages.jsonl")
    return path


GROUPS = (
    (item("shop", name="a", price=1, tags=["x"]), item("other", n=1)),
    (),
    (item("shop", name="b", price=2.5, new=True), item("shop", name=None, price=None)),
    (item("shop", name="c", price="on request"),),
)


async def test_items_are_in_the_lines_of_their_pages(tmp_path: Path) -> None:
    await written(tmp_path, *GROUPS)
    path = lines_file(tmp_path)
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert lines[0]["items"] == {"shop": [{"name": "a", "price": 1, "tags": ["x"]}], "other": [{"n": 1}]}
    assert lines[1]["items"] is None
    assert len(lines[2]["items"]["shop"]) == 2
    table = pq.read_table(write_parquet(path), columns=["items"])
    assert msgspec.json.decode(table["items"][0].as_py()) == lines[0]["items"]
    assert [found.url[-1] for found in read_items([tmp_path], "shop")] == ["0", "2", "2", "3"]
    (tmp_path / "open.pages.jsonl.open").write_bytes(path.read_bytes())
    assert len(list(read_items([tmp_path], "shop"))) == 4


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
async def test_a_field_with_values_of_different_types_is_text(tmp_path: Path, form: str) -> None:
    await written(tmp_path / "crawl-out", *GROUPS)
    out = tmp_path / "export"
    words = ["export", str(tmp_path / "crawl-out"), "--items", "shop", "--format", form, "--out", str(out)]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 0 and "4 items in" in done.stdout
    assert not (out / "shop.rejected.jsonl").exists()
    if form == "jsonl":
        rows = [msgspec.json.decode(line) for line in (out / "shop.jsonl").read_bytes().splitlines()]
        assert [row["price"] for row in rows] == ["1", "2.5", None, "on request"]
    elif form == "csv":
        with (out / "shop.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        page = {"fetched_at": "2026-09-21T14:13:20.123Z", "visit": ""}
        assert rows[0] == {"name": "a", "price": "1", "tags": '["x"]', "new": "", **page}
        assert rows[1]["new"] == "true"
    else:
        table = pq.read_table(out / "shop.parquet")
        page = {"fetched_at": datetime(2026, 9, 21, 14, 13, 20, 123000, UTC), "visit": None}
        assert table.to_pylist()[0] == {"name": "a", "price": "1", "tags": '["x"]', "new": None, **page}
        assert table["price"].to_pylist() == ["1", "2.5", None, "on request"]


async def test_a_table_without_rejected_items_replaces_one_with_them(tmp_path: Path) -> None:
    rejected = (RejectedItem("shop", "price", "changed", json=b'{"price":"free"}'),)
    await archived(tmp_path / "first", [page(exchange("a", b"x"), items=(item("shop", n=1),), rejected=rejected)])
    await written(tmp_path / "second", *GROUPS[:3])
    assert export_items([tmp_path / "first"], "shop", tmp_path / "shop.jsonl").refused_count == 1
    done = export_items([tmp_path / "second"], "shop", tmp_path / "shop.jsonl")
    assert (done.items, done.refused_count) == (3, 0)
    assert not (tmp_path / "shop.rejected.jsonl").exists()


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
async def test_half_of_a_character_in_a_line_is_replaced(tmp_path: Path, form: TableForm) -> None:
    await written(tmp_path / "out", (item("shop", name="a half", price=1),), (item("shop", name="b", price=2),))
    path = lines_file(tmp_path / "out")
    path.write_bytes(path.read_bytes().replace(b"half", b"\\uD83D"))
    target = tmp_path / f"shop.{form}"
    assert export_items([path], "shop", target).items == 2
    found = pq.read_table(target)["name"][0].as_py().encode() if form == "parquet" else target.read_bytes()
    assert b"a ?" in found
    assert [found.fields(())["name"] for found in read_items([path], "shop")] == ["a ?", "b"]


@pytest.mark.parametrize("number", [(1 << 53) + 1, 1 << 63])
async def test_a_field_with_a_number_that_a_column_cannot_have_is_text(tmp_path: Path, number: int) -> None:
    """The first would be rounded beside a decimal number, the second is too large for all."""
    await written(tmp_path / "out", (item("shop", n=number), item("shop", n=0.5), item("shop", n=1 << 53)))
    assert export_items([tmp_path / "out"], "shop", tmp_path / "shop.parquet").items == 3
    assert pq.read_table(tmp_path / "shop.parquet")["n"].to_pylist() == [str(number), "0.5", str(2**53)]
    assert export_items([tmp_path / "out"], "shop", tmp_path / "exact.jsonl").items == 3
    assert str(number) in (tmp_path / "exact.jsonl").read_text()


async def test_the_names_of_data_sets_may_have_dots(tmp_path: Path) -> None:
    rejected = RejectedItem("shop.v2", "price", "missing")
    async with archiving(tmp_path / "out") as archive:
        await archive.write(
            [page(exchange("a", b"x"), items=(item("shop", n=1), item("shop.v2", n=2)), rejected=(rejected,) * 2)]
        )
    done = {name: export_items([tmp_path / "out"], name, tmp_path / f"{name}.csv") for name in ("shop", "shop.v2")}
    assert {name: (one.items, one.rejected) for name, one in done.items()} == {"shop": (1, 0), "shop.v2": (1, 2)}
    with pytest.raises(UserError, match=r"data sets there: shop, shop\.v2$"):
        export_items([tmp_path / "out"], "shp", tmp_path / "shp.csv")
    words = ["export", str(tmp_path / "out"), "--items", "shop.v2", "--to", "postgresql://h/d", "--key", "n"]
    refused = CliRunner().invoke(app, words)
    assert "needs --table" in str(refused.exception)


async def test_a_mistyped_data_set_is_answered_with_those_there_are(tmp_path: Path) -> None:
    """Also with those of which all items were rejected."""
    await written(tmp_path / "out", *GROUPS[:3])
    paths = [tmp_path / "out", tmp_path / "more"]
    of_nothing = RejectedItem("prices", "price", "missing"), RejectedItem("news", "", "size")
    async with archiving(tmp_path / "more") as archive:
        await archive.write(
            [page(exchange("r", b"x"), rejected=of_nothing, rejected_by={one.word: 1 for one in of_nothing})]
        )
    with pytest.raises(
        UserError, match=r"^no item of a data set 'shp' in .*; data sets there: news, other, prices, shop$"
    ):
        export_items(paths, "shp", tmp_path / "shp.jsonl")
    with pytest.raises(UserError, match=r"^no item of a data set 'prices' in .* was kept: 1 rejected$"):
        export_items(paths, "prices", tmp_path / "prices.jsonl")


async def test_what_was_rejected_is_counted_also_without_a_field_and_only_since_then(tmp_path: Path) -> None:
    rejected = (
        RejectedItem("shop", "", "size"),
        RejectedItem("shop", "price", "missing"),
        RejectedItem("shop", "price", "changed", json=b'{"price":"free"}'),
        RejectedItem("shops", "", "size"),
    )
    await archived(
        tmp_path / "out",
        [
            page(exchange("old", b"x"), settled_at=NOON, rejected=rejected),
            page(exchange("new", b"x"), settled_at=NOON + 3_600, items=(item("shop", price=1),)),
        ],
    )
    whole = export_items([tmp_path / "out"], "shop", tmp_path / "shop.jsonl")
    assert (whole.items, whole.refused_count, whole.rejected) == (1, 1, 2)
    latest = export_items([tmp_path / "out"], "shop", tmp_path / "shop.jsonl", since=NOON + 60)
    assert (latest.items, latest.refused_count, latest.rejected) == (1, 0, 0)
    with pytest.raises(UserError, match=r"^no item of a data set 'shop' in .* was settled since 2026-09-21T16:"):
        export_items([tmp_path / "out"], "shop", tmp_path / "shop.jsonl", since=NOON + 7_200)


def test_a_page_that_is_settled_as_a_defect_has_no_items() -> None:
    """It may be queued again, and then gives them again."""
    assert page(exchange("a", b"x"), items=(item("shop", n=1),)).failed().items == ()


FOUND = ("new", "unchanged", "changed", "gone", "back", "")
NOW = datetime(2026, 9, 22, tzinfo=UTC)


async def write_visits(folder: Path) -> None:
    """Write two visits of each kind: one at noon, and one an hour later."""
    async with archiving(folder) as archive:
        for at in (NOON, NOON + 3_600):
            visits = [
                page(exchange(name, name.encode(), started_at=at), visit=name, settled_at=at + 1, previous_at=at - 60)
                for name in FOUND
            ]
            await archive.write(visits)
            await archive.settled()
        failed = page(None, "failed", outcome=Outcome.DEAD, reason="timeout", settled_at=NOON + 4_000)
        await archive.write([failed])
        await archive.settled()


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
async def test_the_table_has_what_has_changed_since_then(tmp_path: Path, form: str) -> None:
    await write_visits(tmp_path / "crawl-out")
    words = ["export", str(tmp_path / "crawl-out"), "--changes", "--since", "2026-09-21T15:00", "--format", form]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert f"4 changes since 2026-09-21T15:00:00.000Z in {tmp_path}/changes.{form}" in done.output, done.output
    path = tmp_path / f"changes.{form}"
    if form == "jsonl":
        rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    elif form == "csv":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = pq.read_table(path).to_pylist()
    assert [row["visit"] for row in rows] == ["new", "changed", "gone", "back"]
    changed = rows[1]
    assert changed["url"] == "https://site.test/changed"
    assert str(changed["status"]) == "200" and changed["digest"].startswith("sha1:")
    assert changed["warc_file"].endswith(".warc.gz") and int(changed["warc_offset"]) > 0
    times = [changed[name] for name in ("fetched_at", "previous_visit")]
    if form == "parquet":
        assert times == [datetime.fromtimestamp(NOON + at, UTC).replace(microsecond=123_000) for at in (3_600, 3_540)]
    else:
        assert times == ["2026-09-21T15:13:20.123Z", "2026-09-21T15:12:20.123Z"]


async def test_a_page_that_is_gone_is_a_change_once(tmp_path: Path) -> None:
    """Given a page that is gone at two visits, back, and gone again at three, with a failed visit before the last."""
    async with archiving(tmp_path) as archive:
        for number, found in enumerate(("new", "gone", "gone", "back", "gone", "gone", "", "gone")):
            at = NOON + number * 3_600
            made = exchange("a", b"", started_at=at)
            await archive.write([page(made, visit=found, settled_at=at + 1, previous_at=at - 3_600 if number else 0.0)])
            await archive.settled()

    def found_since(since: float) -> list[str]:
        done = export_changes([tmp_path], since, tmp_path / "export", "jsonl")
        return [msgspec.json.decode(line)["visit"] for line in done.file.read_bytes().splitlines()]

    assert found_since(0.0) == ["new", "gone", "back", "gone", "gone"]
    assert found_since(NOON + 2 * 3_600) == ["back", "gone", "gone"]  # it was gone before


async def test_a_page_that_stays_gone_is_no_change_whatever_the_names_of_the_files(tmp_path: Path) -> None:
    """Replicas have random names, so the file with the first visit may be read last."""
    async with archiving(tmp_path) as archive:
        for number in (1, 2):
            at = NOON + number * 3_600
            made = exchange("a", b"", started_at=at)
            await archive.write([page(made, visit="gone", settled_at=at + 1, previous_at=at - 3_600)])
            await archive.settled()
    path = lines_file(tmp_path)
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(second)
    path.with_name("z" + path.name).write_bytes(first)
    done = export_changes([tmp_path], 0.0, tmp_path / "export", "jsonl")
    assert [msgspec.json.decode(line)["settled_at"][11:13] for line in done.file.read_bytes().splitlines()] == ["15"]


COPIES: dict[str, Callable[[bytes], bytes]] = {
    "with spaces": lambda data: b"".join(json.dumps(json.loads(line)).encode() + b"\n" for line in data.splitlines()),
    "sorted": lambda data: b"".join(
        json.dumps(json.loads(line), sort_keys=True).encode() + b"\r\n" for line in data.splitlines()
    ),
    "without the last line end": lambda data: data[:-1],
    "with blank lines": lambda data: data + b"\n\n",
    "with null for missing data sets": lambda data: data.replace(b'"items":{', b'"items":{"none":null,'),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
async def test_lines_that_another_program_has_written_are_read(
    tmp_path: Path, copied: Callable[[bytes], bytes]
) -> None:
    groups = [(item("shop", name="a"),), (), (item("shop", name="b"),)]
    pages = [page(exchange(str(n), b"x"), items=items, visit="new") for n, items in enumerate(groups)]
    await archived(tmp_path, pages)
    path = lines_file(tmp_path)
    path.write_bytes(copied(path.read_bytes()))
    assert export_items([tmp_path], "shop", tmp_path / "out/shop.csv").items == 2
    assert export_changes([tmp_path], 0.0, tmp_path / "out", "csv").changes == 3
    (batch,) = ItemTail([tmp_path], "shop", {}).batches()
    assert len(batch.items) == 2


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (lambda data: data[: data.rindex(b'"link_count"')], ":3: Input data was truncated"),
    "overwritten": (lambda data: data[: data.rindex(b"\n", 0, -1) + 1] + bytes(99), ":3: JSON is malformed"),
    "number": (lambda data: data.replace(b'"b"', b"1e999"), ": an item of https://site.test/2 cannot be read: Number"),
    "text": (
        lambda data: data.replace(b'{"name":"b"}', b'"b"'),
        ": an item of https://site.test/2 cannot be read: Exp",
    ),
    "times": (lambda data: re.sub(rb'(settled_at":"[^"]*)T', rb"\1 ", data), ":1: Expected `str` matching"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGED.values(), ids=DAMAGED)
async def test_lines_that_cannot_be_read_are_named(
    tmp_path: Path, damage: Callable[[bytes], bytes], said: str, typed: Typed
) -> None:
    await written(tmp_path / "crawl", (item("shop", name="a"),), (), (item("shop", name="b"),))
    path = lines_file(tmp_path / "crawl")
    path.write_bytes(damage(path.read_bytes()))
    done = typed("export", "crawl", "--items", "shop")
    assert done.code == 2
    assert f"{path.name}{said}" in " ".join(done.err.split())
    if "item" not in said:
        for words in (("--changes", "--since", "1d"), ("--format", "markdown", "--out", "notes")):
            assert f"{path.name}{said}" in " ".join(typed("export", "crawl", *words).err.split())


async def test_compressed_lines_are_named(tmp_path: Path, typed: Typed) -> None:
    await written(tmp_path / "crawl", (item("shop", name="a"),))
    path = lines_file(tmp_path / "crawl")
    path.with_name("b.pages.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    for words in (("--items", "shop"), ("--changes", "--since", "1d"), ("--format", "markdown", "--out", "notes")):
        done = typed("export", "crawl", *words)
        assert (done.code, "b.pages.jsonl.gz is compressed" in done.err) == (2, True), words


async def test_open_files_are_read_up_to_their_last_complete_line(tmp_path: Path) -> None:
    await write_visits(tmp_path)
    path = lines_file(tmp_path)
    lines = path.read_bytes()
    path.unlink()
    path.with_name(path.name + ".open").write_bytes(lines + lines[:100])
    assert export_changes([tmp_path], 0.0, tmp_path / "export", "jsonl").changes == 8


async def test_a_crawl_without_visits_of_known_pages_is_told_apart_from_one_without_changes(tmp_path: Path) -> None:
    await write_visits(tmp_path / "crawl-out")
    assert export_changes([tmp_path / "crawl-out"], NOON + 9_000, tmp_path, "jsonl").changes == 0
    path = lines_file(tmp_path / "crawl-out")
    other = tmp_path / "other.pages.jsonl"
    other.write_bytes(path.read_bytes().splitlines(keepends=True)[-1])
    with pytest.raises(UserError, match=r"no line in .* says what a visit has found: that needs \[recrawl\]"):
        export_changes([other], 0.0, tmp_path / "export", "jsonl")
    assert not (tmp_path / "export").exists()
    other.write_bytes(b'{"visit":"new"}\n')
    with pytest.raises(UserError, match=r"other\.pages\.jsonl"):
        export_changes([other], 0.0, tmp_path / "export", "jsonl")


async def test_memory_does_not_grow_with_the_number_of_lines(tmp_path: Path) -> None:
    await write_visits(tmp_path)
    path = lines_file(tmp_path)
    lines = path.read_bytes()
    (tmp_path / "long.pages.jsonl").write_bytes(lines * 2_000)
    forms: tuple[TableForm, ...] = ("jsonl", "csv")
    for form in forms:
        tracemalloc.start()
        assert export_changes([tmp_path], 0.0, tmp_path / "export", form).changes == 8 * 2_001
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1 << 20


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-09-21", "2026-09-21T00:00:00+00:00"),
        ("2026-09-21T14:00", "2026-09-21T14:00:00+00:00"),
        ("2026-09-21T14:00:00Z", "2026-09-21T14:00:00+00:00"),
        ("2026-09-21T14:00:00+02:00", "2026-09-21T12:00:00+00:00"),
        ("90m", "2026-09-21T22:30:00+00:00"),
        ("36h", "2026-09-20T12:00:00+00:00"),
        ("1w", "2026-09-15T00:00:00+00:00"),
        ("7d", "2026-09-15T00:00:00+00:00"),
        ("0001-01-01", "1970-01-01T00:00:00+00:00"),
        ("90000d", "1970-01-01T00:00:00+00:00"),
    ],
)
def test_times(text: str, at: str) -> None:
    assert since_time(text, NOW) == datetime.fromisoformat(at).timestamp()


@pytest.mark.parametrize("text", ["", "yesterday", "12", "2026-13-01", "-2h", "999999d", "2h30m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^--since .*: write a time such as 2026-03-01 or .*\(s, m, h, d or w\)"):
        since_time(text, NOW)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--changes"], "--changes needs --since TIME"),
        (["--changes", "--format", "markdown"], "--changes needs --since TIME"),
        (["--changes", "--since", "soon"], "write a time"),
        (["--changes", "--since", "2999-01-01"], "is in the future"),
        (["--changes", "--since", "2d", "--items", "shop"], "one at a time"),
        (["--changes", "--since", "2d", "missing"], "missing: no such file or folder"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path: Path, words: list[str], error: str) -> None:
    done = CliRunner().invoke(app, ["export", str(tmp_path), *words, "--out", str(tmp_path / "export")])
    assert isinstance(done.exception, UserError) and error in str(done.exception)
    assert "\n" not in str(done.exception)


def test_decimal_numbers_stay_decimal(tmp_path: Path) -> None:
    for kind in ("int", "float", "int"):
        save_types(tmp_path, "a", {"shop": {"price": kind, "name": "text"}})
    assert kept_types([tmp_path], "shop") == {"price": "float", "name": "text"}
    save_types(tmp_path / "..", "a", {"shop": {"price": "int"}})
    for folders in ([tmp_path, tmp_path / ".."], [tmp_path / "..", tmp_path]):
        assert types_of(folders, "a")["shop", "price"] == "float"
        assert kept_types(folders, "shop")["price"] == "float"


def test_a_file_has_the_types_of_its_own_crawl(tmp_path: Path) -> None:
    for crawl, kind in (("a", "text"), ("a-b", "float"), ("c", "bool")):
        save_types(tmp_path, crawl, {"shop": {"price": kind}})
    for name, kind in (("a-r1-1", "text"), ("a-b-r1-1", "float"), ("c-r1-1", "bool")):
        assert kept_types([tmp_path / f"{name}.pages.jsonl"], "shop") == {"price": kind}
    assert kept_types([tmp_path / "d-r1-1.pages.jsonl"], "shop") == {}


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
async def test_a_field_of_some_items_does_not_get_values_of_the_page(tmp_path: Path, form: str) -> None:
    items = item("s", n=1, visit=3), item("s", n=2)
    await archived(tmp_path / "out", [page(exchange("a", b"x"), visit="new", items=items)])
    target = tmp_path / f"s.{form}"
    export_items([tmp_path / "out"], "s", target)
    if form == "parquet":
        assert pq.read_table(target)["visit"].to_pylist() == [3, None]
    elif form == "csv":
        assert [row["visit"] for row in csv.DictReader(target.read_text().splitlines())] == ["3", ""]
    else:
        assert [msgspec.json.decode(line).get("visit") for line in target.read_bytes().splitlines()] == [3, None]


async def test_a_whole_number_as_a_key_is_the_same_as_a_decimal_one(tmp_path: Path) -> None:
    await archived(
        tmp_path / "out",
        [
            page(exchange(str(n), b"x"), settled_at=NOON + n, items=(item("s", k=k, n=n),))
            for n, k in enumerate((1, 1.0))
        ],
    )
    export_items([tmp_path / "out"], "s", tmp_path / "s.jsonl", ["k"])
    rows = [msgspec.json.decode(line) for line in (tmp_path / "s.jsonl").read_bytes().splitlines()]
    assert [row["n"] for row in rows] == [1]
