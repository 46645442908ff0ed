"""`crawler reshard`: gives a crawl another number of shards, while its replicas run."""

from __future__ import annotations

import asyncio
import math
import sys
import time

import click
import msgspec
from rich import filesize

from crawler.cli.main import INTERRUPTED
from crawler.cli.options import CrawlAccess, as_json, command, on_a_crawl, titled
from crawler.cli.screens import span
from crawler.cli.text import Terminal, emit
from crawler.errors import UserError
from crawler.plan.arithmetic import MOST, Constants, number
from crawler.settings.load import CrawlSettings
from crawler.wording import count_of
from frontier.clock import ServerClock, SystemClock
from frontier.cluster import NodeFacts
from frontier.counters import Counters
from frontier.crawls import Crawl, check_new_shards, crawl_clock, open_crawl
from frontier.errors import RedisAway, RedisMisused, ShardLost
from frontier.reshard import Reshard, open_with_new_shards
from frontier.store import RedisStore

EVERY_S = 5.0
"""Seconds between two lines of the same step."""

CONTINUING = "continuing"
"""The last step of the command, in which nothing is left to do for it."""


FIGURES = ("used_memory", "used_memory_startup", "used_cpu_user", "used_cpu_sys", "maxmemory", "total_system_memory")

_STEPS = {
    "begun": "replicas are told to wait",
    "waiting": "replicas end their requests in flight, leases left: {done:,}",
    "copied": "{percent} % copied: {done:,} of {total:,} keys",
    "comparing": "all is copied; comparing the numbers of URLs",
    "switched": "the crawl has its new shards; waiting until the servers have synced that",
    "removed": "{percent} % of the old keys removed: {done:,} of {total:,} keys",
    "undone": "keys of the copy removed: {done:,}",
    CONTINUING: "all is done; looking whether a replica continues",
}
"""Step -> what is shown of it."""


class Result(msgspec.Struct, frozen=True):
    """`before`, `after`: the numbers of shards. `keys`: how many were copied, 0 if an earlier command did that. `paused_s`:
    how long no URL was settled, None if no replica worked before the reshard, or none continued soon after it."""

    crawl: str
    before: int
    after: int
    keys: int
    paused_s: float | None
    seconds: float


