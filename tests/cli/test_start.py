"""Commands start quickly: each imports only what it needs, and the table of commands is complete."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from types import ModuleType

import pytest
import typer

from crawler.cli.command_registry import MODULES

NOBODY = "redis://127.0.0.1:1/0"
"""No server listens there, so a command ends after its imports."""

ENGINE = {
    "crawler.app.engine",
    "crawler.sinks.archive",
    "crawler.fetch.client",
    "aiohttp",
    "turbohtml",
    "prometheus_client",
}
URLS = {"tldextract", "requests"}
OPTIONAL = {"redis", "cryptography", "nacl", "python_socks", "pyarrow", "psycopg", "obstore", "surt"}
"""What only some settings or URLs need."""

LATE = {"turbohtml", "aiohttp.web", "crawler.observe.web.routes", "multiprocessing"}
"""What only some pages, visitors of the status pages, or settings need. A replica imports it when it does."""

SLOW = {"importlib.resources", "importlib.metadata", "tomllib", "difflib"}
"""Modules of Python that a replica can do without."""


def commands_of(module: ModuleType) -> set[str]:
    """Return the commands in `module`: functions with an example in their docstring, and groups. Commands in a group are
    represented by the group."""
    groups = {name: one for name, one in vars(module).items() if isinstance(one, typer.Typer)}
    grouped = {info.callback for group in groups.values() for info in group.registered_commands}
    own = {name for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__}
    alone = {name for name in own if "[bold]Example" in (vars(module)[name].__doc__ or "")}
    return groups.keys() | {name for name in alone if vars(module)[name] not in grouped}


@pytest.mark.parametrize("name", sorted(set(MODULES.values())))
def test_the_table_names_all_commands_of_a_module(name: str) -> None:
    named = {f"{one}_" if iskeyword(one) else one for one, module in MODULES.items() if module == name}
    assert commands_of(import_module(f"crawler.cli.{name}")) == named


@pytest.mark.parametrize(
    ("words", "spared"),
    [
        (["--version"], ENGINE | URLS | {"redis", "pydantic", "asyncio", "crawler.settings.loading"}),
        (["status", "--redis", NOBODY], ENGINE | URLS),
        (["domains", "--redis", NOBODY], ENGINE | URLS),
        (["shards", "--redis", NOBODY], ENGINE | URLS),
        (["top", "--once", "--redis", NOBODY], ENGINE | URLS),
        (["pause", "--redis", NOBODY], ENGINE | URLS),
        (["dead", "list", "--redis", NOBODY], ENGINE | URLS),
        (["why", "https://a.test/", "--redis", NOBODY], ENGINE),
        (["audit", "nothing"], {"aiohttp", "crawler.app.engine", "prometheus_client"}),
        (["--help"], {"aiohttp", "aiodns", "crawler.app.engine", "prometheus_client"}),
        (["seed", "https://a.test/", "--redis", NOBODY], ENGINE),
        (["crawl", "https://a.test/", "--redis", NOBODY], ENGINE),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_needs(words: list[str], spared: set[str], tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from crawler.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    print(end.code or 0, *sys.modules)"
    )
    typed = [sys.executable, "-c", program, *words]
    ended = subprocess.run(typed, capture_output=True, text=True, check=True, cwd=tmp_path)
    code, *loaded = ended.stdout.splitlines()[-1].split()
    assert code == {"--version": "0", "--help": "0", "audit": "2"}.get(words[0], "75"), ended.stderr
    assert spared & set(loaded) == set()


def test_a_command_and_a_replica_here_need_no_client_library_of_redis(tmp_path: Path) -> None:
    """Without --redis, and with no option set, `crawler run` imports none of what only some settings need."""
    loaded = loaded_by(["run"], tmp_path)
    assert "crawler.app.engine" in loaded
    assert (OPTIONAL | LATE) & loaded == set()


def test_a_replica_of_a_supervisor_imports_no_parser_of_options_and_nothing_for_the_terminal(tmp_path: Path) -> None:
    """It waits for a line, and ends here, because there is none."""
    loaded = loaded_by(["run", "--when-told", "news"], tmp_path)
    assert "crawler.app.engine" in loaded
    assert ({"typer", "rich", "crawler.cli.crawl"} | URLS | OPTIONAL | LATE | SLOW) & loaded == set()


def loaded_by(words: list[str], folder: Path) -> set[str]:
    """The modules that `crawler WORDS` has imported when it ends."""
    program = (
        "import runpy, sys\n"
        "try:\n    runpy.run_module('crawler', run_name='__main__')\n"
        "finally:\n    print(*sys.modules, flush=True)"
    )
    typed = [sys.executable, "-c", program, *words]
    ended = subprocess.run(typed, capture_output=True, text=True, check=False, cwd=folder, stdin=subprocess.DEVNULL)
    return set(ended.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "program",
    [
        "import crawler.app.replica",
        "import sys; from crawler.cli.main import main; sys.argv[1:] = ['config', 'check', 'c.toml']; main()",
    ],
    ids=["replica", "config check"],
)
def test_no_start_imports_pydantic(tmp_path: Path, program: str) -> None:
    """It would take 0.1 s of CPU time. Releases of Typer from 0.29 import it for any command with parameters."""
    (tmp_path / "c.toml").write_text("[politeness]\ndelay = 2\n")
    printed = f"import atexit, sys; atexit.register(lambda: print(*sys.modules))\n{program}"
    ended = subprocess.run([sys.executable, "-c", printed], capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = ended.stdout.splitlines()[-1].split()
    assert "crawler.settings.loading" in loaded
    assert {"pydantic", "pydantic_core", "pydantic_settings"} & set(loaded) == set()


def test_the_error_for_a_misspelled_command_suggests_the_right_one() -> None:
    ended = subprocess.run([sys.executable, "-m", "crawler", "statsu"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "status" in ended.stderr
