"""Types of fields that are kept beside the output."""

from __future__ import annotations

from pathlib import Path

from crawler.sinks.items import kept_types, save_types, types_of


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
