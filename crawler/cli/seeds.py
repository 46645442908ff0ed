"""`crawler seed`, and the seeds of `crawler crawl`: reads, checks and queues them."""

from __future__ import annotations

import codecs
import io
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from crawler import logs
from crawler.app.crawl_settings import OnDifference, adopt, choose, choose_and_adopt
from crawler.app.embedded_valkey import open_store
from crawler.app.operator import SEED_CHUNK, queue_seeds, refused_seeds
from crawler.app.signals import run_until_signal
from crawler.cli import options as option
from crawler.cli.options import command, given_settings, note_eviction, or_restored, place_of, titled, typed_options
from crawler.cli.text import Terminal, about_url, note
from crawler.errors import UserError
from crawler.logs import without_secrets
from crawler.scope.seeds import BadSeedLine, Seed, SeedList, column_of, each_seed, read_seeds, table_of
from crawler.settings.guarded import accepted, check_guarded, consent, needs_consent
from crawler.settings.load import CrawlSettings, Settings, missing_contact
from crawler.settings.policies import check, url_rules
from crawler.settings.tables import RequestsTable
from crawler.wording import count_of
from frontier.crawls import Crawl, create_crawl, open_crawl
from frontier.entries import PushMode
from frontier.errors import BadInput
from frontier.queue import PushReply
from frontier.store import RedisStore, batched
from frontier.urls import UrlRules

SHOWN = 20
"""Report at most this many seeds that cannot be fetched, and as many lines of a file that are not seeds."""

SHOWN_TEXT = 80
"""Characters of a line that is not a seed, in its report."""

SAMPLED = 65_536
"""The most bytes at the beginning of a file that are searched for what no text contains."""

