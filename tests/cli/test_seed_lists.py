"""What is not a seed is refused at once, with what to type instead."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.typed import Typed


@pytest.mark.parametrize("command", ["crawl", "seed"])
@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("seeds.txt", "seeds.txt is a file here, not a URL: to read seeds from it, write -f seeds.txt"),
        ("own.toml", "own.toml is a file here, not a URL: to use its settings, write --settings own.toml"),
        ("--file=own.toml", "seed file own.toml is a settings file: use it with --settings own.toml"),
        ("--file=empty", "no seeds in empty: give a file with one URL per line, or URLs"),
        ("missing.txt", "missing.txt looks like a file, but there is none here; name a seed file with -f FILE"),
        (
            "http//localhost:8101/",
            "seed 'http//localhost:8101/': the colon is missing; write it as http://localhost:8101/",
        ),
        ("https/example.com", "seed 'https/example.com': the colon is missing; write it as https://example.com"),
        (
            "https;//example.com/a",
            "seed 'https;//example.com/a': the colon is missing; write it as https://example.com/a",
        ),
    ],
)
def test_a_word_that_is_no_url_is_refused(typed: Typed, tmp_path: Path, command: str, word: str, told: str) -> None:
    (tmp_path / "seeds.txt").write_text("https://a.test/")
    (tmp_path / "own.toml").touch()
    (tmp_path / "empty").touch()
    done = typed(command, word)
    assert (done.code, done.err) == (2, f"error: {told}\n")
    assert not (tmp_path / ".crawler").exists()


def test_names_without_a_scheme_are_still_seeds(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("httpbin.test/get\nhttps.test\na.test/x.txt\nhttp//a.test/\n")
    done = typed("seed", "-f", "list", "localhost.test:8080", "a.test/seeds.txt", "//b.test/")
    assert done.code == 0, done.err
    assert "6 seeds queued" in done.out
    assert done.err.splitlines() == [
        "note: localhost.test:8080 has no scheme, so it is fetched as http://localhost.test:8080/; for https, write "
        "https://localhost.test:8080/",
        "note: a.test/seeds.txt has no scheme, so it is fetched as https://a.test/seeds.txt; for http, write "
        "http://a.test/seeds.txt",
        "note: //b.test/ has no scheme, so it is fetched as https://b.test/; for http, write http://b.test/",
        "list:4: 'http//a.test/': the colon is missing; write it as http://a.test/",
        "list: 1 line skipped",
    ]


BROKEN = {
    "ftp://a.test/": "only http and https can be crawled; write it as https://a.test/",
    "htp://a.test/x": "only http and https can be crawled; write it as http://a.test/x",
    "mailto:a@a.test": "only http and https can be crawled; write it as https://HOST/PATH",
    "/foo": "the host is missing or not valid; write it as https://HOST/PATH",
    "http://localhost:99999/": "the port is not a number from 1 to 65535; write it as https://HOST:PORT/PATH",
    "someone@example.com": "this is an e-mail address, not a URL; write it as https://HOST/PATH",
    "a..b": "the host is missing or not valid; write it as https://HOST/PATH",
    "https://": "the host is missing or not valid; write it as https://HOST/PATH",
    f"https://a.test/{'x' * 3000}": "a URL can have 2,048 characters; shorten it or leave it out",
    "1,a.test": "no host has a comma; give each URL {place}, and nothing else",
    "https://a.test/ priority=high": "the priority is not a number, or beyond 1e11; write it as priority=5",
    "https://a.test/ https://b.test/": "only priority=NUMBER can follow a URL, after a space; give each URL {place}",
}


@pytest.mark.parametrize(("text", "said"), BROKEN.items(), ids=[text[:30] for text in BROKEN])
def test_a_bad_seed_is_reported_with_what_is_wrong_and_what_to_do(
    typed: Typed, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "list").write_text(f"https://c.test/\n{text}\n")
    done = typed("seed", "-f", "list")
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    said_of_line = said.format(place="on a line of its own")
    assert (done.code, done.err) == (0, f"list:2: '{shown}': {said_of_line}\nlist: 1 line skipped\n")
    done = typed("seed", "https://c.test/", text)
    said_of_word = said.format(place="as an argument of its own")
    assert (done.code, done.err) == (2, f"error: seed '{shown}': {said_of_word}\n")


def test_further_bad_seeds_are_counted(typed: Typed) -> None:
    done = typed("crawl", "ftp://a.test/", "c.test", "ftp://b.test/", "ftp://d.test/")
    assert (done.code, done.err.endswith("write it as https://a.test/ (and 2 more of the URLs cannot be used)\n")) == (
        2,
        True,
    )


def test_the_scheme_of_own_servers_in_a_file_is_named_once(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a.test\n127.0.0.1:3000\nlocalhost:3000/x\n")
    done = typed("seed", "-f", "list", "--allow", "localhost", "--port", "3000")
    assert (done.code, done.err) == (
        0,
        "note: list:2: no scheme, so it is fetched as http://127.0.0.1:3000/; for https, write https://127.0.0.1:3000/, "
        "and 1 more seed\n",
    )


def test_a_file_that_is_no_text_is_refused(typed: Typed, tmp_path: Path) -> None:
    noise = random.Random(7).randbytes(100_000)
    (tmp_path / "noise").write_bytes(noise)
    (tmp_path / "no-nul").write_bytes(noise.replace(b"\0", b""))
    (tmp_path / "utf-16").write_text("https://a.test/\n", encoding="utf-16")
    for name in ("noise", "no-nul", "utf-16"):
        done = typed("crawl", "-f", name)
        told = f"error: seed file {name} is not a text file in UTF-8; a seed file has one URL per line\n"
        assert (done.code, done.err) == (2, told)


def test_bad_lines_are_counted_after_the_first_twenty(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("".join(f"ftp://a.test/{number}\n" for number in range(5_000)) + "https://a.test/\n")
    done = typed("seed", "-f", "list")
    assert (done.code, "1 seed queued" in done.out) == (0, True)
    *lines, more, last = done.err.splitlines()
    assert (len(lines), more) == (20, "list: and 4,980 more lines that are not seeds")
    assert last == "list: 5,000 lines skipped"


def test_localhost_can_be_allowed_by_its_name(typed: Typed) -> None:
    done = typed("seed", "http://localhost:3000/", "--allow", "localhost", "--port", "3000")
    assert (done.code, done.err) == (0, "")
    assert 'allow = ["localhost"]' in typed("config", "show").out


def test_a_crawl_with_nothing_left_says_so(typed: Typed) -> None:
    words = ("crawl", "http://127.0.0.1:1/", "--allow", "127.0.0.1", "--port", "1", "--quiet")
    once = {"CRAWLER_POLITENESS__TRIES": "1"}
    assert typed(*words, environment=once).code == 1  # no page, and nothing left
    again = typed(*words, environment=once)
    assert again.code == 0, again.err
    assert "the crawl has nothing left to crawl: give it other seeds, or" in again.err


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "crawler", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_seeds_can_come_through_a_pipe(tmp_path: Path, pipe: Path) -> None:
    with start(tmp_path, "seed", "-f", "pipe") as process:
        pipe.write_text("https://a.test/\nhttps://b.test/\n")
        out, err = process.communicate(timeout=180)
    assert "2 seeds queued" in out, err


@pytest.mark.parametrize("command", ["crawl", "seed"])
def test_one_interrupt_ends_a_command_that_waits_for_a_seed_file(tmp_path: Path, pipe: Path, command: str) -> None:
    with start(tmp_path, command, "-f", "pipe") as process, pipe.open("w"):  # returns when the command has opened it
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert not (tmp_path / ".crawler").exists()


def test_lists_of_other_programs_are_read(typed: Typed, tmp_path: Path) -> None:
    """What was recognised is said."""
    (tmp_path / "top.csv").write_text("1,a.test\n2,b.test\n")
    (tmp_path / "latin").write_bytes("https://c.test/stra\xdfe\nhttps://c.test/\x80\n".encode("latin-1"))
    (tmp_path / "quoted").write_text("\u201chttps://d.test/\u201d\n")
    done = typed("seed", "-f", "top.csv", "-f", "latin", "-f", "quoted")
    assert done.code == 0, done.err
    assert "5 seeds queued" in done.out
    assert done.err.splitlines() == [
        "note: top.csv is a table: the URLs in its column 2 are the seeds",
        "note: latin is not in UTF-8, so it is read as Windows-1252 (Latin-1)",
    ]
    for url in ("b.test", "https://c.test/stra\xdfe", "https://c.test/\u20ac", "https://d.test/"):
        assert "queued" in typed("why", url).out


def test_seeds_can_come_from_standard_input_and_settings_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("\ufeff[limits]\nmax_pages = 7\n", encoding="utf-8")
    command = [sys.executable, "-m", "crawler", "seed", "-f", "-", "--settings", "s.toml"]
    given = "https://a.test/\nftp://x/\nb.test\n"
    done = subprocess.run(command, cwd=tmp_path, input=given, capture_output=True, text=True, timeout=180, check=False)
    assert "2 seeds queued" in done.stdout, done.stderr
    assert "standard input:2: 'ftp://x/'" in done.stderr


def test_many_seeds_take_little_memory(tmp_path: Path) -> None:
    """Each 100,000 took 70 MB."""
    (tmp_path / "many").write_text("".join(f"https://s{n % 50}.test/some/path/page-{n}.html\n" for n in range(100_000)))
    measure = (
        "import resource, sys; from crawler.cli.seeds import gather_seeds; from crawler.settings.load import CrawlSettings;"
        "from pathlib import Path; peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "gather_seeds(CrawlSettings(), ['a.test'], []); before = peak();"
        "print(len(gather_seeds(CrawlSettings(), [], [Path('many')])), peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measure], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=True
    )
    number, grown_kb = map(int, done.stdout.split())
    assert number == 100_000
    assert grown_kb < 15_000
