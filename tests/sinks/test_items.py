"""Data sets in the lines of pages, and the tables that are made of them."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from crawler.cli.main import app
from crawler.errors import UserError
from crawler.page import Item, RejectedItem
from crawler.sinks.archive import Archive
from crawler.sinks.items import export_items, read_items
from crawler.sinks.parquet import write_parquet
from tests.sinks.values import exchange, page, settings


def item(name: str, /, **fields: object) -> Item:
    return Item(name, msgspec.json.encode(fields))


async def written(folder: Path, *groups: tuple[Item, ...]) -> None:
    """Write a page with each of `groups`."""
    archive = Archive(settings(folder))
    await archive.start()
    await archive.write([page(exchange(str(n), b"x"), items=items) for n, items in enumerate(groups)])
    await archive.stop()


def lines_in(folder: Path) -> Path:
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
    path = lines_in(tmp_path)
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
async def test_a_field_that_changes_its_type_is_reported_and_not_written(tmp_path: Path, form: str) -> None:
    await written(tmp_path / "crawl-out", *GROUPS)
    out = tmp_path / "export"
    words = ["export", str(tmp_path / "crawl-out"), "--items", "shop", "--format", form, "--out", str(out)]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert isinstance(done.exception, UserError) or done.exit_code == 1
    assert "3 items in" in done.stdout
    assert 'price: text ("on request"), where earlier items have float' in done.output
    (refused,) = (out / "shop.rejected.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(refused)["item"] == {"name": "c", "price": "on request"}
    if form == "jsonl":
        rows = [msgspec.json.decode(line) for line in (out / "shop.jsonl").read_bytes().splitlines()]
        assert [row["price"] for row in rows] == [1, 2.5, None]
    elif form == "csv":
        with (out / "shop.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows[0] == {"name": "a", "price": "1", "tags": '["x"]', "new": ""}
        assert rows[1]["new"] == "true"
    else:
        table = pq.read_table(out / "shop.parquet")
        assert table.to_pylist()[0] == {"name": "a", "price": 1.0, "tags": '["x"]', "new": None}
        assert table.num_rows == 3


async def test_a_table_without_refused_items_replaces_one_with_them(tmp_path: Path) -> None:
    await written(tmp_path / "first", *GROUPS)
    await written(tmp_path / "second", *GROUPS[:3])
    assert export_items([tmp_path / "first"], "shop", tmp_path, "jsonl").refused_count == 1
    done = export_items([tmp_path / "second"], "shop", tmp_path, "jsonl")
    assert (done.items, done.refused_count) == (3, 0)
    assert not (tmp_path / "shop.rejected.jsonl").exists()
    with pytest.raises(UserError, match="no item of a data set 'none'"):
        export_items([tmp_path / "second"], "none", tmp_path, "jsonl")


async def test_a_mistyped_data_set_is_answered_with_those_there_are(tmp_path: Path) -> None:
    """Also with those of which all items were rejected."""
    await written(tmp_path / "out", *GROUPS[:3])
    paths = [tmp_path / "out", tmp_path / "more"]
    of_nothing = RejectedItem("prices", "price", "missing"), RejectedItem("news", "", "size")
    archive = Archive(settings(tmp_path / "more"))
    await archive.start()
    await archive.write(
        [page(exchange("r", b"x"), rejected=of_nothing, rejected_by={one.word: 1 for one in of_nothing})]
    )
    await archive.stop()
    with pytest.raises(
        UserError, match=r"^no item of a data set 'shp' in .*; data sets there: news, other, prices, shop$"
    ):
        export_items(paths, "shp", tmp_path, "jsonl")
    with pytest.raises(UserError, match=r"^no item of a data set 'prices' in .* was kept: 1 rejected$"):
        export_items(paths, "prices", tmp_path, "jsonl")


def test_a_page_that_is_settled_as_a_defect_has_no_items() -> None:
    """It may be queued again, and then gives them again."""
    assert page(exchange("a", b"x"), items=(item("shop", n=1),)).failed().items == ()
