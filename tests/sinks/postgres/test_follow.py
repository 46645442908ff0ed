"""Data sets that follow a running crawl into tables of a real PostgreSQL server."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest

from crawler.sinks.archive import Archive
from crawler.sinks.journal import JournalEntry, encoded
from frontier.entries import Entry
from frontier.settle import LeasedUrl
from tests.e2e.harness import ROOT, Running, wait_until
from tests.postgres import PASSWORD, PostgresProcess, need_postgres
from tests.sinks import readers
from tests.sinks.postgres.exports import Export, product
from tests.sinks.values import exchange, page, settings

need_postgres()


def rows(server: PostgresProcess) -> int:
    """The number of rows of the table, 0 if there is none."""
    return server.query("SELECT count(*) FROM shop")[0][0] if server.query("SELECT to_regclass('shop')")[0][0] else 0


def lines(*numbers: int) -> bytes:
    """Lines of pages with an item each."""
    made = (
        {"url": f"https://a.test/{n}", "settled_at": "2026-01-01T00:00:00.000Z", "items": {"shop": [{"url": n}]}}
        for n in numbers
    )
    return b"".join(msgspec.json.encode(line) + b"\n" for line in made)


class Following:
    """`crawler export --follow` on the folder `out`, in a process of its own. `more`: words in place of the folder."""

    def __init__(self, folder: Path, server: PostgresProcess, *more: str) -> None:
        words = ["export", *(more or ("out",)), "--items", "shop", "--to", server.url, "--key", "url", "--follow"]
        environment = {"PGPASSWORD": PASSWORD, "PYTHONPATH": str(ROOT)}
        self.process = Running([sys.executable, "-m", "crawler", *words], folder, "follow", environment)


def follow_until(folder: Path, server: PostgresProcess, number: int, *words: str) -> None:
    """Follow the crawl in `folder` until the table has this `number` of rows."""
    following = Following(folder, server, *words).process
    wait_until(lambda: rows(server) == number, f"{number} rows", 20)
    following.send(signal.SIGTERM)
    assert following.wait().code == 0


def test_items_are_followed_as_their_pages_are_settled(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    """Through the end of a file, a kill of the command, and a restart of the server."""
    (tmp_path / "out").mkdir()
    opened, journal = tmp_path / "out/a.pages.jsonl.open", tmp_path / "out/a.journal.open"
    journal.write_bytes(encoded(JournalEntry("crawl", 0, len(lines(1, 2)), [])))
    opened.write_bytes(lines(1, 2, 3)[:-1])
    following = Following(tmp_path, server).process
    wait_until(lambda: rows(server) == 2, "two rows")  # the third is not settled
    journal.write_bytes(b"")  # while it is written anew, nothing is known
    opened.write_bytes(lines(1, 2, 3, 4))
    time.sleep(1.5)
    assert rows(server) == 2
    journal.write_bytes(encoded(JournalEntry("crawl", 0, len(lines(1, 2, 3)), [])))
    wait_until(lambda: rows(server) == 3, "three rows")
    following.kill()
    opened.write_bytes(lines(1, 2, 3, 5))  # the fourth page was taken back
    journal.unlink()
    opened.rename(tmp_path / "out/a.pages.jsonl")
    server.query("DELETE FROM shop WHERE url = 1")
    following = Following(tmp_path, server).process
    wait_until(lambda: rows(server) == 3, "the fifth item")
    assert server.query("SELECT url FROM shop ORDER BY url") == [(2,), (3,), (5,)]  # what was read is not read again
    server.kill()
    (tmp_path / "out/b.pages.jsonl").write_bytes(lines(6))
    wait_until(lambda: "database_away" in following.err, "the outage to be noticed")
    server.start()
    wait_until(lambda: rows(server) == 4, "the sixth item")
    following.send(signal.SIGINT)
    done = following.wait()
    assert (done.code, done.out) == (0, "2 items; 2 rows of the table shop new or replaced\n")


def test_a_crawl_may_be_started_after_its_follower(server: PostgresProcess, tmp_path: Path) -> None:
    """Its output folder does not exist yet. A key that is named twice counts once."""
    following = Following(tmp_path, server, "out", "--key", "url").process
    wait_until(lambda: "waiting for out, which a crawl makes" in following.err, "the note")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.pages.jsonl").write_bytes(lines(1, 2))
    wait_until(lambda: rows(server) == 2, "two rows")
    following.send(signal.SIGINT)
    assert following.wait().code == 0


def test_a_follower_that_waits_for_a_folder_can_be_stopped(server: PostgresProcess, tmp_path: Path) -> None:
    following = Following(tmp_path, server).process
    wait_until(lambda: "waiting for out" in following.err, "the note")
    following.send(signal.SIGINT)
    assert following.wait().code == 0


async def test_items_arrive_while_a_short_crawl_runs(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    """Also those of the last group, which no other one follows. Those of a group that is not settled do not."""
    archive = Archive(settings(tmp_path / "out"))
    await archive.start()
    following = Following(tmp_path, server).process

    async def write(name: str) -> None:
        one = page(exchange(name, b"x"), items=(product(name),))
        await archive.write([one], (), [LeasedUrl(0, "site.test", 7, Entry(one.url, "site.test"))])

    for number in range(3):
        await write(f"{number}")
        await archive.settled()
    await asyncio.to_thread(wait_until, lambda: rows(server) == 3, "three rows", 20)
    await write("3")
    await asyncio.sleep(2.5)
    assert rows(server) == 3
    await archive.settled()
    await asyncio.to_thread(wait_until, lambda: rows(server) == 4, "the fourth row", 20)
    assert readers.files(tmp_path / "out", ".pages.jsonl.open")
    following.send(signal.SIGINT)
    assert following.wait().code == 0
    await archive.stop()


def test_crawls_whose_files_have_the_same_names_share_a_table(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    """One after the other, and at once."""
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder / "out").mkdir(parents=True)
        (tmp_path / folder / "out/1.pages.jsonl").write_bytes(lines(10 * number, 10 * number + 1))
        follow_until(tmp_path / folder, server, 2 * number + 2)
    both = ("--table", "shop", "a/out", "b/out")
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder / "out/2.pages.jsonl").write_bytes(lines(20 + number))
    follow_until(tmp_path, server, 6, *both)
    server.query("DELETE FROM shop")
    (tmp_path / "b/out/3.pages.jsonl").write_bytes(lines(30))
    follow_until(tmp_path, server, 1, *both)  # what was read is not read again


def test_a_file_that_was_written_anew_is_read_from_the_start(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    """After `crawler forget`, or if Redis has lost that pages were settled: other lines are at the same places."""
    (tmp_path / "out").mkdir()
    file = tmp_path / "out/a.pages.jsonl"
    file.write_bytes(lines(10, 11, 12))
    follow_until(tmp_path, server, 3)
    file.write_bytes(lines(10, 13, 14, 15))
    follow_until(tmp_path, server, 6)
    file.write_bytes(lines(10, 15, 160_000))
    follow_until(tmp_path, server, 7)


def test_a_table_that_was_dropped_and_made_again_is_filled_again(
    export: Export, server: PostgresProcess, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.pages.jsonl").write_bytes(lines(1, 2))
    follow_until(tmp_path, server, 2)
    server.query("DROP TABLE shop; CREATE TABLE shop (url numeric PRIMARY KEY, _settled_at timestamptz)")
    follow_until(tmp_path, server, 2)


def test_exporters_that_start_at_once_share_the_table(export: Export, server: PostgresProcess, tmp_path: Path) -> None:
    followings = []
    for number in range(4):
        folder = tmp_path / str(number)
        (folder / "out").mkdir(parents=True)
        (folder / f"out/{number}.pages.jsonl").write_bytes(lines(number))
        followings.append(Following(folder, server).process)
    try:
        wait_until(lambda: rows(server) == 4, "four rows", 20)
    finally:
        for following in followings:
            following.send(signal.SIGINT)
        ends = [(following.wait().code, following.err) for following in followings]
    assert [code for code, _ in ends] == [0] * 4, ends


@pytest.mark.parametrize("state", ["53100", "57014"])  # a full disk, and a statement that takes too long
def test_an_error_that_need_not_pass_ends_the_command(
    export: Export, server: PostgresProcess, tmp_path: Path, state: str
) -> None:
    server.query(
        "CREATE TABLE shop (url int PRIMARY KEY, _settled_at timestamptz); CREATE OR REPLACE FUNCTION refuse() RETURNS "
        f"trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{state}'; END $$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON shop EXECUTE FUNCTION refuse()"
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.pages.jsonl").write_bytes(lines(1))
    following = Following(tmp_path, server).process
    wait_until(lambda: "as told" in following.err, "the error")
    assert "database_away" not in following.err
    assert following.wait().code == 2
