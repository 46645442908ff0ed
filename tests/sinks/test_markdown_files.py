"""Markdown files have front matter that every reader of YAML reads, names of their own, and links to each other."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from crawler.page import Page
from crawler.sinks.export import Exported, ExportSettings, export, warc_files
from crawler.sinks.files import scratch_folder
from crawler.sinks.markdown_files import _quoted, with_relative_links
from tests.sinks.values import archiving, exchange, page
from tests.typed import Typed

SENTENCE = "Our office is open from nine to five on weekdays, and the phone is answered until six. "


def html(body: str = "", head: str = "", title: str = "T") -> bytes:
    return f"<html lang=en><title>{title}</title>{head}<main><h1>H</h1><p>{SENTENCE}</p>{body}</main>".encode()


def visited(name: str, body: bytes, *headers: bytes, visit: str = "new") -> Page:
    head = b"\r\n".join([b"HTTP/1.1 200 OK", b"Content-Type: text/html; charset=utf-8", *headers, b"", b""])
    return page(exchange(name, body, *headers, response_head=head), visit=visit)


def exported(folder: Path, *pages: Page, skip_noindex: bool = False) -> tuple[Exported, dict[str, str]]:
    """What an export of an archive of `pages` says, and the text of its files by the last part of the URL."""

    async def crawl() -> None:
        async with archiving(folder / "crawl", metadata=True) as archive:
            await archive.write(pages)

    shutil.rmtree(folder / "crawl", ignore_errors=True)
    asyncio.run(crawl())
    settings = ExportSettings(folder / "notes", "markdown", skip_noindex=skip_noindex)
    done = export(warc_files([folder / "crawl"]), settings, 1, lambda _: None)
    texts = [path.read_text() for path in (folder / "notes").rglob("*.md")]
    return done, {fields(text)["url"].removeprefix("https://site.test/"): text for text in texts}


def fields(text: str) -> dict[str, str]:
    read: dict[str, str] = yaml.safe_load(text.split("---\n")[1])
    return read


def test_no_file_changes_the_terminal_that_shows_it(tmp_path: Path) -> None:
    body = html(
        "<h1>red \x1b[31m</h1><p>A title: &#27;]0;x&#7; and \x9b2J, long enough to be the text.", title="\x1b[0m"
    )
    _, files = exported(tmp_path, visited("a", body))
    (text,) = files.values()
    assert "long enough" in text
    assert not set(text) & {"\x1b", "\x07", "\x9b"}


def test_front_matter_has_what_the_page_says_of_itself(tmp_path: Path) -> None:
    head = "<meta property='article:published_time' content='2026-02-30'><link rel=canonical href=/b>"
    _, files = exported(tmp_path, visited("a", html(head=head, title="No: &quot;a&quot; # \\ 漢 😀 \x85")))
    read = fields(files["a"])
    assert read.pop("title").startswith('No: "a" # \\ 漢 😀')
    assert {name: str(value) for name, value in read.items()} == {
        "url": "https://site.test/a",
        "date": "2026-02-30",
        "lang": "en",
        "canonical": "https://site.test/b",
        "fetched": "2026-09-21 14:13:20.123000+00:00",
        "visit": "new",
    }


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "a: b",
        "x:",
        "- a",
        "'",
        '"',
        "a\nb\t\0",
        "\u2028\u2029\x7f\x85\ufeff\ufffe",
        "\\",
        "# a",
        "{{x}}",
        "---",
        "😀",
        "2026-13-45",
        "https://site.test/a:",
        "%YAML",
        "&a *b",
        "null",
        "~",
        "",
    ],
)
def test_any_text_is_valid_yaml(text: str) -> None:
    assert yaml.safe_load(f"title: {_quoted(text)}\nnext: 1\n") == {"title": text, "next": 1}


def test_half_characters_do_no_harm() -> None:
    assert yaml.safe_load(_quoted("a\ud800")) == "a?"


def test_names_come_from_path_and_title_and_are_never_the_same(tmp_path: Path) -> None:
    names = ["", "a/b", "a-b", "A-B", "a%2Fb", "a/b/", "a/b?p=1", "a/b?p=2", "%E6%BC%A2", "漢" * 90, "x/.md"]
    done, files = exported(tmp_path, *(visited(name, html(title="Opening hours")) for name in dict.fromkeys(names)))
    assert len(files) == done.rows >= 10
    paths = {url: path.name for url, path in done.files.items()}
    assert len({name.lower() for name in paths.values()}) == done.rows
    assert all(len(name.encode()) < 255 and not name.startswith(".") for name in paths.values())
    assert paths["https://site.test/"].startswith("Opening-hours-")
    assert paths["https://site.test/a/b"].startswith("a-b-")
    assert paths["https://site.test/a/b?p=1"].startswith("a-b-Opening-hours-")
    assert paths["https://site.test/%E6%BC%A2"].startswith("漢-")


def test_links_between_files_are_relative_and_others_absolute(tmp_path: Path) -> None:
    links = "<a href=b_(1)?x=%C3%A9#part>b</a> <a href=/gone>gone</a> "
    links += "<a href='http://site.test:80/b'>other</a> <a href=/empty>e</a>"
    code = "<pre>[b](https://site.test/b_(1)?x=%C3%A9)</pre><p><code>[b](https://site.test/a)</code></p>"
    pages = (
        visited("a", html(f"<p>{links}</p>{code}")),
        visited("b_(1)?x=%C3%A9", html("<p><a href=/a title=T>back</a></p>")),
        visited("empty", b"<html><p></p>"),
    )
    done, files = exported(tmp_path, *pages)
    assert done.textless == 1
    a, b = files["a"], files["b_(1)?x=%C3%A9"]
    assert "[gone](https://site.test/gone) [other](http://site.test:80/b) [e](https://site.test/empty)" in a
    assert a.count("[b](https://site.test/") == 2
    link = re.search(r"\[b\]\(([^)#:]*\.md)#part\)", a)
    assert link and (tmp_path / "notes/site.test" / link[1]).read_text() == b
    back = re.search(r'\[back\]\(([^ :]*\.md) "T"\)', b)
    assert back and (tmp_path / "notes/site.test" / back[1]).read_text() == a


def test_links_to_files_of_other_domains_lead_out_of_the_folder() -> None:
    files = {"https://b.test/x": Path("notes/b.test/é 1.md")}
    text = with_relative_links("[x](https://b.test/x#1) ![i](https://b.test/i.png)", Path("notes/a.test/1.md"), files)
    assert text == "[x](../b.test/%C3%A9%201.md#1) ![i](https://b.test/i.png)"


def test_a_file_does_not_change_because_of_the_visit(tmp_path: Path) -> None:
    exported(tmp_path, visited("a", html()))
    (path,) = (tmp_path / "notes").rglob("*.md")
    before = path.stat()
    _, files = exported(tmp_path, visited("a", html(), visit="unchanged"))
    assert fields(files["a"])["visit"] == "new"
    assert path.stat() == before


def test_pages_that_say_noindex_are_left_out_if_asked_for(tmp_path: Path) -> None:
    pages = visited("a", html()), visited("b", html(head="<meta name=robots content=noindex>"))
    done, files = exported(tmp_path, *pages)
    assert files.keys() == {"a", "b"}
    done, files = exported(tmp_path, *pages, skip_noindex=True)
    assert (done.unindexed, done.removed, set(files)) == (1, 1, {"a"})


def test_the_command_counts_pages_that_say_noindex(typed: Typed, tmp_path: Path) -> None:
    exported(tmp_path, visited("a", html(), b"X-Robots-Tag: noindex"))
    done = typed("export", "crawl", "--format", "markdown", "--skip-noindex")
    assert "left out, because they say noindex: 1 page" in done.out


def test_drafts_of_a_killed_export_are_removed_and_other_folders_are_not(tmp_path: Path) -> None:
    killed, mine = tmp_path / "notes/.drafts-x.1.peercrawl.tmp", tmp_path / "notes/.export-mine"
    for folder in (killed, mine):
        folder.mkdir(parents=True)
        (folder / "a").write_text("text")
    with scratch_folder(tmp_path / "notes", ".drafts-") as running:
        exported(tmp_path, visited("a", html("<p>a")))
        assert (killed.exists(), mine.exists(), running.is_dir()) == (False, True, True)
    assert not running.exists()


@pytest.mark.parametrize(
    "text",
    [
        lambda n: "~" * n + "\n" + "a line of text\n" * n,
        lambda n: "`" * n + "\n" + "a line of text\n" * n,
        lambda n: " ".join("`" * size for size in range(4, 2 + int((2 * n) ** 0.5))) + "\n" + "a line\n" * n,
        lambda n: "](https:\\)" * n,
        lambda n: "](<https:" * n,
        lambda n: (" " * 50 + "\n") * (n // 50) + "~~~ a\n" * n,
    ],
)
def test_the_time_for_links_grows_with_the_text(text: Callable[[int], str]) -> None:
    def seconds(n: int) -> float:
        whole, began = text(n), time.process_time()
        with_relative_links(whole, Path("notes/a.test/1.md"), {})
        return time.process_time() - began

    assert seconds(40_000) < 0.5 + 40 * seconds(4_000)  # 100 times as long if it were the square


def test_links_after_unpaired_backticks_and_before_a_fence_without_an_end_are_relative() -> None:
    link = "[x](https://b.test/x)"
    text = f"`` {link} ` {link} `\n```{link}```\n{link}\n~~~~\n~~~\n{link}\n~~~~~ \n{link}\n```\n{link}\n"
    near = "[x](../b.test/2.md)"

    made = with_relative_links(text, Path("notes/a.test/1.md"), {"https://b.test/x": Path("notes/b.test/2.md")})

    assert made == (f"`` {near} ` {link} `\n```{link}```\n{near}\n~~~~\n~~~\n{link}\n~~~~~ \n{near}\n```\n{link}\n")
