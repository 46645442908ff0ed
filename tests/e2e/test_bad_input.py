"""Invalid input results in a one-line message that says what to do, a non-zero exit code, and no changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from frontier.keys import meta_key
from frontier.scripts import command
from frontier.store import connect
from tests.e2e.harness import Finished
from tests.typed import Typed
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

CRAWL, RUN, SEED = "crawl", "run", "seed"
NOWHERE = "redis://127.0.0.1:9/0"


def assert_refused(done: Finished, *told: str) -> None:
    assert done.code not in (0, 1), done
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith("error: "), done.err
    for words in told:
        assert words in done.err


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


SITE = "http://a.test/"
TABLE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "malformed URL": ((CRAWL, "http://[::1/"), ("http://[::1/", "https://HOST/PATH")),
    "scheme that is not crawled": ((CRAWL, "ftp://a.test/"), ("ftp://a.test/", "https://a.test/")),
    "no seeds": ((CRAWL,), ("-f FILE",)),
    "unknown setting": ((CRAWL, SITE, "-s", "unknown.toml"), ("politeness.delayy", "unknown.toml")),
    "malformed setting": ((CRAWL, SITE, "-s", "malformed.toml"), ("politeness.delay",)),
    "settings that are not TOML": ((CRAWL, SITE, "-s", "broken.toml"), ("broken.toml", "TOML")),
    "settings file missing": ((CRAWL, SITE, "-s", "missing.toml"), ("missing.toml", "No such file")),
    "Redis that is not there": ((SEED, SITE, "--redis", NOWHERE), ("127.0.0.1:9",)),
    "replica without Redis": ((RUN, "--redis", NOWHERE), ("127.0.0.1:9",)),
    "replicas without Redis": ((RUN, "--replicas", "2", "--redis", NOWHERE), ("127.0.0.1:9",)),
    "Redis URL of another scheme": ((RUN, "--redis", "http://127.0.0.1:9"), ("redis://",)),
    "Redis URL without scheme": ((RUN, "--redis", "127.0.0.1:9"), ("redis://",)),
    "data directory that is a file": ((CRAWL, SITE, "--data-dir", "file"), ("file", "--data-dir")),
    "data directory below a file": ((CRAWL, SITE, "--data-dir", "file/below"), ("file/below", "--data-dir")),
    "seed file missing": ((SEED, "-f", "missing.txt"), ("missing.txt", "No such file")),
    "crawl name that cannot be": ((SEED, SITE, "--crawl", "a b", "--redis", NOWHERE), ("a b",)),
}


@pytest.mark.parametrize(("words", "told"), TABLE.values(), ids=TABLE)
def test_bad_input_is_one_line_and_changes_nothing(
    typed: Typed, tmp_path: Path, words: tuple[str, ...], told: tuple[str, ...]
) -> None:
    (tmp_path / "unknown.toml").write_text("[politeness]\ndelayy = 1\n")
    (tmp_path / "malformed.toml").write_text('[politeness]\ndelay = "soon"\n')
    (tmp_path / "broken.toml").write_text("[politeness\n")
    (tmp_path / "file").write_text("")
    before = contents(tmp_path)
    assert_refused(typed(*words), *told)
    assert contents(tmp_path) == before


def test_output_folder_that_is_a_file(typed: Typed, tmp_path: Path, valkey: ValkeyProcess, crawl_name: str) -> None:
    """The replica refuses before it joins, so the seeds stay queued."""
    (tmp_path / "file").write_text("")
    assert typed(SEED, SITE, "--crawl", crawl_name, "--redis", valkey.url).code == 0
    done = typed(RUN, "--crawl", crawl_name, "--redis", valkey.url, "--out", "file")
    assert_refused(done, "file")


@pytest.mark.parametrize("words", [(RUN,), (SEED, SITE), ("status",)], ids=" ".join)
def test_crawl_of_another_schema(typed: Typed, valkey: ValkeyProcess, crawl_name: str, words: tuple[str, ...]) -> None:
    """A crawl that another version has written is not changed."""
    fields = asyncio.run(_as_another_version(valkey.url, crawl_name))
    assert_refused(typed(*words, "--crawl", crawl_name, "--redis", valkey.url), "schema 999")
    assert asyncio.run(_fields(valkey.url, crawl_name)) == fields


async def _as_another_version(url: str, crawl: str) -> list[bytes]:
    store = await connect(url)
    fields = ("schema", "999", "shards", "64", "fingerprint_key", "00" * 16, "settings", "{}")
    await store.send([command("HSET", meta_key(crawl), *fields)])
    await store.close()
    return await _fields(url, crawl)


async def _fields(url: str, crawl: str) -> list[bytes]:
    store = await connect(url)
    (found,) = await store.send([command("HVALS", meta_key(crawl))])
    await store.close()
    return list(found)
