"""Measures the main text on published sets of pages.

    python -m bench.main_text FOLDER

FOLDER has a checkout of scrapinghub/article-extraction-benchmark, or of adbar/trafilatura. Last result: F1 0.956 and 0.916
(docs/explanation/main-text.md).
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from crawler.parse.main_text import main_text
from crawler.parse.tree import parse

Counts = tuple[float, float, float]
"""What was found, what should not have been, and what is missing."""


def main() -> None:
    folder = Path(sys.argv[1])
    began = time.process_time()
    if (folder / "ground-truth.json").is_file():
        pages = list(_of_bodies(folder))
        precision = mean(found / (found + extra) for found, extra, _ in pages if found + extra)
        recall = mean(found / (found + missing) for found, _, missing in pages if found + missing)
    else:
        pages = list(_of_sentences(folder / "tests"))
        found, extra, missing = map(sum, zip(*pages, strict=True))
        precision, recall = found / (found + extra), found / (found + missing)
    ms = 1000 * (time.process_time() - began) / len(pages)
    f1 = 2 * precision * recall / (precision + recall)
    print(f"{len(pages)} pages: F1 {f1:.3f}, precision {precision:.3f}, recall {recall:.3f}, {ms:.0f} ms per page")


def _of_bodies(folder: Path) -> Iterator[Counts]:
    """As evaluate.py of article-extraction-benchmark: runs of four words, each page with the same weight."""
    for name, truth in _read(folder / "ground-truth.json"):
        wanted, got = (
            Counter(_runs(text))
            for text in (
                truth["articleBody"],
                _text(gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes())),
            )
        )
        counts = (wanted & got).total(), (got - wanted).total(), (wanted - got).total()
        found, extra, missing = (count / (sum(counts) or 1) for count in counts)
        yield found, extra, missing


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text)
    return (tuple(words[start : start + 4]) for start in range(max(1, len(words) - 3)))


def _of_sentences(folder: Path) -> Iterator[Counts]:
    """As evaluate.py of trafilatura: pieces of text that must occur, and that must not."""
    for _, truth in _read(folder / "evaldata.json"):
        path = next(
            path for path in (folder / "cache" / truth["file"], folder / "eval" / truth["file"]) if path.exists()
        )
        text = _plain(_text(path.read_bytes()))
        found, extra = (sum(_plain(piece) in text for piece in truth[kind]) for kind in ("with", "without"))
        yield found, extra, len(truth["with"]) - found


def _read(path: Path) -> list[tuple[str, dict[str, Any]]]:
    return list(json.loads(path.read_text(encoding="utf-8")).items())


def _plain(text: str) -> str:
    return " ".join(text.split())


def _text(body: bytes) -> str:
    return main_text(parse(body, None), "https://example.com/", is_markdown=False).text


if __name__ == "__main__":
    main()
