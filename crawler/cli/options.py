"""The options that commands share, the settings that options give, and access to the crawl that a command is about."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Awaitable, Callable, Iterable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

from crawler.app.embedded_valkey import open_store
from crawler.app.signals import run_until_signal
from crawler.cli.main import Command, Group
from crawler.errors import UserError
from crawler.scope.next_visit import UNITS, duration_s
from crawler.scope.scope import Kind
from crawler.settings.load import Settings, load
from crawler.settings.tables import ReplicaTable, keys_of
from crawler.sinks.lines import has_lines
from crawler.wording import DEFAULT_NAME, eviction_warning, with_place
from frontier.crawls import Crawl, crawl_clock, open_crawl
from frontier.errors import CrawlLost, FrontierError, NoSuchCrawl, Resharding, ShardLost
from frontier.keys import check_crawl_name, meta_key
from frontier.queue import Frontier, FrontierSettings
from frontier.redis_url import display_url, url_to_copy
from frontier.shard_contents import nodes_of
from frontier.shards import check_not_frozen, lost_shards
from frontier.store import RedisStore, scan
from politeness.usage import Category

T = TypeVar("T")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

SCANS, SCANNED_AT_ONCE = 100, 10_000
"""How many keys are searched for the names of crawls: each call takes some milliseconds."""

SHOWN_NAMES = 8

FLAGS, FILE_OF_SETTINGS = "crawler.cli.flags", "crawler.cli.settings"
"""Where click's context keeps the settings that options give, as {table: {key: value}}, and the settings file."""


# what an option takes


class Number(click.FloatRange):
    """A number in a range. An error shows it as it was typed."""

    name = "number"
    kind: type[float] = float

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = self.kind(value)
        except ValueError:
            noun = "integer" if self.kind is int else "number"
            self.fail(f"{value!r} must be a valid {noun}", param, ctx)
        if self.min is not None and not number >= self.min:  # so NaN is refused
            self.fail(f"{value!r} must be greater than or equal to {self.min}", param, ctx)
        if self.max is not None and not number <= self.max:
            self.fail(f"{value!r} must be less than or equal to {self.max}", param, ctx)
        return number


class Whole(Number):
    kind = int