_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters other than white space and ESC."""

_FILE_NAME = re.compile(r"[^/:?#]+\.(txt|csv|tsv|lst|list|urls|json|jsonl|xml|gz)", re.IGNORECASE)
"""A name of a file, which no host has: none of these is a top-level domain."""

NO_SEEDS = "no seeds: give URLs, or a seed file with -f FILE"

seed_options = option.options(
    click.argument("urls", nargs=-1, help="Seed URLs."),
    click.option(
        "--file",
        "-f",
        "files",
        type=option.FILE,
        multiple=True,
        help="Seed file with one URL per line; - for standard input. Can be repeated.",
    ),
)


@command()
@seed_options
@click.option("--again", is_flag=True, help="Queue seeds even if they were queued before.")
@option.app
@option.allow
@option.port
@option.crawl_name
@option.store
@option.on_difference
@option.logging_options
def seed(
    urls: tuple[str, ...],
    files: tuple[Path, ...],
    again: bool,
    allow: tuple[str, ...],
    port: tuple[int, ...],
    crawl: str,
    on_difference: OnDifference,
) -> None:
    """Create a crawl, or add seeds to an existing one. Running replicas pick them up.

    The first call sets the crawl's settings; later ones need none. If a settings file, flag or environment variable
    differs from them, the command stops, unless `--keep-settings` or `--apply-settings` is given. Seeds that the settings
    forbid are reported and not queued.

    Example:

        crawler seed --crawl news -f seeds.txt --redis redis://queue:6379/0
    """
    settings = given_settings(allow, port)
    logs.configure(settings.replica.log_format, settings.replica.log_level)
    sys.exit(run_until_signal(seed_crawl(crawl, settings, urls, files, again, on_difference)))


async def seed_crawl(
    crawl: str,
    settings: Settings,
    urls: Sequence[str],
    files: Sequence[Path] = (),
    again: bool = False,
    on_difference: OnDifference = "stop",
) -> int:
    """Create the crawl if need be, and push the seeds; `again`: known ones, too. Returns the exit code. Raises
    SettingsDiffer."""
    check(settings)
    seeds = gather_seeds(settings.crawl, urls, files)
    if not seeds:
        raise UserError(no_seeds(files))
    seeds = await check_first(seeds, settings)
    async with open_store(settings.replica) as store:
        note_eviction(store)
        opened, seeds = await open_for(store, crawl, settings, seeds, on_difference)
        pushed = await push_seeds(store, opened, seeds, settings, "again" if again else "new")
    Terminal().print(
        f"{titled(crawl)}: {count_of(pushed.accepted, 'seed')} queued, {pushed.seen:,} seen before"
        + (f", {pushed.capped:,} dropped by the domain cap" if pushed.capped else "")
    )
    local = settings.replica
    if local.redis and opened.created and (names := needs_consent(CrawlSettings.from_json(opened.settings))):
        start = f"{consent(names)} crawler run {place_of(crawl, typed_options(local.redis, None, None))}"
        note(f"each replica has to accept {', '.join(names)} on its own machine: {start}")
    return 0


def no_seeds(files: Sequence[Path]) -> str:
    names = ", ".join(map(str, files))
    return f"no seeds in {names}: give a file with one URL per line, or URLs" if files else NO_SEEDS


# checking and queueing


async def check_first(seeds: SeedList, settings: Settings) -> SeedList:
    """Check the seeds of a crawl that cannot exist yet, as `fetchable` does, before its folder is created."""
    local = settings.replica
    if local.redis or local.data_dir.exists():
        return seeds
    missing_contact(settings.crawl)  # raises an error before anything is created
    return await fetchable(seeds, settings.crawl, settings.requests)


async def open_for(
    store: RedisStore,
    name: str,
    settings: Settings,
    seeds: SeedList,
    on_difference: OnDifference,
    whole: bool = False,
) -> tuple[Crawl, SeedList]:
    """Open the crawl `name` with the settings that apply, or create it, and return it with the seeds that it can fetch.
    `whole`: see `choose_and_adopt`. Raises SettingsDiffer and UserError; nothing has changed then."""
    existing = await _find(store, name)
    if existing is not None:
        choice = choose(existing, settings, on_difference, whole)
        missing_contact(choice.settings)  # raises an error
        seeds = await fetchable(seeds, choice.settings, settings.requests, "--apply-settings")
        return await adopt(store, existing, choice), seeds
    if not seeds:
        raise UserError(NO_SEEDS + or_restored(settings.replica.out, name))
    missing_contact(settings.crawl)
    seeds = await fetchable(seeds, settings.crawl, settings.requests)
    created = settings.created
    opened = await create_crawl(store, name, created.frontier.shards, created.to_json())
    if not opened.created:  # by another command, since `_find`
        opened = await choose_and_adopt(store, opened, settings, on_difference, whole)
    return opened, seeds


async def _find(store: RedisStore, name: str) -> Crawl | None:
    try:
        return await open_crawl(store, name)
    except BadInput:
        return None


async def fetchable(
    seeds: SeedList, settings: CrawlSettings, requests: Sequence[RequestsTable], also: str = ""
) -> SeedList:
    """Return the seeds that `settings` allow to fetch, and report the others. `requests`: the rules of this machine;
    `also`: what a command needs to change the settings. Raises UserError if there are only others."""
    allowed, console, refused, parts = SeedList(), Terminal(stderr=True), 0, 0
    for part in batched(seeds, SEED_CHUNK):
        found = await refused_seeds(part, settings, requests, looks_up=not parts)
        for one in list(found.values())[: max(0, SHOWN - refused)]:
            console.tell(" ".join([str(one), also]).rstrip())
        refused, parts = refused + len(found), parts + 1
        for seed in part:
            if seed not in found:
                allowed.add(seed)
    if refused > SHOWN:
        console.tell(f"and {count_of(refused - SHOWN, 'more seed')} that cannot be fetched")
    if refused and not allowed:
        raise UserError(
            "no seed can be fetched, so nothing was queued or started: add the options shown above, or change these "
            "settings"
        )
    return allowed


async def push_seeds(
    store: RedisStore, crawl: Crawl, seeds: SeedList, read_by: Settings, mode: PushMode = "new"
) -> PushReply:
    """Queue the seeds at depth 0, in mode "again" dead letters, too. `read_by`: the settings with which they were
    parsed. Raises UserError for a scorer in Redis that these do not accept."""
    settings = CrawlSettings.from_json(crawl.settings)
    check_guarded(settings, accepted(read_by), {"frontier.scorer"})
    if url_rules(settings) != url_rules(read_by):
        seeds = _reread(seeds, settings)
    pushed = await queue_seeds(store, crawl, seeds, settings, mode)
    if pushed.outside:  # no seed is dropped for another reason
        gone = count_of(pushed.outside, "seed")
        note(f"{gone} dropped, because `crawler forget` has removed their domains for good")
    return pushed


def _reread(seeds: SeedList, settings: CrawlSettings) -> SeedList:
    """Parse `seeds` again with the URL rules of `settings`. URLs that become too long are reported and skipped."""
    found = SeedList()
    for one in each_seed((seed.text for seed in seeds), url_rules(settings)):
        if isinstance(one, Seed):
            found.add(one)
        else:
            Terminal(stderr=True).tell(f"seed {_shown(one)}: {about_url(one)}")
    return found


# reading


def gather_seeds(settings: CrawlSettings, urls: Iterable[str], files: Iterable[Path]) -> SeedList:
    """Return the seeds of the command line and the files, and note schemes that were chosen. Invalid lines in files are
    reported and skipped. Raises UserError for an invalid URL, and for a file that cannot be read."""
    rules, urls = url_rules(settings), tuple(urls)
    for word in urls:
        _check_word(word)
    typed, errors = read_seeds(urls, rules)
    if errors:
        more = f" (and {len(errors) - 1} more of the URLs cannot be used)" if len(errors) > 1 else ""
        raise UserError(f"seed {_shown(errors[0])}: {about_url(errors[0])}{more}")
    seeds = SeedList()
    for seed in typed:
        seeds.add(seed)
        if not seed.has_scheme:
            note(f"{seed.text.split()[0]} has no scheme, so it is fetched as {_choice(seed)}")
    for path in files:
        _read_file(path, rules, seeds)
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


def _read_file(path: Path, rules: UrlRules, seeds: SeedList) -> None:
    """Add the seeds in the file `path`, "-" for standard input, to `seeds`. What cannot be used is reported."""
    if path.suffix == ".toml" and path.is_file():
        raise UserError(f"seed file {path} is a settings file: use it with --settings {path}")
    name = "standard input" if str(path) == "-" else str(path)
    console, bad, plain, first = Terminal(stderr=True), 0, 0, None
    try:
        # Opened once: what was read of a pipe cannot be read again.
        with (
            _interruptible(),
            io.FileIO(0, closefd=False) if str(path) == "-" else path.open("rb", buffering=0) as raw,
            io.BufferedReader(raw, SAMPLED) as file,
        ):
            sample = file.peek(SAMPLED)
            if _NO_TEXT.search(sample):
                raise UserError(f"seed file {name} is not a text file in UTF-8; a seed file has one URL per line")
            encoding = _encoding_of(sample)
            if encoding != "utf-8":
                note(f"{name} is not in UTF-8, so it is read as Windows-1252 (Latin-1)")
            with io.TextIOWrapper(file, encoding=encoding, errors="replace") as text:
                lines: Iterable[str] = text
                beginning = sample.decode(encoding, "replace").splitlines()
                if len(sample) >= SAMPLED:
                    beginning.pop()  # it may be cut
                if table := table_of(beginning[:20]):
                    lines = column_of(text, *table)
                    note(f"{name} is a table: the URLs in its column {table[1] + 1} are the seeds")
                for seed in each_seed(lines, rules):
                    if isinstance(seed, Seed):
                        seeds.add(seed)
                        if not seed.has_scheme and seed.url.href.startswith("http:"):
                            plain, first = plain + 1, first or seed
                        continue
                    bad += 1
                    if bad <= SHOWN:
                        said = about_url(seed, "on a line of its own")
                        console.tell(f"{name}:{seed.line}: {_shown(seed)}: {said}")
    except OSError as error:
        raise UserError(f"seed file {name}: {error.strerror}") from error
    if bad > SHOWN:
        console.tell(f"{name}: and {bad - SHOWN:,} more lines that are not seeds")
    if bad:
        console.tell(f"{name}: {count_of(bad, 'line')} skipped")
    if first:
        more = f", and {count_of(plain - 1, 'more seed')}" if plain > 1 else ""
        note(f"{name}:{first.line}: no scheme, so it is fetched as {_choice(first)}{more}")


def _encoding_of(sample: bytes) -> str:
    """Return the encoding of a text that begins with `sample`, whose last character may be incomplete."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the command while a pipe without a writer blocks the event loop, for which its handler would wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
