"""Reads the seeds of a command: URLs from the command line, and seed files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from crawler.cli.terminal import Terminal
from crawler.errors import UserError
from crawler.scope.seeds import Seed, SeedError, read_seeds
from crawler.settings.loading import CrawlSettings
from crawler.settings.policies import url_rules
from frontier.urls import UrlRules

SHOWN_BROKEN = 20
"""Lines of a seed file that are no seeds, of which each is reported."""

SAMPLED = 65_536
"""Bytes at the beginning of a file that are searched for what no text contains."""

_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters other than white space and ESC."""

_FILE_NAME = re.compile(r"[^/:?#]+\.(txt|csv|tsv|lst|list|urls|json|jsonl|xml|gz)", re.IGNORECASE)
"""A name of a file, which no host has: none of these is a top-level domain."""


def gather_seeds(settings: CrawlSettings, urls: Iterable[str], files: Iterable[Path]) -> list[Seed]:
    """Return the seeds from the command line and the files. Invalid lines in files are reported and skipped. Raises
    UserError for an invalid URL on the command line, and for a file that cannot be read or is no text."""
    rules, urls = url_rules(settings), tuple(urls)
    for word in urls:
        _check_word(word)
    seeds, errors = read_seeds(urls, rules)
    if errors:
        raise UserError(_about(errors[0]))
    for path in files:
        found, errors = _read(path, rules)
        seeds += found
        _report(path, errors)
    return seeds


def _check_word(word: str) -> None:
    """Raises UserError if `word` is probably the name of a seed file."""
    if "://" in word or any(char.isspace() for char in word):
        return
    if Path(word).is_file():
        raise UserError(f"{word} is a file here, not a URL: to read seeds from it, write -f {word}")
    if _FILE_NAME.fullmatch(word):
        raise UserError(f"{word} looks like a file, but there is none here; name a seed file with -f FILE")


def _about(error: SeedError) -> str:
    if error.reason == "colon":
        scheme, _, rest = error.text.partition("/")
        return (
            f"seed {error.text!r}: the colon is missing; write it as {scheme.lower().rstrip(';:')}://{rest.lstrip('/')}"
        )
    return f"seed {error.text!r}: {error.reason}; write it as https://HOST/PATH"


def _read(path: Path, rules: UrlRules) -> tuple[list[Seed], list[SeedError]]:
    try:
        with path.open("rb") as file:
            if _NO_TEXT.search(file.read(SAMPLED)):
                raise UserError(f"seed file {path} is no text file in UTF-8; a seed file has one URL per line")
        with path.open(encoding="utf-8", errors="replace") as lines:
            return read_seeds(lines, rules)
    except OSError as error:
        raise UserError(f"seed file {path}: {error.strerror}") from error


def _report(path: Path, errors: list[SeedError]) -> None:
    console = Terminal(stderr=True)
    for broken in errors[:SHOWN_BROKEN]:
        console.print(f"{path}:{broken.line}: {broken.reason}: {broken.text[:80]}")
    if len(errors) > SHOWN_BROKEN:
        console.tell(f"{path}: and {len(errors) - SHOWN_BROKEN:,} more lines that are no seeds")
