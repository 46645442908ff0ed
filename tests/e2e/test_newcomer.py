"""The README's first commands lead to a live page whose address the terminal shows."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import urllib.request
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from crawler.cli.main import app
from crawler.cli.screens import live_view
from crawler.observe.status import Status
from tests.e2e.harness import EVEN, ROOT, Running, Web, wait_until

pytestmark = pytest.mark.e2e


def test_two_commands_lead_from_a_clone_to_a_crawl_with_a_dashboard(tmp_path: Path) -> None:
    """The second command is run unchanged, except for the URL, in an empty folder without a settings file.
    `test_documents` runs the first one."""
    found = re.search(r"<!-- run -->\n```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    install, crawl = found[1].splitlines()
    assert install == "python3 -m venv .venv && .venv/bin/pip install ."
    program, *words = shlex.split(crawl)
    assert program == ".venv/bin/crawler"
    with Web(tmp_path, domains=1, pages=60, features=EVEN) as web:
        words[words.index("https://example.com")] = web.world.seeds()[0]
        environment = {"CRAWLER_FETCH__HOST_MAP": json.dumps(web.host_map), "CRAWLER_POLITENESS__DELAY": "0.2"}
        running = Running([sys.executable, "-m", "crawler", *words], tmp_path, "crawl", environment)
        try:
            seen = wait_until(lambda: status(tmp_path), "a replica in the status", step_s=0.2)
            assert f"http://{seen.replicas[0].address}/ " in rendered(seen)
            with urllib.request.urlopen(f"http://{seen.replicas[0].address}/", timeout=20) as answer:
                assert b"<html" in answer.read()
        finally:
            done = running.wait()
        assert done.code == 0, done.err


def status(folder: Path) -> Status | None:
    """The result of `crawler status`, once a replica has an address."""
    if not (folder / ".crawler").exists():
        return None
    done = CliRunner().invoke(app, ["status", "--json", "--data-dir", str(folder / ".crawler")])
    seen = msgspec.json.decode(done.stdout, type=Status) if done.exit_code == 0 else None
    return seen if seen is not None and seen.replicas else None


def rendered(seen: Status) -> str:
    """What the live display shows in a terminal."""
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(live_view(seen, elapsed_s=1.0))
    return console.export_text()
