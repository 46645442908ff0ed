"""The project of the tutorial works as it is written, from its first line to a cluster."""

from __future__ import annotations

import csv
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import CRAWLER, PATIENCE_S, ROOT
from tests.spiders.server import TEAS, Sites
from tests.spiders.test_spiders import environment
from tests.test_docs import blocks, commands_in
from tests.valkey import ValkeyProcess

TUTORIAL = ROOT / "docs" / "tutorial.md"
SECTIONS = TUTORIAL.read_text().split("\n## ")
PROJECT, CLUSTER = (next(part for part in SECTIONS if part.startswith(name)) for name in ("A project", "A cluster"))


def done(words: list[str | Path], sites: Sites, folder: Path) -> str:
    ended = subprocess.run(
        words,
        cwd=folder,
        env=environment(sites) | {"SHOP_PASSWORD": "secret"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    return ended.stdout


def teas(path: Path) -> list[tuple[str, float]]:
    return sorted((row["name"], float(row["price"])) for row in csv.DictReader(path.read_text().splitlines()))


@pytest.mark.e2e
@pytest.mark.long
def test_the_project(tmp_path: Path, valkey: ValkeyProcess) -> None:
    shop, test = blocks(PROJECT, "python")
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    for folder in (tmp_path, cluster):
        (folder / "shop.toml").write_text(blocks(PROJECT, "toml")[0])
        (folder / "shop.py").write_text(shop)
    (tmp_path / "test_shop.py").write_text(test)
    with Sites() as sites:
        for command in commands_in(PROJECT):
            done([*CRAWLER, *shlex.split(command)[1:]], sites, tmp_path)
        done([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"], sites, tmp_path)
        found = teas(tmp_path / "export" / "teas.csv")
        assert found == [(f"tea {number}", number + 0.5) for number in range(1, TEAS + 1)]
        assert len(list((tmp_path / "crawl-out" / "files").rglob("*.png"))) == TEAS
    with Sites() as sites:
        for command in commands_in(CLUSTER):
            text = command.replace("redis://queue:6379/0", valkey.url).replace("0.0.0.0:9410", "127.0.0.1:0")
            words = [*shlex.split(text)[1:], *(["--until-empty"] if " run " in text else [])]
            done([*CRAWLER, *(word for word in words if not word.startswith("other"))], sites, cluster)
    assert (cluster / "export" / "teas.parquet").exists()