class Progress:
    """Prints how far the command is on standard error, in lines."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown = ("", 0.0)
        self.step = ""
        self.keys = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def tell(self, step: str, done: int, total: int) -> None:
        """Show what `frontier.reshard.Tell` says, or that the last step has begun (`CONTINUING`)."""
        self.step = step
        if step == "copied":
            self.keys = max(self.keys, done)
        if step != self._shown[0] or self.seconds >= self._shown[1] + EVERY_S:
            self._shown = step, self.seconds
            percent = 100 * done // max(1, total)
            Terminal(stderr=True).tell(_STEPS[step].format(done=done, total=total, percent=percent))


def _number_of_shards(text: str) -> int:
    found = number("--shards", text, -MOST)
    if found % 1:
        raise UserError(f"--shards: {text!r} is not a whole number")
    return int(found)


@command()
@on_a_crawl
@click.option(
    "--shards",
    type=_number_of_shards,
    metavar="NUMBER",
    help="The new number: a multiple of the present one, or one that divides it.",
)
@click.option("--cancel", is_flag=True, help="Undo a reshard that was interrupted.")
@as_json
def reshard(access: CrawlAccess, shards: int | None, cancel: bool, as_json: bool) -> None:
    """Give a crawl another number of shards.

    Replicas may run: they end their requests in flight, wait while the shards are copied, and continue by themselves. The
    copy needs as much memory in Redis as the crawl has now; more shards need more for the URLs that were seen. If the
    command is interrupted, the crawl stands still until the same command is run again, which completes the reshard, or
    until `--cancel` undoes it.

    Examples:

        crawler reshard --shards 4096 --crawl news --redis redis://queue:6379/0
        crawler reshard --cancel --crawl news --redis redis://queue:6379/0
    """
    if (shards is None) is not cancel:
        raise UserError("give either --shards N or --cancel")
    progress = Progress()

    async def work(store: RedisStore, opened: Crawl) -> Result:
        if shards is None:
            return await _cancel(store, opened, progress)
        return await _reshard(store, opened, shards, progress)

    result, code = None, 0
    try:
        result = access.do(work, for_reshard=True)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as end:  # SIGTERM or SIGHUP
        code = int(end.code or 0)
    except (RedisAway, RedisMisused):
        if progress.step and progress.step != CONTINUING:
            Terminal(stderr=True).tell(_how_to_go_on(access, shards, progress.step, "not completed"))
        raise
    if result is None:
        Terminal(stderr=True).tell(_how_to_go_on(access, shards, progress.step, "interrupted"))
        sys.exit(code)
    emit(result, as_json, _render(result))


async def _reshard(store: RedisStore, crawl: Crawl, shards: int, progress: Progress) -> Result:
    if _begins(crawl, shards) and shards > crawl.shards:
        await _check_memory(store, crawl, shards)
    before = crawl.former or crawl.shards
    work = Reshard(store, crawl, await _clocks(store, crawl), shards, _delay_ms(crawl))
    try:
        paused_ms = await _carry_out(work, crawl, progress)
    except ShardLost as error:
        if (await open_crawl(store, crawl.name, for_reshard=True)).resharding is None:
            raise
        raise UserError(f"{error}; before a repair, undo the reshard with --cancel") from error
    paused_s = None if paused_ms is None else round(paused_ms / 1000, 1)
    return Result(crawl.name, before, shards, progress.keys, paused_s, round(progress.seconds, 1))


async def _carry_out(work: Reshard, crawl: Crawl, progress: Progress) -> int | None:
    """Reshard the crawl, and return how long it stood still, in milliseconds."""
    last_token = await open_with_new_shards(work, crawl, progress.tell)
    watching = asyncio.create_task(work.standstill_ms(last_token))
    try:
        await work.clean(last_token, progress.tell)
        progress.tell(CONTINUING, 0, 0)
        return await watching
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _cancel(store: RedisStore, crawl: Crawl, progress: Progress) -> Result:
    if crawl.former:
        raise UserError(
            f"crawl {crawl.name!r} has {count_of(crawl.shards, 'shard')} by now, so this cannot be undone; complete it "
            f"with --shards {crawl.shards}"
        )
    if crawl.resharding is None:
        raise UserError(f"crawl {crawl.name!r} is not being resharded, so there is nothing to undo")
    work = Reshard(store, crawl, await _clocks(store, crawl), crawl.resharding.after, _delay_ms(crawl))
    await work.cancel(progress.tell)
    return Result(crawl.name, crawl.shards, crawl.shards, 0, None, round(progress.seconds, 1))


async def _clocks(store: RedisStore, crawl: Crawl) -> tuple[SystemClock, ServerClock]:
    return SystemClock(), await crawl_clock(store, crawl)


def _delay_ms(crawl: Crawl) -> int:
    return int(1000 * CrawlSettings.from_json(crawl.settings).politeness.delay)


def _begins(crawl: Crawl, shards: int) -> bool:
    """Whether this begins a reshard, rather than completes one. Raises BadInput or UserError if it cannot."""
    progress = crawl.resharding
    if progress is not None and progress.cancelled:
        raise UserError(f"crawl {crawl.name!r} is {progress}")
    begun = crawl.shards if crawl.former else progress.after if progress is not None else shards
    if begun != shards and crawl.former and progress is None:
        raise UserError(
            f"crawl {crawl.name!r} has {count_of(begun, 'shard')} by now, but keys of its former {crawl.former:,} are "
            f"left; remove them first with --shards {begun}"
        )
    if begun != shards:
        undo = "" if crawl.former else ", or undo it with --cancel"
        raise UserError(
            f"crawl {crawl.name!r} is being given {count_of(begun, 'shard')} by a command that is running or was "
            f"interrupted; complete that first with --shards {begun}{undo}"
        )
    if progress is not None or crawl.former:
        return False
    check_new_shards(crawl.shards, shards)
    return True


async def _check_memory(store: RedisStore, crawl: Crawl, shards: int) -> None:
    """Raises UserError if Redis has no memory for the fingerprints: each new shard gets all of an old one (decision
    0015)."""
    seen = (await Counters(store, crawl.keys).counts()).seen
    constants = Constants()
    in_one = constants.memory_seen * seen / crawl.shards + constants.memory_shard
    left = await memory_left(store)
    if in_one * shards > left:
        fitting = int(left / in_one) // crawl.shards * crawl.shards
        fewer = f"choose at most {fitting:,}, or " if fitting > crawl.shards else ""
        raise UserError(
            f"{count_of(shards, 'shard')} would take {filesize.decimal(int(in_one * shards))} of memory for "
            f"{count_of(seen, 'fingerprint')} of seen URLs, and Redis has {filesize.decimal(int(left))} left; {fewer}give "
            "it more memory (maxmemory)"
        )


def _how_to_go_on(access: CrawlAccess, shards: int | None, step: str, ended: str) -> str:
    place = access.place
    if shards is None:
        return f"{ended}; to continue: crawler reshard --cancel {place}"
    number = count_of(shards, "shard")
    if step == CONTINUING:
        return f"{ended}, but nothing was left to do: the crawl has {number}"
    again = f"crawler reshard --shards {shards} {place}"
    if not step:
        return f"{ended}, before this command had changed anything; to try again: {again}"
    if step == "switched":
        return f"{ended}: the crawl has {number}, and stands still until this is completed: {again}"
    if step == "removed":
        return f"{ended}: the crawl goes on with {number}; to remove the keys that are left: {again}"
    return (
        f"{ended}: the crawl stands still until this is completed; to continue: {again}\n"
        f"to undo it: crawler reshard --cancel {place}"
    )


def _render(result: Result) -> str:
    if result.before == result.after:
        return f"{titled(result.crawl)}: the reshard was undone; it has {count_of(result.after, 'shard')}"
    done = f"{titled(result.crawl)}: {count_of(result.after, 'shard')} instead of {result.before:,}"
    if not result.keys:
        return f"{done}; completed what an earlier command had begun"
    done = f"{done}; {count_of(result.keys, 'key')} copied"
    return done if result.paused_s is None else f"{done}, and the crawl stood still for {span(result.paused_s)}"


async def memory_left(store: RedisStore) -> float:
    """Return the bytes that Redis may still use, infinite if a server does not tell. Raises RedisAway."""
    servers = await figures_of_servers(store)
    limits = [server["maxmemory"] or server["total_system_memory"] or math.inf for server in servers]
    return sum(max(0.0, limit - server["used_memory"]) for limit, server in zip(limits, servers, strict=True))


async def figures_of_servers(store: RedisStore) -> list[dict[str, float]]:
    """Return figures from INFO of each master, 0 for what is missing. Raises RedisAway."""
    nodes = (await store.node_facts()).values()
    infos = [node.info for node in nodes if isinstance(node, NodeFacts) and node.is_master]
    infos = infos or [await store.info("memory") | await store.info("cpu")]
    return [{name: float(info.get(name, 0)) for name in FIGURES} for info in infos]
