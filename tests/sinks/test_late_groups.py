"""A group that is settled later than the groups after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from crawler.sinks.archive import Archive
from frontier.entries import Entry
from frontier.settle import LeasedUrl
from tests.sinks.values import exchange, page, settings

BODY = b"the same text " * 100


def leased(name: str) -> LeasedUrl:
    return LeasedUrl(0, "site.test", 1, Entry(f"https://site.test/{name}", "site.test"))


def archived(folder: Path) -> list[str]:
    files = sorted(folder.glob("*.pages.jsonl"))
    return sorted(json.loads(line)["url"][-1] for file in files for line in file.read_text().splitlines())


async def write(archive: Archive, *names: str) -> frozenset[str]:
    """Write pages with the same body. Returns those that refer to an earlier record of it."""
    pages = [page(exchange(name, BODY)) for name in names]
    return (await archive.write(pages, (), [leased(name) for name in names])).duplicates


async def test_other_groups_are_written_meanwhile_and_do_not_refer_to_it(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await write(archive, "a", "b")
    settle_first = await archive.set_aside()
    assert await write(archive, "c") == frozenset()  # "a" may still be removed
    await archive.settled()
    assert await write(archive, "d") == {"https://site.test/d"}
    await archive.settled()
    await settle_first([0])
    await archive.stop()
    assert archived(tmp_path) == ["b", "c", "d"]


@pytest.mark.parametrize("was_settled", [False, True])
async def test_a_later_start_decides_about_the_last_pages_if_the_server_may_have_lost_that_they_were_settled(
    tmp_path: Path, was_settled: bool
) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await write(archive, "a")
    await archive.settled()
    await archive.stop(is_in_doubt=True)
    assert archived(tmp_path) == []

    async def revoke(urls: Sequence[LeasedUrl], crawl: str) -> list[bool]:
        assert [url.entry.url[-1] for url in urls] == ["a"]
        return [not was_settled]

    heir = Archive(settings(tmp_path, replica="heir"))
    await heir.start(revoke)
    await heir.stop()
    assert archived(tmp_path) == (["a"] if was_settled else [])


@pytest.mark.parametrize("was_settled", [False, True])
async def test_a_later_start_decides_about_a_group_that_stayed_aside(tmp_path: Path, was_settled: bool) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await write(archive, "a")
    await archive.set_aside()
    await write(archive, "b")
    await archive.settled()
    await archive.stop()
    assert archived(tmp_path) == ["b"]

    async def revoke(urls: Sequence[LeasedUrl], crawl: str) -> list[bool]:
        assert [url.entry.url[-1] for url in urls] == ["a"]
        return [not was_settled]

    heir = Archive(settings(tmp_path, replica="heir"))
    await heir.start(revoke)
    await heir.stop()
    assert archived(tmp_path) == (["a", "b"] if was_settled else ["b"])
