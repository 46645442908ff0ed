"""Where the output of a crawl is: commands without `--out` say it, and find what was written with it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from crawler.cli.demo import remove_output
from tests.e2e.harness import Finished
from tests.e2e.test_requeue import BrokenSite
from tests.sinks.values import archived, exchange, page
from tests.typed import Typed
from tests.valkey import ValkeyProcess

URL = "http://127.0.0.1:1/"
ONCE = {"CRAWLER_POLITENESS__TRIES": "1"}


@pytest.fixture
def crawled(typed: Typed) -> Finished:
    """A crawl into the folder `pages`, of one URL where nobody listens."""
    words = ("crawl", URL, "--allow", "127.0.0.1", "--port", "1", "--out", "pages", "--quiet")
    done = typed(*words, environment=ONCE)
    assert "output in pages/" in done.out
    return done


@pytest.mark.usefixtures("crawled")
def test_run_says_where_its_output_goes_and_where_the_earlier_one_is(typed: Typed, tmp_path: Path) -> None:
    done = typed("run", "--until-empty")
    assert done.code == 0, done.err
    assert "output folder=crawl-out/" in done.err
    assert "earlier_output folders=pages/" in done.err
    again = typed("run", "--until-empty", "--out", str(tmp_path / "pages"))
    assert "output folder=pages/" in again.err
    assert "earlier_output folders=crawl-out/" in again.err


@pytest.mark.usefixtures("crawled")
def test_a_crawl_whose_data_are_lost_can_be_repaired(typed: Typed, tmp_path: Path) -> None:
    """Its output is still there, and commands say so."""
    shutil.rmtree(tmp_path / ".crawler")
    place = ("--allow", "127.0.0.1", "--port", "1", "--out", "pages", "--quiet")
    out = {"CRAWLER_REPLICA__OUT": "pages"}
    restored = "restore the crawl in the output with `crawler repair`"
    assert restored in typed("status", environment=out).err
    assert f"give URLs, or a seed file with -f FILE, or {restored}" in typed("crawl", "--out", "pages").err
    assert "restore" not in typed("crawl", "--out", "other").err
    # and a new crawl says what restores the earlier one.
    noted = typed("crawl", URL, *place, environment=ONCE).err
    repair = ("repair", "--crawl", "crawl", "--archive", "pages")
    assert f"remove .crawler/, and run `crawler {' '.join(repair)}` with its settings and seeds" in whole(noted)
    assert typed(*repair).out == "no shard has lost its data\n"
    shutil.rmtree(tmp_path / ".crawler")
    assert "64 shards restored: 1 URL settled" in typed(*repair).out
    # A crawl of another name is not there to be repaired.
    shutil.rmtree(tmp_path / ".crawler")
    mistyped = typed("repair", "--crawl", "crwal", "--archive", "pages")
    assert (mistyped.code, mistyped.out) == (2, "")
    assert "pages has output of crawls: crawl; " in mistyped.err
    assert "no crawl named 'crwal'" in typed("status", "--crawl", "crwal").err


@pytest.mark.parametrize("words", [("status",), ("run", "--until-empty"), ("run", "--until-empty", "--replicas", "2")])
def test_a_crawl_that_redis_has_lost_can_be_repaired(
    typed: Typed, valkey: ValkeyProcess, crawl_name: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Only if its output is there: without it, the crawl is to be created."""
    place = ("--crawl", crawl_name, "--redis", valkey.url)
    said = f"to restore it, with its settings: crawler repair {' '.join(place)} --archive crawl-out -f FILE"
    without = typed(*words, *place).err
    (tmp_path / "crawl-out").mkdir()
    (tmp_path / "crawl-out" / f"{crawl_name}-r1-2026.pages.jsonl").touch()
    done = typed(*words, *place)
    assert (done.code, f"crawl-out/ has its output; {said}" in done.err, done.err.count("\n")) == (2, True, 1), done.err
    assert said not in without
    assert "; to create it: crawler seed" in without


@pytest.mark.usefixtures("crawled")
def test_run_finds_lost_output_in_the_folder_that_it_is_given(typed: Typed, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / ".crawler")
    said = "restore the crawl in the output with `crawler repair`"
    assert said in typed("run", "--out", "pages").err
    assert said not in typed("run").err


@pytest.mark.usefixtures("crawled")
def test_why_finds_the_output_and_names_the_folders_that_it_searched(typed: Typed, tmp_path: Path) -> None:
    told = typed("why", URL).out
    assert "given up: robots_unreachable: robots.txt: refused" in told
    assert "searched" in told
    assert "pages" in told.splitlines()[-1]
    (tmp_path / "empty").mkdir()
    elsewhere = typed("why", URL, "--out", "empty").out
    assert "robots_unreachable)" not in elsewhere
    assert elsewhere.splitlines()[-1].split() == ["searched", "empty"]


