"""What owners say about the use of their pages: in the lines, in WARC files, and in exports."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crawler.cli.options import USES
from crawler.page import Outcome
from crawler.sinks.archive import Archive
from politeness.usage import CATEGORIES, Statement, combined, statement
from tests.e2e.harness import Finished
from tests.sinks import readers
from tests.sinks.values import exchange, page, settings
from tests.typed import Typed

ROBOTS = statement("robots.txt line 3: Content-Usage", b"train-ai=n")
OPEN = statement("header Content-Usage", b"train-ai=y, search=n")
REFUSED = combined([ROBOTS, Statement("meta robots: noimageai", ())], "https://site.test/policy")
HEADER = b"Content-Usage: train-ai=y, search=n"


@pytest.fixture
async def crawl(tmp_path: Path) -> Path:
    """A page whose robots.txt refuses training, one whose header refuses search, one without a word, one withheld."""
    archive = Archive(settings(tmp_path / "crawl", parquet=True))
    await archive.start()
    html = {"content_type": "text/html"}
    await archive.write(
        [
            page(exchange("robots", b"<p>" + b"some words of text " * 50), usage=REFUSED, **html),
            page(exchange("header", b"<p>" + b"other words of text " * 50, HEADER), usage=combined([OPEN]), **html),
            page(exchange("silent", b"<p>" + b"more words of text " * 50), **html),
            page(exchange("withheld", b"<title>secret"), usage=combined([OPEN]), title="secret", **html).withheld(),
        ]
    )
    await archive.stop()
    return tmp_path / "crawl"


def names(folder: Path) -> set[str]:
    return {str(line["url"]).rpartition("/")[2] for line in readers.lines(folder)}


def test_a_withheld_page_keeps_the_licences_of_its_site() -> None:
    """They come from robots.txt, and may be what permits the use."""
    assert page(exchange("a", b""), licenses=("https://a.test/rsl.xml",)).withheld().licenses == (
        "https://a.test/rsl.xml",
    )


def test_the_lines_say_it(crawl: Path) -> None:
    lines = {str(line["url"]).rpartition("/")[2]: line for line in readers.lines(crawl)}
    robots, silent = lines["robots"], lines["silent"]
    assert (robots["usage"], robots["tdm_policy"]) == ("train-ai=n", "https://site.test/policy")
    assert robots["usage_statements"] == ["robots.txt line 3: Content-Usage: train-ai=n", "meta robots: noimageai"]
    assert (silent["usage"], silent["usage_statements"], silent["tdm_policy"]) == (None, [], None)


def test_parquet_says_it(crawl: Path) -> None:
    (file,) = readers.files(crawl, ".parquet")
    assert [row["usage"] for row in pq.read_table(file).to_pylist()][:3] == ["train-ai=n", "train-ai=y, search=n", None]


def test_metadata_records_say_it(crawl: Path) -> None:
    (file,) = readers.warc_files(crawl)
    metadata = [record.payload.decode() for record in readers.by_warcio(file) if record.type == "metadata"]
    assert "usage: train-ai=n\r\nusage-statement: robots.txt line 3: Content-Usage: train-ai=n\r\n" in metadata[0]
    assert "tdm-policy: https://site.test/policy\r\n" in metadata[0]
    assert not any("usage" in text or "tdm" in text for text in metadata[2:])


def test_nothing_of_a_withheld_page_is_kept(crawl: Path) -> None:
    line = next(line for line in readers.lines(crawl) if str(line["url"]).endswith("withheld"))
    assert (line["outcome"], line["reason"], line["status"], line["usage"]) == (
        "denied",
        "usage",
        200,
        "train-ai=y, search=n",
    )
    assert (line["warc"], line["size"], line["digest"], line["title"], line["links"]) == (None, 0, "", "", [])
    assert line["fetched_at"] is not None
    (file,) = readers.warc_files(crawl)
    assert not any("withheld" in record.url for record in readers.by_warcio(file))


def test_a_withheld_page_that_failed_stays_a_failure() -> None:
    failed = page(exchange("a", b"body"), outcome=Outcome.DEAD, reason="http_503").withheld()
    assert (failed.outcome, failed.reason, failed.is_withheld) == (Outcome.DEAD, "http_503", True)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], {"robots", "header", "silent"}),
        (["--usage", "train-ai"], {"header", "silent"}),
        (["--usage", "search"], {"robots", "silent"}),
        (["--usage", "train-ai", "--usage", "search"], {"silent"}),
        (["--usage", "ai-use"], {"robots", "header", "silent"}),
    ],
)
def test_an_export_leaves_out_what_is_refused_and_counts_it(
    crawl: Path, typed: Typed, tmp_path: Path, options: list[str], left: set[str]
) -> None:
    done = typed("export", str(crawl), "--out", "out", *options)
    assert done.code == 0, done.err
    assert names(tmp_path / "out") == left
    assert f"{len(left)} row" in done.out
    if options:
        assert told(done, f"refuse {', '.join(sorted(options[1::2]))}: {3 - len(left)} page")
    else:
        assert "refuse" not in done.err
    # An export for another use replaces the files.
    assert typed("export", str(crawl), "--out", "out", "--usage", "train-ai").code == 0
    assert names(tmp_path / "out") == {"header", "silent"}


def told(done: Finished, text: str) -> bool:
    return text in " ".join(done.err.split())


def test_an_exported_row_says_what_the_line_says(crawl: Path, typed: Typed, tmp_path: Path) -> None:
    assert typed("export", str(crawl), "--out", "out").code == 0
    exported = {row["url"]: row for row in readers.lines(tmp_path / "out")}
    for line in readers.lines(crawl):
        if line["warc"] is not None:
            assert [exported[line["url"]][name] for name in ("usage", "usage_statements", "tdm_policy")] == [
                line[name] for name in ("usage", "usage_statements", "tdm_policy")
            ]


@pytest.mark.parametrize("form", ["markdown", "parquet"])
def test_other_formats_leave_it_out_too(crawl: Path, typed: Typed, form: str) -> None:
    done = typed("export", str(crawl), "--out", "out", "--format", form, "--usage", "train-ai")
    assert (done.code, "2 " in done.out) == (0, True)
    assert told(done, "left out, because their owners refuse train-ai: 1 page")


def test_one_file_is_extracted_without_them(crawl: Path, typed: Typed) -> None:
    (file,) = readers.warc_files(crawl)
    done = typed("extract", str(file), "--usage", "train-ai")
    assert ("site.test/header" in done.out, "site.test/robots" in done.out) == (True, False)
    assert told(done, "refuse train-ai: 1 page")


async def test_archives_without_metadata_records_are_filtered_by_their_responses(tmp_path: Path, typed: Typed) -> None:
    """The archives of others have none. What robots.txt said is then unknown, and the command says so."""
    archive = Archive(settings(tmp_path / "crawl", metadata=False))
    await archive.start()
    await archive.write([page(exchange("robots", b"a"), usage=REFUSED), page(exchange("header", b"b", HEADER))])
    await archive.stop()
    done = typed("export", "crawl", "--out", "out", "--usage", "search")
    assert names(tmp_path / "out") == {"robots"}
    assert told(done, "1 page without a metadata record: what robots.txt says of their use is unknown")


def test_the_options_know_all_categories() -> None:
    assert tuple(USES.choices) == CATEGORIES
