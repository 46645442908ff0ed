"""The built wheel, where nothing of the source tree can be imported: it has all that it needs, Lua included."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.harness import EVEN, PATIENCE_S, Running, Web

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    # `build` would first fetch hatchling into an environment of its own.
    words = ["hatchling", "build", "-t", "wheel", "-d"] if find_spec("hatchling") else ["build", "--wheel", "--outdir"]
    command = [sys.executable, "-m", *words, str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def interpreter(site: Path) -> list[str]:
    """Python with the wheel's files and the installed dependencies, without `site`: no .pth file leads to the source."""
    dependencies = sysconfig.get_paths()["purelib"]
    program = (
        "import sys, runpy; "
        f"sys.path[:0] = [{str(site)!r}]; sys.path.append({dependencies!r}); "
        "sys.argv[0] = 'crawler'; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-S", "-c", program]


def test_modules_come_from_the_wheel(site: Path, interpreter: list[str], tmp_path: Path) -> None:
    (tmp_path / "where.py").write_text("import crawler, frontier.scripts, politeness\nprint(crawler.__file__)\n")
    done = Running([*interpreter, "where"], tmp_path, "command", {"PYTHONPATH": str(tmp_path)}).wait()
    assert done.out.strip() == str(site / "crawler" / "__init__.py"), done.err


def test_crawl_from_the_wheel(interpreter: list[str], tmp_path: Path) -> None:
    """`--version`, and a small crawl with the bundled server: one process, as replicas are started by `python -m`."""
    version = Running([*interpreter, "crawler", "--version"], tmp_path, "version", {"PYTHONPATH": ""}).wait()
    assert version.out.startswith("peercrawl "), version.err
    with Web(tmp_path, domains=4, pages=20, features=EVEN) as web:
        (tmp_path / "crawler.toml").write_text(
            f'[politeness]\ndelay = 0.01\n[scope]\nkind = "any"\n[fetch]\nhost_map = {web.host_map!r}\n'
        )
        (tmp_path / "seeds.txt").write_text("\n".join(web.world.seeds()))
        for number, words in enumerate((["seed", "-f", "seeds.txt"], ["run", "--until-empty"])):
            command = [*interpreter, "crawler", words[0], "--settings", "crawler.toml", *words[1:]]
            done = Running(command, tmp_path, f"command-{number}", {"PYTHONPATH": ""}).wait()
            assert done.code == 0, done.err
        result = web.verdict(delay_s=0.01)
        assert result.ok, str(result)
