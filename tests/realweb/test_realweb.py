"""A crawl of real documentation, against an independent walk over its files."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from bench.docweb import available, serve
from tests.e2e.harness import Running
from tests.realweb.walk import walk

pytestmark = [pytest.mark.e2e, pytest.mark.long]

if not (available() and shutil.which("nginx")):
    if os.environ.get("CI"):
        raise RuntimeError("CI must install nginx-light and the documentation packages; see .ci/run")
    pytest.skip("needs nginx and Debian's documentation packages", allow_module_level=True)


def test_the_crawl_fetches_exactly_what_the_files_link_to(tmp_path: Path) -> None:
    with serve(copies=1) as web:
        command = [sys.executable, "-m", "crawler", "crawl", *web.seeds, "--quiet", "--replicas", "2", "--delay", "0"]
        command += ["--out", str(tmp_path / "out"), "--data-dir", str(tmp_path / "data")]
        for mapping in web.host_map:
            command += ["--host-map", mapping]
        crawl = Running(command, tmp_path, "crawl", {})
        walks = [walk(seed, folder) for seed, folder in zip(web.seeds, available().values(), strict=True)]
        done = crawl.wait(500)
        assert done.code == 0, done.err
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    lines = [msgspec.json.decode(line) for path in files for line in path.read_bytes().splitlines()]
    fetched = [line["url"] for line in lines if line["status"] is not None]
    assert len(fetched) == len(set(fetched))
    assert set(fetched) == set().union(*walks)
