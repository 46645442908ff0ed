"""What child processes inherit, that none imports from the working directory, and the limit of open files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crawler.parse.child import ChildProcess
from crawler.parse.coding import DEFAULT_LIMIT
from crawler.parse.document import Document, ParseLimits, ReadJob
from crawler.parse.html import ExtractPolicy
from crawler.processes import IDLE_CONNECTIONS, SPARE_FILES, python_command, required_files

SECRETS = {
    "CRAWLER_REPLICA__REDIS": "redis://:s3cret@queue:6379/0",
    "REDIS_URL": "redis://:s3cret@queue:6379/0",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "ANY_TOKEN": "s3cret",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def assert_confined(pid: int) -> None:
    assert b"s3cret" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert "NoNewPrivs:\t1\n" in Path(f"/proc/{pid}/status").read_text()


async def test_the_process_that_parses_documents_is_confined() -> None:
    process = ChildProcess()
    link = Document(b"<a href=x>x</a>", "https://a.test/", content_type="text/html")
    try:
        found = await process.run(ReadJob(link, ParseLimits(ExtractPolicy(), DEFAULT_LIMIT)), link.body)
        assert found is not None
        assert [one.url for one in found.found.links] == ["https://a.test/x"]
        assert process.pid is not None
        assert_confined(process.pid)
    finally:
        await process.stop()


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose modules have the names of others. Each of them ends the process, as if all were well."""
    for name in ("crawler", "json", "random", "pickle", "queue", "tempfile", "msgspec", "frontier"):
        (tmp_path / f"{name}.py").write_text("import os; os.write(2, b'trapped'); os._exit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return tmp_path


@pytest.mark.usefixtures("trap")
def test_a_replica_imports_nothing_from_the_working_directory() -> None:
    done = subprocess.run([*python_command("crawler"), "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout[:9], done.stderr) == ("peercrawl", "")


def test_nor_does_the_program_run_as_a_module_unless_it_is_there(trap: Path) -> None:
    (trap / "crawler.py").unlink()
    (trap / "frontier.py").unlink()
    command = [sys.executable, "-m", "crawler", "status", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "status" in done.stdout
    assert done.stderr == ""


@pytest.mark.usefixtures("trap")
async def test_nor_does_the_process_that_parses_documents() -> None:
    process = ChildProcess()
    link = Document(b"<a href=x>x</a>", "https://a.test/", content_type="text/html")
    try:
        assert await process.run(ReadJob(link, ParseLimits(ExtractPolicy(), DEFAULT_LIMIT)), link.body) is not None
    finally:
        await process.stop()


EXPORT = """
import multiprocessing, os
from crawler.sinks.export import shared_work

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")  # as on macOS; later versions of Python start a new interpreter, too
    with shared_work(1) as pool:
        print(pool.submit(os.getpid).result())
"""


def test_nor_do_the_processes_of_an_export(trap: Path) -> None:
    program = trap / "bin" / "export.py"
    program.parent.mkdir()
    program.write_text(EXPORT)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip().isdigit(), done.stderr) == (True, "")


TOLD = """
import resource, sys
from crawler.processes import most_waiting, raise_fd_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(raise_fd_limit(64), *resource.getrlimit(resource.RLIMIT_NOFILE), most_waiting(64))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "idle", "soft_then", "waiting"),
    [
        (256, 4096, IDLE_CONNECTIONS, required_files(64), 4 * 64),  # raised
        (2048, 4096, IDLE_CONNECTIONS, 2048, 4 * 64),  # enough
        (256, 600, 600 - 5 * 64 - SPARE_FILES, 600, 4 * 64),  # as far as it goes
        (256, 256, 16, 256, 12),  # enough for those that do not only wait
        (128, 128, 16, 128, 0),  # too little for anything
    ],
)
def test_the_limit_is_raised_as_far_as_it_has_to_be(
    soft: int, hard: int, idle: int, soft_then: int, waiting: int
) -> None:
    command = [sys.executable, "-c", TOLD, str(soft), str(hard)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert tuple(map(int, told.split())) == (idle, soft_then, hard, waiting)