class Duration(click.ParamType[float]):
    """A number and a unit, such as 6h, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = value if isinstance(value, float) else duration_s(value)
        if seconds is None:
            self.fail(f"{value!r} must be a number and {UNITS}", param, ctx)
        return seconds


class Word(click.ParamType[str]):
    """One of some words, which the shell completes. It is judged later, with other settings."""

    name = "word"

    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(words)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


def _path(name: str) -> click.Path:
    kind = click.Path(path_type=Path)
    kind.name = name
    return kind


FILE, FOLDER = _path("file"), _path("folder")
USES = click.Choice(get_args(Category))


def command(name: str | None = None) -> Callable[[Callable[..., Any]], Command]:
    return click.command(name, cls=Command)


def group() -> Callable[[Callable[..., Any]], Group]:
    return click.group(cls=Group)


# options


def options(*decorators: Decorator) -> Decorator:
    def add_to(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return add_to


def sets(setting: str, *spellings: str, **attributes: Any) -> Decorator:
    """Return a decorator that adds an option which gives the value of `setting`, for `given_settings`."""
    table, _, key = setting.partition(".")

    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None and value != ():
            flags = context.meta.setdefault(FLAGS, {}).setdefault(table, {})
            flags[key] = list(value) if isinstance(value, tuple) else value

    return click.option(*spellings, callback=remember, expose_value=False, **attributes)


def _remember_file(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    context.meta[FILE_OF_SETTINGS] = value


def _check_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    check_crawl_name(value)  # before anything is opened or created
    return value


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
crawl_name = click.option(
    "--crawl", default=DEFAULT_NAME, callback=_check_name, metavar="NAME", help="Name of the crawl."
)
of_crawl = click.option("--crawl", metavar="NAME", help="Crawl whose output to read, if several share the folder.")
redis = sets("replica.redis", "--redis", metavar="URL", help="Redis or Valkey URL; default: an embedded server.")
data_dir = sets(
    "replica.data_dir", "--data-dir", type=FOLDER, help="Folder where the embedded server stores the queue."
)
settings_file = click.option(
    "--settings",
    "-s",
    type=FILE,
    callback=_remember_file,
    is_eager=True,
    expose_value=False,
    help="Settings file (TOML).",
)
store = options(redis, data_dir, settings_file)
logging_options = options(
    sets(
        "replica.log_level",
        "--log-level",
        type=Word(keys_of(ReplicaTable)["log_level"].choices),
        metavar="LEVEL",
        help="debug, info, warning or error.",
    ),
    sets(
        "replica.log_format",
        "--log-format",
        type=Word(keys_of(ReplicaTable)["log_format"].choices),
        metavar="FORMAT",
        help="console or json.",
    ),
)
out = sets("replica.out", "--out", "-o", type=FOLDER, help="Folder for WARC files and JSON lines.")
concurrency = sets("replica.concurrency", "--concurrency", type=Whole(1), help="Requests in flight per replica.")
app = sets(
    "handlers.app",
    "--app",
    metavar="MODULE:ROUTER",
    help="package.module:router with the handlers of pages; see docs/how-to/extract-data.md.",
)
listen = sets(
    "replica.listen",
    "--listen",
    metavar="ADDRESS:PORT",
    help="ADDRESS:PORT of the live page and /metrics; PORT alone: on loopback. Several replicas count up from it.",
)
scope = sets("scope.kind", "--scope", type=Word(get_args(Kind)), metavar="KIND", help="seeds, domains, hosts or any.")
host_map = sets(
    "fetch.host_map",
    "--host-map",
    multiple=True,
    metavar="PATTERN=ADDRESS:PORT",
    help="PATTERN=ADDRESS:PORT: connect to this address for matching hosts.",
)
allow = click.option(
    "--allow",
    multiple=True,
    metavar="NETWORK",
    help="Also allow connections to this private network, address or localhost (fetch.allow). Can be repeated.",
)
port = click.option(
    "--port",
    type=Whole(1, 65_535),
    multiple=True,
    help="Also allow URLs with this port (fetch.ports). Can be repeated.",
)
render = sets(
    "render.mode",
    "--render",
    type=click.Choice(["off", "auto", "always"]),
    help="Render pages in a browser, so that their scripts run; see docs/how-to/render-pages.md.",
)
replicas = click.option("--replicas", type=Whole(1, 256), default=1, help="Replicas on this machine.")


def on_difference(function: Callable[..., None]) -> Callable[..., Any]:
    """Add the options that say what to do if the settings differ from those of the crawl, as `on_difference`."""

    @functools.wraps(function)
    def choosing(*, keep_settings: bool, apply_settings: bool, **given: Any) -> None:
        if keep_settings and apply_settings:
            raise UserError("give either --keep-settings or --apply-settings, not both")
        function(on_difference="keep" if keep_settings else "apply" if apply_settings else "stop", **given)

    return options(
        click.option("--keep-settings", is_flag=True, help="If the settings differ, use those of the crawl."),
        click.option(
            "--apply-settings",
            is_flag=True,
            help="Change the crawl's settings to those from file, environment and flags. A file with settings of the crawl "
            "replaces all of them: those that it does not name return to their defaults.",
        ),
    )(choosing)


def given_settings(allowed: tuple[str, ...] = (), ports: tuple[int, ...] = (), file: Path | None = None) -> Settings:
    """Return the settings of a command. `allowed`, `ports`: of --allow and --port; `file`: unless --settings names one."""
    meta = click.get_current_context().meta
    return load(meta.get(FILE_OF_SETTINGS, file), meta.get(FLAGS)).adding(allowed, ports)


# the crawl that a command is about


class CrawlAccess:
    """A crawl by its name, and where its store is. `typed`: the options for the store, as they were typed."""

    def __init__(self, crawl: str, settings: Settings, typed: str = "") -> None:
        self.crawl = crawl
        self.settings = settings
        self.typed = typed

    @classmethod
    def given(cls, crawl: str, file: Path | None = None) -> CrawlAccess:
        """Return the crawl that the options of a command select. `file`: the settings file, unless --settings names it."""
        meta = click.get_current_context().meta
        replica = meta.get(FLAGS, {}).get("replica", {})
        typed = typed_options(replica.get("redis"), replica.get("data_dir"), meta.get(FILE_OF_SETTINGS, file))
        return cls(crawl, given_settings(file=file), typed)

    @property
    def place(self) -> str:
        """The options that select the crawl, for commands in messages."""
        return place_of(self.crawl, self.typed)

    def do(self, work: Callable[[RedisStore, Crawl], Awaitable[T]], for_reshard: bool = False) -> T:
        """Run `work` on the crawl. `for_reshard`: also during a reshard. Raises FrontierError, and UserError without a
        crawl."""
        self.check_place()

        async def opened() -> T:
            async with open_store(self.settings.replica) as store:
                note_eviction(store)
                crawl = await self._open(store, for_reshard)
                try:
                    return await work(store, crawl)
                except ShardLost as error:
                    await self._open(store, for_reshard)  # raises Resharding if the shards were frozen just now
                    check_not_frozen(crawl.keys, await lost_shards(store, crawl.keys, error.shards))
                    raise

        try:
            return run_until_signal(opened())
        except (CrawlLost, Resharding) as error:
            error.reword(*with_place([str(error)], self.place))
            raise

    def read(self) -> Crawl:
        """Return the crawl. Raises UserError if there is none, and FrontierError."""

        async def opened(store: RedisStore, crawl: Crawl) -> Crawl:
            return crawl

        return self.do(opened)

    @property
    def has_store(self) -> bool:
        """Whether there may be a store: always, unless it is an embedded one without a folder."""
        local = self.settings.replica
        return bool(local.redis) or local.data_dir.exists()

    def check_place(self) -> None:
        """Raises UserError if the crawl would be in an embedded store that does not exist."""
        local = self.settings.replica
        if not self.has_store:
            raise UserError(
                f"no crawl here, because there is no folder {local.data_dir}/: start one with `{self._command('crawl')} "
                f"URL`, or name its store with --data-dir or --redis{or_restored(local.out, self.crawl)}"
            )

    async def _open(self, store: RedisStore, for_reshard: bool) -> Crawl:
        try:
            return await open_crawl(store, self.crawl, for_reshard)
        except NoSuchCrawl as error:
            local = self.settings.replica
            place = f"at {display_url(local.redis)}" if local.redis else f"in {local.data_dir}/"
            names = await crawl_names(store)
            names.sort(key=lambda name: -SequenceMatcher(None, self.crawl, name).ratio())
            more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
            others = f"; there are: {', '.join(names[:SHOWN_NAMES])}{more} (choose one with --crawl)" if names else ""
            create = f"{self._command('seed')} -f FILE"
            advice = f"to create it: {create}"
            if has_lines(local.out, self.crawl):
                advice = (
                    f"{local.out}/ has its output; to restore it, with its settings: {self._command('repair')} "
                    f"--archive {shlex.quote(str(local.out))} -f FILE; "
                    f"to start from nothing: {create}"
                )
            if evicted := int((await store.info("stats")).get("evicted_keys", 0)):
                advice = f"{eviction_warning(store.eviction_policy, evicted)}; if there was none, {advice}"
            raise UserError(f"no crawl named {self.crawl!r} {place}{others}; {advice}") from error

    def _command(self, name: str) -> str:
        return f"crawler {name}{_unless_default(self.crawl)}{self.typed}"


def note_eviction(store: RedisStore) -> None:
    if warning := eviction_warning(store.eviction_policy):
        from crawler.cli.text import note  # noqa: PLC0415 - replicas need no terminal

        note(warning)


def on_a_crawl(function: Callable[..., None]) -> Callable[..., Any]:
    """Add the options that select a crawl, as `access`."""

    @functools.wraps(function)
    def with_access(*, crawl: str, **given: Any) -> None:
        function(access=CrawlAccess.given(crawl), **given)

    return options(crawl_name, store)(with_access)


def typed_options(redis: str | None, data_dir: Path | None, settings: Path | None) -> str:
    """Return the options that select a store, each after a space, with USER and PASSWORD for the secrets in the URL."""
    url = redis and url_to_copy(redis)
    words: list[str] = []
    for option, value in (("--redis", url), ("--data-dir", data_dir), ("--settings", settings)):
        words += [option, str(value)] if value else []
    return "".join(f" {shlex.quote(word)}" for word in words)


def place_of(crawl: str, typed: str) -> str:
    """Return the options that select a crawl, for a command in a message. `typed`: those that select its store."""
    return f"--crawl {shlex.quote(crawl)}{typed}"


def titled(crawl: str, of_default: str = "crawl") -> str:
    """Return what a message calls a crawl: its name, or `of_default` if it is the default one."""
    return of_default if crawl == DEFAULT_NAME else f"crawl {crawl}"


def _unless_default(crawl: str) -> str:
    return f" --crawl {crawl}" if crawl != DEFAULT_NAME else ""


def or_restored(out: Path, crawl: str) -> str:
    """Return the end of an error about a missing crawl: how to restore it, if the folder `out` has its output."""
    command = f"crawler repair{_unless_default(crawl)}"
    return f", or restore the crawl in the output with `{command}`" if has_lines(out, crawl) else ""


async def open_frontier(store: RedisStore, crawl: Crawl) -> Frontier:
    """Return the frontier of a crawl, as a command needs it that does not fetch."""
    clock = await crawl_clock(store, crawl)
    return Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)


async def crawl_names(store: RedisStore) -> list[str]:
    """Return the sorted names of the crawls; not all if a server has more than a million keys."""
    names = set[str]()
    for base in nodes_of(store):
        scans = 0
        with contextlib.suppress(FrontierError):  # a user who may not scan: the error is then shown without the list
            async for keys in scan(store, "SCAN", "", "MATCH", meta_key("*"), "COUNT", SCANNED_AT_ONCE, at=base):
                names |= {key.decode().partition("}")[0].removeprefix("{") for key in keys}
                scans += 1
                if scans >= SCANS:
                    break
    return sorted(names)