@pytest.mark.usefixtures("crawled")
def test_why_searches_all_folders_that_are_given(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    told = typed("why", URL, "--out", "other", "--out", "pages").out
    assert "given up: robots_unreachable: robots.txt: refused" in told
    assert told.splitlines()[-1].split() == ["searched", "other,", "pages"]


def test_audit_and_export_name_the_other_folders_of_the_crawl(typed: Typed, tmp_path: Path) -> None:
    with BrokenSite() as site:
        options = ("--allow", "127.0.0.1", "--port", str(site.port), "--quiet", "--delay", "0")
        seed = site.url
        assert typed("crawl", seed, *options, "--out", "first").code == 0
        assert typed("seed", seed, "--again").code == 0
        assert typed("crawl", *options, "--out", str(tmp_path / "second")).code == 0
    for words in (("audit",), ("export",)):
        assert "note: the crawl has also written to second/: name all its folders" in whole(typed(*words, "first").err)
        assert "first/" in whole(typed(*words, "second").err)
        assert "name all" not in whole(typed(*words, "first", "second").err)


def whole(text: str) -> str:
    """`text` without its line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("words", [(), ("--replicas", "2")])
def test_run_of_a_stopped_crawl_says_what_lets_it_run(typed: Typed, words: tuple[str, ...]) -> None:
    assert typed("seed", "https://a.test/").code == 0
    assert typed("stop").code == 0
    done = typed("run", "--until-empty", *words)
    told = "crawl 'crawl' was stopped, so nothing was started; `crawler resume --crawl crawl` lets it run"
    assert (done.code, done.err) == (2, f"error: {told}\n")


def test_crawl_lets_a_stopped_crawl_run_again(typed: Typed, crawled: Finished) -> None:
    assert typed("stop").code == 0
    assert typed("crawl", "--quiet", "--keep-settings", environment=ONCE).code == 0
    assert typed("run", "--until-empty").code == 0


def test_run_of_a_paused_crawl_says_what_it_waits_for(typed: Typed, crawled: Finished) -> None:
    assert typed("pause").code == 0
    done = typed("run", "--until-empty", "--out", "pages")
    assert "crawl_paused crawl=crawl" in done.err
    assert "crawler resume --crawl crawl" in done.err


def test_finish_of_a_folder_that_was_copied_needs_no_crawl(typed: Typed, tmp_path: Path) -> None:
    """If no file is open, there is nothing to ask Redis."""
    (tmp_path / "out").mkdir()
    done = typed("finish", "out")
    assert (done.code, done.out) == (0, "out/ has no open files with pages\n")


def crawl_into(typed: Typed, folders: Iterable[tuple[str, str, str]]) -> None:
    """Crawl a site for each (crawl, folder, delay)."""
    with BrokenSite() as site:
        seed = site.url
        place = ("--allow", "127.0.0.1", "--port", str(site.port), "--quiet")
        for crawl, folder, delay in folders:
            assert typed("crawl", seed, *place, "--crawl", crawl, "--out", folder, "--delay", delay).code == 0


def test_audit_and_export_ask_which_crawl_of_a_folder_is_meant(typed: Typed, tmp_path: Path) -> None:
    """A file news-two-... is of the crawl news-two. With the output of one crawl only, nothing is asked."""
    crawl_into(typed, [("news", "out", "0"), ("news-two", "out", "0.01")])
    items = ("export", "out", "--changes", "--since", "2026-01-01")
    for words in (("audit", "out"), ("export", "out"), ("export", "out", "--format", "wacz"), items):
        done = typed(*words)
        told = "error: out has output of several crawls: news, news-two; name one, such as --crawl news\n"
        assert (done.code, done.err) == (2, told)
        assert "of crawls: news, news-two; there is none of a crawl 'x'" in typed(*words, "--crawl", "x").err
    for crawl, delay in (("news", "0 s"), ("news-two", "0.01 s")):
        judged = whole(typed("audit", "out", "--crawl", crawl).out)
        assert f"a delay of {delay}, as out/{crawl}.settings.toml has it" in judged
        assert "in 2 files" in judged
        assert typed("export", "out", "--crawl", crawl, "--out", crawl).code == 0
        assert [path.name.startswith(f"{crawl}-") for path in (tmp_path / crawl).glob("*.jsonl")] == [True]
    for path in (tmp_path / "out").glob("news-two-*"):
        path.unlink()
    assert typed("export", "out").code == 0
    assert "a delay of 0 s, as out/news.settings.toml has it" in whole(typed("audit", "out").out)


def test_folders_of_one_crawl_each_are_exported_together_but_not_audited(typed: Typed, tmp_path: Path) -> None:
    """An audit judges all requests of one crawl together."""
    crawl_into(typed, [("a", "x", "0"), ("b", "y", "0")])
    assert typed("export", "x", "y", "--out", "both").code == 0
    assert sorted(path.name[:2] for path in (tmp_path / "both").glob("*.jsonl")) == ["a-", "b-"]
    done = typed("audit", "x", "y")
    told = "error: x, y have output of several crawls: a, b; name one, such as --crawl a\n"
    assert (done.code, done.err) == (2, told)
    done = typed("audit", "x", "y", "--crawl", "a")
    told = "error: nothing to audit in y: no WARC file and no *.pages.jsonl of crawl 'a'\n"
    assert (done.code, done.err) == (2, told)


def test_a_demo_removes_only_what_demos_have_written(tmp_path: Path) -> None:
    asyncio.run(archived(tmp_path, [page(exchange("a", b"x"))], crawl="demo"))
    assert len(list(tmp_path.iterdir())) > 1
    (tmp_path / "demo-notes.txt").write_text("mine")
    (tmp_path / "mine").mkdir()
    remove_output(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"demo-notes.txt", "mine"}
