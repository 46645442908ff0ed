"""Messages name what the user typed, and the commands in them can be copied. Defaults do not depend on what else is set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from crawler.cli.options import typed_options
from crawler.errors import TRY_LATER
from tests.cli.screen import Screen
from tests.typed import Typed
from tests.valkey import ValkeyProcess

SITE = "https://a.test/"


class OldRedis(StreamRequestHandler):
    """Answers as Redis 6.0.16 does to what a client sends first."""

    def handle(self) -> None:
        while header := self.rfile.readline():
            words = [self._word() for _ in range(int(header[1:]))]
            info = b"# Server\r\nredis_version:6.0.16\r\n"
            self.wfile.write(b"$%d\r\n%s\r\n" % (len(info), info) if words[0] == b"INFO" else b"+OK\r\n")

    def _word(self) -> bytes:
        return self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2]


@pytest.fixture
def old_redis() -> Iterator[str]:
    with ThreadingTCPServer(("127.0.0.1", 0), OldRedis) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_that_is_too_old_is_named_as_it_was_typed(typed: Typed, old_redis: str) -> None:
    done = typed("seed", SITE, "--redis", f"redis://user:secret@{old_redis}/0")
    assert done.code == 2
    wanted = f"error: Redis at redis://{old_redis}/0 is version 6.0.16; use Redis 7.0 or later, or Valkey\n"
    assert done.err == wanted


def test_a_server_that_refuses_connections_is_reported_with_what_to_check(typed: Typed) -> None:
    done = typed("status", "--redis", "redis://127.0.0.1:1/0")
    assert done.code == TRY_LATER
    (line,) = done.err.splitlines()
    assert line.startswith("error: Redis at redis://127.0.0.1:1/0 cannot serve now: ")
    assert line.endswith("; check that it is running, and the host and port in the Redis URL")


@pytest.mark.parametrize("command", [("status",), ("run",), ("run", "--replicas", "2"), ("pause",), ("why", SITE)])
def test_the_command_that_creates_a_missing_crawl_can_be_copied(
    typed: Typed, tmp_path: Path, valkey: ValkeyProcess, crawl_name: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "seeds.txt").write_text(SITE)
    done = typed(*command, "--crawl", crawl_name, "--redis", valkey.url)
    assert done.code == 2
    assert f"no crawl named '{crawl_name}' at {valkey.url}" in done.err
    (copied,) = re.findall(r"to create it: crawler (.*) -f FILE", done.err)
    assert typed(*shlex.split(copied), "-f", "seeds.txt").code == 0
    assert typed("status", "--crawl", crawl_name, "--redis", valkey.url).code == 0


def test_a_folder_and_a_file_are_part_of_the_copied_command(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "my settings.toml").write_text('[replica]\ndata_dir = "queue"\n')
    place = ("-s", "my settings.toml")
    missing = typed("status", "--crawl", "news", *place).err
    assert "no folder queue/" in missing
    assert "crawler crawl --crawl news --settings 'my settings.toml' URL" in missing
    assert typed("seed", SITE, *place).code == 0
    missing = typed("status", "--crawl", "news", *place).err
    assert "no crawl named 'news' in queue/; there are: crawl (choose one with --crawl)" in missing
    assert "crawler seed --crawl news --settings 'my settings.toml' -f FILE" in missing


def test_a_copied_url_has_a_placeholder_for_its_credentials() -> None:
    shown = typed_options("rediss://user:secret@queue:6380/1?password=secret", Path("data"), None)
    assert shown == " --redis 'rediss://USER:PASSWORD@queue:6380/1?password=PASSWORD' --data-dir data"


# defaults


@pytest.mark.parametrize("text", ["", "[frontier]\nlease = 5\n", "[politeness]\ndelay = 2\n", "[replica]\ngrace = 1\n"])
def test_the_default_number_of_shards_depends_on_the_store_alone(typed: Typed, tmp_path: Path, text: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    assert typed("seed", SITE, "-s", "c.toml").code == 0
    assert "shards = 64" in typed("config", "show").out
    assert typed("seed", SITE, "-s", "c.toml").code == 0, "the same file is not a difference"


def test_the_number_of_shards_that_was_set_is_used(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[frontier]\nshards = 1024\n")
    assert typed("seed", SITE, "-s", "c.toml").code == 0
    assert "shards = 1024" in typed("config", "show").out


# values


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("delay", "d.test", "1s"), "'SECONDS': '1s' must be a valid number"),
        (("delay", "d.test", "--", "-1"), "'SECONDS': '-1' must be greater than or equal to 0"),
        (("delay", "d.test", "nan"), "'SECONDS': 'nan' must be greater than or equal to 0"),
        (("crawl", SITE, "--delay", "NaN"), "'--delay': 'NaN' must be greater than or equal to 0"),
        (("crawl", SITE, "--port", "80", "--port", "70000"), "'--port': '70000' must be less than or equal to 65535"),
        (("crawl", SITE, "--max-pages", "1k"), "'--max-pages': '1k' must be a valid integer"),
        (("crawl", SITE, "--max-pages", "1_000.5"), "'--max-pages': '1_000.5' must be a valid integer"),
        (("crawl", SITE, "--delay", "1s"), "'--delay': '1s' must be a valid number"),
        (("crawl", SITE, "--max-depth", "300"), "'--max-depth': '300' must be less than or equal to 255"),
        (("crawl", SITE, "--port", "https"), "'--port': 'https' must be a valid integer"),
        (("run", "--replicas", "0"), "'--replicas': '0' must be greater than or equal to 1"),
        (("top", "--every", "fast"), "'--every': 'fast' must be a valid number"),
        (("audit", "out", "--tolerance", "1ms"), "'--tolerance': '1ms' must be a valid number"),
        (
            ("export", "out", "--format", "xml"),
            "'--format': 'xml' is not one of 'jsonl', 'parquet', 'markdown', 'wacz', 'csv'",
        ),
    ],
)
def test_a_value_that_cannot_be_used_is_shown_as_it_was_typed(
    typed: Typed, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    done = typed(*words)
    assert (done.code, done.err) == (2, f"error: Invalid value for {told}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("crawl", "http://127.0.0.1:3000/", "http://127.0.0.1:3001/a-page"),
        ("crawl", SITE, "--format", "parquet"),
        ("run", "--interval", "inf"),
        ("export", "missing-folder-with-a-long-name", "--format", "markdown"),
    ],
    ids=lambda words: words[0],
)
def test_a_terminal_breaks_messages_between_words(typed: Typed, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The same words as in a pipe, where a message is one line."""
    whole = typed(*words).err.split()
    with Screen(tmp_path, *words, columns=40) as screen:
        assert screen.wait() == 2
        assert screen.text.split() == whole
        assert max(map(len, screen.text.splitlines())) <= 40
