"""Type checkers accept the examples of the documentation, in their strictest modes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import crawler
from tests.spiders.rows import of_handlers, of_programs
from tests.test_docs import PAGES, ROOT, blocks

FRAGMENT = f"""from __future__ import annotations

from crawler import {", ".join(crawler.__all__)}

router = Router()


async def fragment() -> None:
"""
"""What stands before code without imports, which is part of an example that the page has shown."""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the blocks of all pages and the programs in `docs/examples`, a module each."""
    folder = tmp_path_factory.mktemp("examples")
    for page in PAGES:
        for number, block in enumerate(blocks(page, "python")):
            name = f"{page.stem}_{number}".replace("-", "_").lower()
            if "import " not in block:
                block = FRAGMENT + re.sub("^(?=.)", "    ", block, flags=re.MULTILINE)
            (folder / f"{name}.py").write_text(block)
    for program in (ROOT / "docs" / "examples").glob("*.py"):
        (folder / f"example_{program.name}").write_text(program.read_text())
    (folder / "rows_of_handlers.py").write_text(of_handlers())
    (folder / "rows_of_programs.py").write_text(of_programs())
    (folder / "shop.py").write_text("from crawler import Router\n\nrouter = Router()\n")  # a module of the reader
    return folder


def test_mypy_accepts_the_examples(examples: Path) -> None:
    config = examples / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n[mypy-pandas.*]\nignore_missing_imports = true\n")
    cache = ROOT / ".mypy_cache" / "examples"
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", cache, examples]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=examples, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"in (\d+) source files", done.stdout)[0]) > 20


@pytest.mark.long
def test_pyright_accepts_the_examples(examples: Path) -> None:
    if importlib.util.find_spec("pyright") is None:
        pytest.fail("pyright is missing") if os.environ.get("CI") else pytest.skip("needs pyright")
    off = dict.fromkeys(("reportUnusedImport", "reportUnusedVariable", "reportMissingTypeStubs"), "none")
    config = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "pythonVersion": "3.11", **off}
    (examples / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(examples)]
    done = subprocess.run(command, cwd=examples, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
