"""How well near copies are told from pages that only look alike.

    python -m tests.bench.near FOLDER...

Reads all HTML files below the folders, as one crawl would, and lists those taken for near copies of an earlier one. Then
replaces words of each page's text at random, and counts how often it is still recognised. Nothing is timed.

Last result, Debian's documentation of PostgreSQL 15, Python 3.11 and Django 3.2 (2,391 pages): 36 taken for near copies,
35 of them Django's release notes for the same fix in another version, one an index that holds another; no soft 404.

     words of text   pages      1      2      5     10     20 words replaced
               163     200    55%    32%     8%     2%     0%
               530     200    89%    72%    41%    20%     4%
             1,551     200    97%    94%    76%    63%    38%
             5,459     200   100%   100%    99%    90%    76%
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from crawler.page import Page
from crawler.parse.html import ExtractPolicy, extract
from crawler.sinks.content import content_of
from crawler.sinks.near_duplicates import Likeness
from crawler.sinks.simhash import is_near, simhash
from tests.sinks.values import exchange, page

CLASSES = ((300, 2_000), (2_000, 6_000), (6_000, 20_000), (20_000, 1 << 30))  # characters of text
REPLACED = (1, 2, 5, 10, 20)  # words
SAMPLE = 200  # pages of each class


def pages_below(folder: Path) -> Iterator[Page]:
    for path in sorted(folder.rglob("*.html")):
        body, name = path.read_bytes(), f"{folder.parent.name}/{path.relative_to(folder)}"
        found = extract(body, f"https://site.test/{name}", "text/html", ExtractPolicy())
        yield page(exchange(name, body), title=found.title, content_type="text/html", charset=found.charset)


def judge(folders: list[Path]) -> list[str]:
    """The texts of all pages below `folders`; tells which are marked."""
    likeness, texts = Likeness("mark", "mark", 1 << 17), []
    for one in (one for folder in folders for one in pages_below(folder)):
        said = likeness.judge(one, content_of(one, "off", structured=False, judged=True))
        likeness.confirm()
        texts.append(said.compared)
        if said.near_of or said.soft_404:
            print(f"{one.url} is {'near ' + said.near_of if said.near_of else 'a soft 404'}")
    return texts


def edited(text: str, count: int, chance: random.Random) -> str:
    words = text.split(" ")
    for _ in range(count):
        words[chance.randrange(len(words))] = f"edit{chance.randrange(10**6)}"
    return " ".join(words)


def recognised(texts: list[str], count: int, chance: random.Random) -> float:
    """The share of `texts` that are recognised after `count` words were replaced."""
    both = [(simhash(text), simhash(edited(text, count, chance))) for text in texts]
    return sum(one is not None and other is not None and is_near(one, other) for one, other in both) / len(texts)


def main(*folders: str) -> None:
    texts, chance = judge([Path(folder) for folder in folders]), random.Random(1)
    print(
        f"{len(texts):,} pages\n{'words of text':>18}{'pages':>8}{''.join(f'{n:7}' for n in REPLACED)} words replaced"
    )
    for least, most in CLASSES:
        sample = [text for text in texts if least < len(text) <= most][:SAMPLE]
        words = sum(len(text.split()) for text in sample) // max(1, len(sample))
        shares = "".join(f"{recognised(sample, count, chance):7.0%}" for count in REPLACED)
        print(f"{words:18,}{len(sample):8}{shares}")


if __name__ == "__main__":
    main(*sys.argv[1:])
