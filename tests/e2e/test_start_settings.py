"""A crawl is started again in its folder, as a user types it: its settings stay, or the user says that they change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crawler.cli.main import app
from tests.e2e.harness import Finished, Tables, toml
from tests.site import Request, Site
from tests.typed import Typed

pytestmark = pytest.mark.e2e

PAGES = 12


def respond(request: Request) -> str | None:
    """One page that links to all others, at a port that crawls only visit if their settings allow it."""
    root = "".join(f"<a href=/{number}>" for number in range(1, PAGES))
    return {"/robots.txt": None, "/": root}.get(request.path, "<p>a page")


class Folder:
    """A folder in which a user crawls the site with no option but those of the test."""

    def __init__(self, path: Path, port: int, typed: Typed) -> None:
        self._path = path
        self._port = port
        self._typed = typed
        self.seed = f"http://127.0.0.1:{port}/"

    def type(self, *words: str, **environment: str) -> Finished:
        """In this process, which is much faster."""
        return self._typed(*words, environment={"COLUMNS": "200", **environment})

    def write(self, changes: Tables) -> None:
        """crawler.toml: what this site needs, and `changes`."""
        tables: Tables = {
            "politeness": {"delay": 0.02, "response_share": 0},
            "fetch": {"allow_private": True, "ports": [self._port]},
        }
        (self._path / "crawler.toml").write_text(toml({**tables, **changes}))

    @property
    def status(self) -> Any:
        """Asked in this process, which is much faster."""
        words = ["status", "--json", "--data-dir", str(self._path / ".crawler")]
        return json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)

    @property
    def counts(self) -> tuple[int, int, int]:
        """URLs that are done, denied and open."""
        found = self.status
        return found["done"], found["denied"], found["open"]


@pytest.fixture
def folder(tmp_path: Path, typed: Typed) -> Iterator[Folder]:
    """In which a crawl of a few of the site's pages has ended."""
    with Site(respond) as site:
        made = Folder(tmp_path, site.port, typed)
        made.write({"limits": {"max_pages": 3}})
        done = made.type("crawl", made.seed, "-s", "crawler.toml", "--quiet")
        assert done.code == 0, done.err
        assert made.counts == (3, 0, PAGES - 3)
        yield made


def test_a_bare_crawl_continues_with_the_settings_of_the_crawl(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names no setting, so the defaults, which would deny every URL that is queued, play no part."""
    monkeypatch.delenv("CRAWLER_SCOPE__GUESS_SITEMAPS")
    for words in ((), (folder.seed,)):
        done = folder.type("crawl", *words)
        assert done.code == 0, done.err
        (line,) = [line for line in done.err.splitlines() if "settings of its own" in line]
        assert line.startswith("the crawl has settings of its own, which apply: politeness.delay = 0.02, ")
        assert "limits.max_pages = 3" in line
        assert "and 2 more" in line
        assert folder.counts == (3, 0, PAGES - 3)
        assert folder.status["settings_revision"] == 1


def test_a_crawl_goes_on_with_its_own_settings_and_then_with_new_ones(folder: Folder) -> None:
    for words in (("-s", "crawler.toml"), ("--keep-settings",)):
        done = folder.type("crawl", "--quiet", *words)
        assert done.code == 0, done.err
        assert folder.counts == (3, 0, PAGES - 3)
    folder.write({})
    assert folder.type("crawl", "--quiet", "-s", "crawler.toml").code == 2
    done = folder.type("crawl", "--quiet", "-s", "crawler.toml", "--apply-settings", "--replicas", "2")
    assert done.code == 0, done.err
    assert folder.counts == (PAGES, 0, 0)


@pytest.mark.parametrize("replicas", ["1", "2"])
def test_a_replica_starts_with_the_settings_of_the_crawl_alone(folder: Folder, replicas: str) -> None:
    """The environment, which its processes inherit, is compared by the command and not again by each of them."""
    words = ("run", "--replicas", replicas, "--until-empty")
    for given in ({"CRAWLER_POLITENESS__DELAY": "0.02"}, {}):
        done = folder.type(*words, **given)
        assert done.code == 0, done.err
    slow = {"CRAWLER_POLITENESS__DELAY": "9"}
    done = folder.type(*words, **slow)
    assert done.code == 2, done.err
    shown, last = done.err.splitlines()
    assert shown == "politeness.delay: 0.02 in the crawl, 9.0 here"
    assert last.startswith("error: crawl 'crawl' ")
    folder.write({"limits": {"max_pages": 4}})
    assert folder.type(*words, "-s", "crawler.toml").code == 2
    assert folder.counts == (3, 0, PAGES - 3)
    done = folder.type(*words, "--keep-settings", **slow)
    assert done.code == 0, done.err
    done = folder.type(*words, "-s", "crawler.toml", "--apply-settings")
    assert done.code == 0, done.err
    assert folder.counts == (4, 0, PAGES - 4)
