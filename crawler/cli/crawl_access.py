"""Shared by commands about a crawl: the options that select it, and access to its store."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Awaitable, Callable
from difflib import SequenceMatcher
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, TypeVar

from crawler.app.embedded_valkey import open_store
from crawler.app.signals import run_until_signal
from crawler.cli.shared_options import CrawlName, DataDir, Redis, SettingsFile, flags, typed
from crawler.errors import UserError
from crawler.settings.load import load
from crawler.sinks.line_search import has_lines
from crawler.wording import DEFAULT_NAME, with_place
from frontier.crawls import Crawl, open_crawl
from frontier.errors import CrawlLost, FrontierError, NoSuchCrawl, Resharding, ShardLost
from frontier.keys import meta_key
from frontier.redis_url import display_url
from frontier.scripts import command
from frontier.shards import check_not_frozen, lost_shards
from frontier.store import RedisStore

T = TypeVar("T")

SCANS, SCANNED_AT_ONCE = 100, 10_000
"""How many keys are searched for the names of crawls: each call takes some milliseconds."""

SHOWN_NAMES = 8


def titled(crawl: str, of_default: str = "crawl") -> str:
    """Return what a message calls a crawl: its name, or `of_default` if it is the default one."""
    return of_default if crawl == DEFAULT_NAME else f"crawl {crawl}"


def or_restored(out: Path, crawl: str) -> str:
    """Return the end of an error about a missing crawl: how to restore it, if the folder `out` has its output."""
    name = "" if crawl == DEFAULT_NAME else f" --crawl {crawl}"
    return f", or restore the crawl in the output with `crawler repair{name}`" if has_lines(out, crawl) else ""


class CrawlAccess:
    """The crawl that a command is about: its name, and the options that select its store. `place`: these options as they
    were given, for commands in messages."""

    def __init__(
        self, crawl: str, redis: str | None, data_dir: Path | None, settings: Path | None, out: Path | None = None
    ) -> None:
        self.crawl = crawl
        self.place = place_of(crawl, redis, data_dir, settings)
        self.settings = load(settings, flags(replica={"redis": redis, "data_dir": data_dir, "out": out}))
        self._typed = typed(redis, data_dir, settings)

    def do(self, work: Callable[[RedisStore, Crawl], Awaitable[T]], for_reshard: bool = False) -> T:
        """Open the crawl, run `work` on it, and return the result. `for_reshard`: also while its number of shards is being
        changed. Raises FrontierError, and UserError, without creating anything, if there is no such crawl."""
        self.check_place()

        async def opened() -> T:
            async with open_store(self.settings.replica) as store:
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

    def check_place(self) -> None:
        """Raises UserError if the crawl would be in an embedded store that does not exist."""
        local = self.settings.replica
        if not local.redis and not local.data_dir.exists():
            raise UserError(
                f"no crawl here, because there is no folder {local.data_dir}/: start one with `{self._command('crawl')} "
                f"URL`, or name its store with --data-dir or --redis{or_restored(local.out, self.crawl)}"
            )

    def check(self) -> None:
        """Raises UserError if there is no such crawl, and FrontierError."""

        async def nothing(store: RedisStore, opened: Crawl) -> None:
            pass

        self.do(nothing)

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
            if has_lines(local.out, self.crawl):
                made = (
                    f"{local.out}/ has its output; to restore it, with its settings: {self._command('repair')} -f FILE; "
                    f"to start from nothing: {self._command('seed')} -f FILE"
                )
            else:
                made = f"to create it: {self._command('seed')} -f FILE"
            raise UserError(f"no crawl named {self.crawl!r} {place}{others}; {made}") from error

    def _command(self, command: str) -> str:
        """Return the command line of `command` for this crawl and store."""
        name = f" --crawl {self.crawl}" if self.crawl != DEFAULT_NAME else ""
        return f"crawler {command}{name}{self._typed}"


def place_of(crawl: str, redis: str | None, data_dir: Path | None, settings: Path | None) -> str:
    """Return the options that select the crawl, those that are given, for a command in a message."""
    return f"--crawl {shlex.quote(crawl)}{typed(redis, data_dir, settings)}"


async def crawl_names(store: RedisStore) -> list[str]:
    """Return the sorted names of the crawls; not all if the server has more than a million keys, and of a cluster only
    those of one node."""
    cursor, names = 0, set[str]()
    for _ in range(SCANS):
        try:
            scan = command("SCAN", cursor, "MATCH", meta_key("*"), "COUNT", SCANNED_AT_ONCE)
            ((cursor, keys),) = await store.send([scan])
        except FrontierError:  # a user who may not scan: the error is then shown without the list
            break
        names |= {key.decode().partition("}")[0].removeprefix("{") for key in keys}
        if not int(cursor):
            break
    return sorted(names)


_WHICH: dict[str, tuple[object, Any]] = {
    "crawl": (DEFAULT_NAME, CrawlName),
    "redis": (None, Redis),
    "data_dir": (None, DataDir),
    "settings": (None, SettingsFile),
}
"""Option -> default and type, as `CrawlAccess` takes them."""


def on_a_crawl(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with its parameter `access` replaced by the options that select the crawl."""
    parameters: list[Parameter] = []
    for one in signature(command, eval_str=True).parameters.values():
        if one.name == "access":
            parameters += [
                Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
                for name, (default, kind) in _WHICH.items()
            ]
        else:
            parameters.append(one.replace(kind=Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        which = [given.pop(name) for name in _WHICH]
        command(access=CrawlAccess(*which), **given)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
