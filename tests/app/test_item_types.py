"""Items that do not fit their data set: rejected while the crawl runs, reported by `status` and `why`, and not lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from crawler import Crawl, Handle, ParsedPage, Router
from tests.site import Request, Site
from tests.typed import Typed

PRICES: dict[str, Any] = {"/1": 1, "/2": 2.5, "/3": None, "/4": "on request", "/5": 3, "/6": [1]}
REJECTED = {"/4", "/6"}

ABOUT = "fetched_at: timestamp[ms, tz=UTC]\nvisit: string"


def respond(request: Request) -> str | None:
    """Pages that have no heading, except /1."""
    return {"/robots.txt": None, "/1": "<h1>One</h1><p>x"}.get(request.path, "<p>x")


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[dict[str, Any]]:
    fields = {"title": {"css": "h1", "required": True}, "text": {"css": "p"}, "size": {"css": "b", "type": "decimal"}}
    with Site(respond) as site:
        tables = {"name": "tables", "each": "tr", "fields": {"cell": {"css": "td"}}}
        of_handler = {"url": {"page": "url"}, "price": {"css": "i", "type": "decimal"}}
        shop = {"name": "shop", "match": "/none", "fields": of_handler}
        yield site.settings(tmp_path) | {"extract": [{"name": "titles", "fields": fields}, tables, shop]}


router = Router()


@router.handler()
def priced(page: ParsedPage, crawl: Handle) -> None:
    path = page.url.removeprefix("http://a.test")
    crawl.push("shop", {"url": page.url, "price": PRICES[path]})


def test_a_field_whose_values_are_not_of_its_declared_type(
    settings: dict[str, Any], tmp_path: Path, typed: Typed
) -> None:
    for path in PRICES:
        Crawl([f"http://a.test{path}"], handlers=router, settings=settings).run()
    out = tmp_path / "out"
    lines = {
        line["url"].removeprefix("http://a.test"): line
        for file in out.glob("*.pages.jsonl")
        for line in msgspec.json.Decoder(dict[str, Any]).decode_lines(file.read_bytes())
    }
    assert {path for path, line in lines.items() if "shop" not in (line["items"] or {})} == REJECTED
    told = "shop: price: changed 'on request' (text instead of float)"
    assert lines["/4"]["rejected"] == ["titles: title: missing", told]
    assert lines["/4"]["rejected_items"] == {
        "shop": [{"reason": told, "item": {"url": "http://a.test/4", "price": "on request"}}]
    }
    assert lines["/1"]["rejected_items"] is None

    place = {"CRAWLER_REPLICA__DATA_DIR": str(tmp_path / "data"), "CRAWLER_REPLICA__OUT": str(out), "COLUMNS": "200"}
    found = json.loads(typed("status", "--json", environment=place).out)
    assert found["items"] == {"titles": 1, "shop": 4}
    assert found["rejected"] == {"shop:price:changed": 2, "titles:title:missing": 5}
    shown = typed("status", environment=place).out
    assert "items  shop 4, titles 1, tables none" in shown
    assert "items rejected  titles 5 (title missing), shop 2 (price changed)" in shown
    why = typed("why", "http://a.test/4", environment=place).out
    assert "titles: title: missing" in why
    assert told in why

    _check_exports(typed, out, tmp_path)


def _check_exports(typed: Typed, out: Path, folder: Path) -> None:
    """The items that were rejected are not lost, and each export has the same columns."""
    done = typed("export", str(out), "--items", "shop", "--format", "parquet", "--out", str(folder / "all"))
    assert (done.code, "2 items left out" in done.err, "rejected in the crawl" in done.err) == (2, True, False)
    done = typed("export", str(out), "--items", "titles", "--format", "csv", "--out", str(folder / "all"))
    assert (done.code, "5 items rejected in the crawl, not exported" in done.err) == (0, True), done.err
    lines = (folder / "all/shop.rejected.jsonl").read_bytes().splitlines()
    refused = [json.loads(line)["item"]["price"] for line in lines]
    assert sorted(refused, key=str) == [[1], "on request"]
    table = pq.read_table(folder / "all/shop.parquet")
    assert sorted(table["price"].to_pylist(), key=str) == [1.0, 2.5, 3.0, None]
    (first,) = (file for file in out.glob("*.pages.jsonl") if b"http://a.test/1" in file.read_bytes())
    for name, columns in (
        ("shop", "url: string\nprice: double\n" + ABOUT),
        ("titles", "title: string\ntext: string\nsize: double\n" + ABOUT),
    ):
        assert typed("export", str(first), "--items", name, "--format", "parquet", "--out", str(folder)).code == 0
        assert pq.read_schema(folder / f"{name}.parquet").to_string() == columns
    kept = json.loads((out / "crawl.types.json").read_text())
    assert kept["shop"] == {"url": "text", "price": "float"}
