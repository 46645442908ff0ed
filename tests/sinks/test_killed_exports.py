"""`crawler export` that is killed at any moment leaves whole files or none, and the same command succeeds afterwards."""

from __future__ import annotations

import asyncio
import csv
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from crawler.page import Item
from tests.sinks.values import archiving, exchange, page

pytestmark = pytest.mark.long

TEXT = b"<title>A page</title><h1>Head</h1><p>" + b"This is the text of a page, and it is long enough. " * 20
VOLUMES = 2
EXPORTS = (
    "wacz --text text",
    "jsonl --text text",
    "parquet",
    "markdown",
    "csv --items shop",
    "csv --changes --since 2026-01-01",
)


async def crawl(folder: Path) -> None:
    """Write volumes whose items do not all fit."""
    for number in range(VOLUMES):
        async with archiving(folder, metadata=True, replica=f"r{number}") as archive:
            items = tuple(Item("shop", msgspec.json.encode({"name": str(n), "price": n or "free"})) for n in range(3))
            whole = {"content_type": "text/html", "charset": "utf-8", "items": items, "visit": "new"}
            await archive.write([page(exchange(f"{number}-{n}", TEXT + b"%d" % n), **whole) for n in range(2)])


def contents(path: Path) -> Any:
    """What is in an exported file. Raises an error of some kind if it is broken."""
    if path.suffix == ".wacz":
        with zipfile.ZipFile(path) as packed:
            assert packed.testzip() is None
            return {name: packed.read(name) for name in packed.namelist() if not name.startswith("datapackage")}
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.reader(file))
    return path.read_bytes()


def exported(folder: Path) -> dict[str, Any]:
    """The contents of the files in `folder`, but not those of unfinished ones."""
    names = (path for path in folder.rglob("*") if path.is_file() and not is_unfinished(path, folder))
    return {str(path.relative_to(folder)): contents(path) for path in names}


def is_unfinished(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts[:-1])
    return path.name.endswith(".tmp") or hidden


@pytest.mark.parametrize(("form", "who"), [*((form, "all") for form in EXPORTS), (EXPORTS[1], "command")])
def test_a_killed_export_leaves_whole_files_and_can_be_repeated(tmp_path: Path, form: str, who: str) -> None:
    asyncio.run(crawl(tmp_path / "out"))
    shared = [] if "--items" in form or "--changes" in form else ["--processes", "2"]
    words = ["export", "../out", *shared, "--format", *form.split()]
    driver = [sys.executable, "-m", "tests.sinks.killed_exports", str(tmp_path), who, *words]
    done = subprocess.run(driver, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    runs = sorted((path for path in tmp_path.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    assert len(runs) > 3
    whole = exported(runs[-1] / "export")
    for run in runs:
        if (run / "killed").exists():
            left = exported(run / "killed")
            left.pop(".exported.json", None)  # it names results before they are there
            assert {name: whole.get(name) for name in left} == left, run.name
        assert exported(run / "export") == whole, run.name
        assert not [path for path in (run / "export").rglob("*") if is_unfinished(path, run / "export")], run.name
