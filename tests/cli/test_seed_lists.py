"""What is no seed is refused at once, with what to type instead."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.typed import Typed


@pytest.mark.parametrize("command", ["crawl", "seed"])
@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("seeds.txt", "seeds.txt is a file here, not a URL: to read seeds from it, write -f seeds.txt"),
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
    done = typed(command, word)
    assert (done.code, done.err) == (2, f"error: {told}\n")
    assert not (tmp_path / ".crawler").exists()


def test_names_without_a_scheme_are_still_seeds(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("httpbin.test/get\nhttps.test\na.test/x.txt\nhttp//a.test/\n")
    done = typed("seed", "-f", "list", "localhost.test:8080", "a.test/seeds.txt", "//b.test/")
    assert done.code == 0, done.err
    assert "6 seeds queued" in done.out
    assert done.err == "list:4: colon: http//a.test/\n"


def test_a_file_that_is_no_text_is_refused(typed: Typed, tmp_path: Path) -> None:
    noise = random.Random(7).randbytes(100_000)
    (tmp_path / "noise").write_bytes(noise)
    (tmp_path / "no-nul").write_bytes(noise.replace(b"\0", b""))
    (tmp_path / "utf-16").write_text("https://a.test/\n", encoding="utf-16")
    for name in ("noise", "no-nul", "utf-16"):
        done = typed("crawl", "-f", name)
        told = f"error: seed file {name} is no text file in UTF-8; a seed file has one URL per line\n"
        assert (done.code, done.err) == (2, told)


def test_bad_lines_are_counted_after_the_first_twenty(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("".join(f"ftp://a.test/{number}\n" for number in range(5_000)) + "https://a.test/\n")
    done = typed("seed", "-f", "list")
    assert (done.code, "1 seeds queued" in done.out) == (0, True)
    *lines, last = done.err.splitlines()
    assert (len(lines), last) == (20, "list: and 4,980 more lines that are no seeds")


def test_localhost_can_be_allowed_by_its_name(typed: Typed) -> None:
    done = typed("seed", "http://localhost:3000/", "--allow", "localhost", "--port", "3000")
    assert (done.code, done.err) == (0, "")
    assert 'allow = ["127.0.0.1", "::1"]' in typed("config", "show").out


def test_a_crawl_with_nothing_left_says_so(typed: Typed) -> None:
    words = ("crawl", "http://127.0.0.1:1/", "--allow", "127.0.0.1", "--port", "1", "--quiet")
    once = {"CRAWLER_POLITENESS__TRIES": "1"}
    assert typed(*words, environment=once).code == 1  # no page, and nothing left
    again = typed(*words, environment=once)
    assert again.code == 0, again.err
    assert "crawl crawl has nothing left to crawl: give it other seeds, or" in again.err
