"""A command that is refused says why in one line and creates nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.typed import Typed
from tests.valkey import ValkeyProcess

CRAWL = ("crawl", "http://127.0.0.1:8000/", "--allow", "127.0.0.1")
A_FILE = "cannot write in {}: {}, not a folder; choose another folder with --out"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "bad.txt").write_text("ftp://a.test/\n")
    (tmp_path / "upload.toml").write_text('[archive]\nupload = "file"\n')
    return tmp_path


@pytest.fixture
def taken() -> Iterator[str]:
    """A port at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*CRAWL, "--out", "file"), A_FILE.format("file", "it is a file")),
        ((*CRAWL, "--out", "file/in/it"), A_FILE.format("file/in/it", "{}/file is a file")),
        ((*CRAWL, "--out", "link"), A_FILE.format("link", "it is a link to nothing")),
        ((*CRAWL, "--out", "/proc/pages"), "cannot write in /proc/pages: "),
        ((*CRAWL, "--data-dir", "file"), "data directory {}/file cannot be used (it is a file, not a folder)"),
        (
            (*CRAWL, "--data-dir", "file/x"),
            "data directory {0}/file/x cannot be used ({0}/file is a file, not a folder)",
        ),
        ((*CRAWL, "--listen", "PORT"), "cannot listen at PORT: Address already in use"),
        ((*CRAWL, "--settings", "upload.toml"), "upload.toml:2: archive.upload: cannot write in file: it is a file"),
        ((*CRAWL, "--on-page", "nothing:here"), "--on-page: archive.on_page: 'nothing:here' cannot be imported"),
        (("crawl",), "no seeds"),
        (("crawl", "-f", "bad.txt"), "no seeds"),
        (("crawl", "-f", "missing.txt"), "seed file missing.txt: No such file or directory"),
        (("seed", "-f", "bad.txt"), "no seeds"),
        (("seed", "http://127.0.0.1/"), "no seed can be fetched"),
        (("demo", "--pages", "10"), "each domain needs at least one page: give --pages 60, or fewer --domains"),
        (("demo", "--out", "file"), A_FILE.format("file", "it is a file")),
        (("run",), "no crawl here"),
        (("run", "--replicas", "2"), "no crawl here"),
        (("export", "file", "--out", "file"), A_FILE.format("file", "it is a file")),
        (("audit", "file"), "file: a file, not a folder"),
        (("finish", "file"), "file: a file, not a folder"),
        (("finish", "missing"), "missing: no such folder"),
        (("status",), "no crawl here"),
        (("config", "apply", "upload.toml"), "no crawl here"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_nothing_is_created(typed: Typed, folder: Path, taken: str, words: tuple[str, ...], said: str) -> None:
    before = sorted(folder.iterdir())
    done = typed(*(word.replace("PORT", taken) for word in words))
    error = done.err.splitlines()[-1]
    assert (done.code, error.startswith("error: " + said.format(folder).replace("PORT", taken))) == (2, True), done.err
    assert "pages" not in done.out  # no summary
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "words", [("--out", "file"), ("--listen", "PORT"), ("--replicas", "2", "--out", "file")], ids=" ".join
)
def test_a_run_that_is_refused_leaves_the_crawl_as_it_was(
    typed: Typed, folder: Path, taken: str, words: tuple[str, ...]
) -> None:
    assert typed("seed", "https://a.test/").code == 0
    before = sorted(folder.iterdir())
    done = typed("run", "--until-empty", *(word.replace("PORT", taken) for word in words))
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert sorted(folder.iterdir()) == before


def test_no_crawl_is_created_in_a_shared_store(
    typed: Typed, folder: Path, valkey: ValkeyProcess, crawl_name: str
) -> None:
    place = ("--redis", valkey.url, "--crawl", crawl_name)
    assert typed(*CRAWL, "--out", str(folder / "file"), *place).code == 2
    assert f"no crawl named '{crawl_name}'" in typed("status", *place).err
