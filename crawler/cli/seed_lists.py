"""Reads the seeds of a command: URLs from the command line, and seed files."""

from __future__ import annotations

import io
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crawler.cli.command_errors import FOR_REDIS, IS_REDIS
from crawler.cli.terminal import Terminal
from crawler.cli.unknown_names import note
from crawler.errors import UserError
from crawler.logs import without_secrets
from crawler.scope.seeds import BadSeedLine, Seed, read_seeds
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import url_rules
from crawler.wording import count_of
from frontier.urls import UrlRules

SHOWN_BROKEN = 20
"""Lines of a seed file that are not seeds, of which each is reported."""

SHOWN_TEXT = 80
"""Characters of a line that is not a seed, in its report."""

SAMPLED = 65_536
"""The most bytes at the beginning of a file that are searched for what no text contains."""

_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters other than white space and ESC."""

_FILE_NAME = re.compile(r"[^/:?#]+\.(txt|csv|tsv|lst|list|urls|json|jsonl|xml|gz)", re.IGNORECASE)
"""A name of a file, which no host has: none of these is a top-level domain."""


def gather_seeds(settings: CrawlSettings, urls: Iterable[str], files: Iterable[Path]) -> list[Seed]:
    """Return the seeds from the command line and the files. A note says which scheme was chosen for URLs without one.
    Invalid lines in files are reported and skipped. Raises UserError for an invalid URL on the command line, and for a file
    that cannot be read or is not text."""
    rules, urls = url_rules(settings), tuple(urls)
    for word in urls:
        _check_word(word)
    seeds, errors = read_seeds(urls, rules)
    if errors:
        more = f" (and {len(errors) - 1} more of the URLs cannot be used)" if len(errors) > 1 else ""
        raise UserError(f"seed {_shown(errors[0])}: {about(errors[0])}{more}")
    for seed in seeds:
        if not seed.has_scheme:
            note(f"{seed.text.split()[0]} has no scheme, so it is fetched as {_choice(seed)}")
    for path in files:
        found, errors = _read(path, rules)
        seeds += found
        _report(path, errors)
        plain = [seed for seed in found if not seed.has_scheme and seed.url.href.startswith("http:")]
        if plain:
            more = f", and {count_of(len(plain) - 1, 'more seed')}" if len(plain) > 1 else ""
            note(f"{path}:{plain[0].line}: no scheme, so it is fetched as {_choice(plain[0])}{more}")
    return seeds


def _shown(error: BadSeedLine) -> str:
    text = without_secrets(error.text)  # before it is shortened, because credentials are found by what ends them
    return repr(text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + "...")


def _choice(seed: Seed) -> str:
    scheme, _, rest = seed.url.href.partition("://")
    other = "https" if scheme == "http" else "http"
    return f"{seed.url.href}; for {other}, write {other}://{rest}"


def _check_word(word: str) -> None:
    """Raises UserError if `word` is probably the name of a seed file."""
    if "://" in word or any(char.isspace() for char in word):
        return
    if Path(word).is_file() and word.endswith(".toml"):
        raise UserError(f"{word} is a file here, not a URL: to use its settings, write --settings {word}")
    if Path(word).is_file():
        raise UserError(f"{word} is a file here, not a URL: to read seeds from it, write -f {word}")
    if _FILE_NAME.fullmatch(word):
        raise UserError(f"{word} looks like a file, but there is none here; name a seed file with -f FILE")


_REASONS = {
    "scheme": "only http and https can be crawled; write {url}",
    "host": "the host is missing or not valid; write {url}",
    "length": "a URL can have 2,048 characters; shorten it or leave it out",
    "syntax": "this is not a URL; write {url}",
    "priority": "the priority is not a number, or beyond 1e11; write it as priority=5",
    "option": "only priority=NUMBER can follow a URL, after a space; give each URL {place}",
    "comma": "no host has a comma; give each URL {place}, and nothing else",
    "port": "the port is not a number from 1 to 65535; write it as https://HOST:PORT/PATH",
    "email": "this is an e-mail address, not a URL; write {url}",
    "colon": "the colon is missing; write {url}",
}
"""Reason of a `BadSeedLine` -> what is wrong, and what to do."""

_WITH_SCHEME = re.compile(r"([a-z]+)[;:]?//?(?=[^/\s])(\S+)", re.IGNORECASE)


def about(error: BadSeedLine, place: str = "as an argument of its own") -> str:
    """Return what is wrong with a seed and what to do about it. `place`: where seeds are given."""
    if IS_REDIS.match(error.text):
        return FOR_REDIS
    url = "it as https://HOST/PATH"
    if error.reason in ("scheme", "colon") and (parts := _WITH_SCHEME.fullmatch(error.text)):
        scheme = "http" if parts[1].lower() in ("http", "htp", "htt", "ttp", "hhtp", "htttp") else "https"
        url = f"it as {scheme}://{parts[2]}"
    return _REASONS[error.reason].format(url=url, place=place)


def _read(path: Path, rules: UrlRules) -> tuple[list[Seed], list[BadSeedLine]]:
    if path.suffix == ".toml" and path.is_file():
        raise UserError(f"seed file {path} is a settings file: use it with --settings {path}")
    try:
        # Opened once: what was read of a pipe cannot be read again.
        with _interruptible(), io.BufferedReader(path.open("rb", buffering=0), SAMPLED) as file:
            if _NO_TEXT.search(file.peek(SAMPLED)):
                raise UserError(f"seed file {path} is not a text file in UTF-8; a seed file has one URL per line")
            with io.TextIOWrapper(file, encoding="utf-8", errors="replace") as lines:
                return read_seeds(lines, rules)
    except OSError as error:
        raise UserError(f"seed file {path}: {error.strerror}") from error


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the command while a pipe without a writer blocks it. The handler of the event loop would wait for the
    loop, which is blocked, too. Only the main thread of a process gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _report(path: Path, errors: list[BadSeedLine]) -> None:
    console = Terminal(stderr=True)
    for broken in errors[:SHOWN_BROKEN]:
        console.tell(f"{path}:{broken.line}: {_shown(broken)}: {about(broken, 'on a line of its own')}")
    if len(errors) > SHOWN_BROKEN:
        console.tell(f"{path}: and {len(errors) - SHOWN_BROKEN:,} more lines that are not seeds")
    if errors:
        console.tell(f"{path}: {count_of(len(errors), 'line')} skipped")
