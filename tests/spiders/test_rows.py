"""Each row of the guides for users of other crawlers has code of ours that works."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from crawler import Crawl, Outcome, ParsedPage
from crawler.cli.main import app
from crawler.settings.load import load
from crawler.testing import Result, page, run_handler
from tests.sinks.test_upload import Contents, bucket, s3, server  # noqa: F401 - fixtures
from tests.spiders.rows import handlers, of_handlers, of_programs, rows
from tests.spiders.server import Sites
from tests.spiders.test_spiders import HOSTS, run


async def test_rows_of_handlers(tmp_path: Path) -> None:
    """Each runs for a page of its own. What ends the crawl or the page runs without a server."""
    names: dict[str, Any] = {}
    exec(of_handlers(), names)
    rest: dict[str, Result] = {}
    settings: dict[str, Any] = {
        "replica": {"data_dir": str(tmp_path / "data"), "out": str(tmp_path / "out"), "interval": 0.3}
    }
    settings |= {"politeness": {"delay": 0}, "scope": {"max_depth": 0}}
    with Sites() as sites:
        settings["fetch"] = {"host_map": sites.host_map(*HOSTS)}
        async with Crawl(handlers=names["router"], settings=settings, keep_open=True) as crawl:
            for number, (code, url) in enumerate(handlers().items()):
                if code.startswith("raise ") or "crawl.stop" in code:
                    rest[code] = run_handler(names["router"], page(url, label=f"row_{number}"))
                else:
                    assert await crawl.add(url, label=f"row_{number}") == 1, code
            pages: dict[str, ParsedPage] = {}
            async for settled in crawl:
                pages[settled.label] = settled
                if len(pages) == len(handlers()) - len(rest):
                    break
    assert {label: one.handler_error for label, one in pages.items() if one.outcome is not Outcome.DONE} == {}
    assert {(result.error, result.stop) for result in rest.values()} == {("no price", None), ("", "enough")}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_rows_of_programs(tmp_path: Path, s3: Contents) -> None:  # noqa: F811
    (tmp_path / "program.py").write_text(of_programs().replace("s3://bucket/", "s3://crawls/news/"))
    with Sites() as sites:
        printed = run(tmp_path / "program.py", sites)
    assert printed.splitlines() == ["2 {'products': 2} {}", "2 {}"]
    assert s3()["products.csv"] == (tmp_path / "products.csv").read_bytes()


@pytest.mark.parametrize("row", list(rows("Settings")))
def test_rows_of_settings(row: str) -> None:
    load(None, tomllib.loads(row))


@pytest.mark.parametrize("row", list(rows("Commands")))
def test_rows_of_commands(row: str) -> None:
    words = shlex.split(row)
    command = app.get_command(click.Context(app), words[1])
    assert command is not None
    command.make_context(words[1], words[2:])
