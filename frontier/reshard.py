"""Gives a crawl another number of shards (`crawler reshard`).

The shards of each layout have keys of their own, so the old ones stay as they are until the new ones are complete:

1. `begin`: nobody opens the crawl from now on. Replicas return their leases, which takes some seconds, and wait. Then all
   old shards are frozen: leases that are left end, and nothing is queued, leased or settled in them any more.
2. `copy`: the contents are copied to the new shards, and their numbers compared (`frontier.layout_copy`). Then the new
   shards get the identity with which replicas use them, and the servers sync all this.
3. `switch`: one script lets the crawl use the new shards.
4. `open`: replicas may open the crawl again. They do so by themselves.
5. `clean`: the old keys are removed. Replicas do not use them.

A command that was killed is run again. Before the switch, the next command removes what was copied, and copies anew, since
the old shards stay frozen. After it, the next command continues. Until the switch, the reshard can be cancelled.

Any call may arrive late, when its command has given it up, and in the middle of a later reshard. So each command claims
its reshard and gets a number. The shards that it fills have that number in their keys, so no two commands write to the
same ones. Other calls that could do harm name the claim, too, and are refused if it is not the last one
(`lua/begin_reshard.lua`). Fingerprints do not tell their domain: see the decision 0015.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from frontier import scripts
from frontier.clock import Clock, ServerClock
from frontier.control import Control
from frontier.crawls import Crawl
from frontier.durability import until_synced
from frontier.errors import BadInput, CrawlLost, CrawlResharded, RedisAway, RedisMisused, ShardLost
from frontier.key_pages import AT_ONCE, asked, key_count, pages, pages_of_all
from frontier.layout_copy import LayoutCopy, Tell
from frontier.peer_loop import owners_fields
from frontier.redis_keys import (
    ATTEMPTS,
    CrawlKeys,
    ShardKeys,
    layout_number,
    owners_table,
    tokens_of,
    was_made_until,
    with_identity,
)
from frontier.shard_contents import LEFT_BEHIND
from frontier.shard_identity import check_identity, frozen, identify_shards, lost_shards
from frontier.standstill import standstill_ms
from frontier.store import Call, Reply, Store, command, script_call

LEASES_END_S = 8.0
"""How long the command waits for leases to end, in seconds: up to two until replicas notice the reshard, five for their
requests in flight (`crawler.app.reshard_wait`), and one to settle them."""

QUIET_S = 3.0
"""How long after the restart of a server nothing is frozen, in seconds: replicas repeat their last writes meanwhile."""

LOOK_S = 0.1
"""Seconds between two looks whether all leases have ended."""

REPORT_S = 1.0
"""Seconds between two reports of the progress, by which other commands know that this one is alive (BUSY_MS in
`lua/begin_reshard.lua`)."""

KEPT_MS = 3 * 86_400_000 + 3_600_000
"""How long it stays known what was settled under old leases, as in `lua/lost_writes.lua`, and an hour."""


TOKENS_AHEAD = 10_000
"""How far the tokens of old leases may be above those in the shards: see `lua/lost_writes.lua`."""

RESHARD_STEP = ("resharding", "reshard_may_switch", "reshard_progress")
"""The fields of the key `meta` that are there during a reshard."""


class Wanted(NamedTuple):
    """What a reshard needs to know: the new number of `shards`, and the delay of domains that have none of their own."""

    shards: int
    delay_ms: int


class Reshard:
    """Gives `crawl` the `wanted` shards. All methods raise RedisAway. Then open the crawl again, and make another object
    from it, as `crawler reshard` does when it is run again: a step may have been carried out."""

    def __init__(self, store: Store, crawl: Crawl, clocks: tuple[Clock, ServerClock], wanted: Wanted) -> None:
        self._store = store
        self._crawl = crawl
        self._local_clock, self._clock = clocks
        self._delay_ms = wanted.delay_ms
        is_switched = bool(crawl.former)
        self._tokens = crawl.last_tokens[:-1] if is_switched else crawl.last_tokens
        self._old = crawl.keys_of(self._tokens, crawl.former or crawl.shards)
        self._after = crawl.shards if is_switched else wanted.shards
        self._frozen = with_identity(self._old, frozen(self._old))
        self._command = secrets.token_hex(8)
        self._claimed = crawl.reshard_claims
        self._progress = (0, 0)
        self._runs: list[tuple[str, str]] = []  # before the shards were frozen
        self._began_ms = self._clock.now_ms()

    def _new(self, last_token: int) -> CrawlKeys:
        return self._crawl.keys_of((*self._tokens, last_token), self._after)

    @property
    def _shards(self) -> Sequence[ShardKeys]:
        """The old shards, and those that this command fills."""
        return [*self._old.shards, *self._new(self._claimed).shards]

    # until the shards are frozen

    async def begin(self, tell: Tell) -> None:
        """Let replicas end their leases, and freeze the crawl. Raises ShardLost, and CrawlResharded if another command is
        changing its number of shards."""
        lost = await lost_shards(self._store, self._old)
        if gone := [shard for shard, found in lost.items() if found != self._frozen.identity]:
            raise ShardLost(self._crawl.name, gone)
        await self._check_forgotten()
        await self._claim()
        tell("begun", 0, 0)
        await self._until_synced()
        await self._check_claim()  # a server may have lost it; then nobody may freeze for it
        await self._until_leases_end(tell)
        self._runs = await self._servers()
        left = list(range(len(self._old.shards)))
        while left:
            part = left[:AT_ONCE]
            replies = await self._store.send([self._freeze(self._old.shards[shard]) for shard in part])
            check_identity(self._crawl.name, part, replies)
            if any(reply[0] == b"cancelled" for reply in replies):
                raise self._overtaken()
            left = [shard for shard, reply in zip(part, replies, strict=True) if reply[1]] + left[AT_ONCE:]

    async def _check_forgotten(self) -> None:
        """Raises BadInput if a domain is being forgotten: its URLs are in some keys of its shard, and not in others."""
        control = Control(self._store, self._old)
        await control.refresh()
        if control.rules.half_forgotten:
            undo = "undo the reshard with `crawler reshard --cancel`, and " if self._crawl.resharding else ""
            raise BadInput(
                f"a domain of crawl {self._crawl.name!r} is being forgotten, or `crawler forget` was interrupted: {undo}"
                "repeat that command, which completes it, before the crawl gets other shards"
            )

    async def _claim(self) -> None:
        first: int | None = None
        while True:
            words = (_field(self._tokens), self._after, self._command, self._clock.now_ms(), self._claimed)
            (reply,) = await self._store.send([script_call(scripts.BEGIN_RESHARD, [self._old.meta], *words)])
            if reply[0] != b"busy":
                self._check_meta(reply)
                self._claimed = int(reply[1])
                return
            if first is not None and int(reply[1]) != first:
                raise CrawlResharded(f"another command is resharding crawl {self._crawl.name!r}; see `crawler status`")
            first = int(reply[1])  # its command may have been killed just now
            await self._local_clock.sleep(REPORT_S)

    async def _until_leases_end(self, tell: Tell) -> None:
        now = self._local_clock.monotonic
        deadline, quiet_at = now() + LEASES_END_S, 0.0
        runs = await self._servers()
        while True:
            leases = sum(await asked(self._store, [command("ZCARD", of.leases) for of in self._old.shards]))
            tell("waiting", leases, 0)
            latest = await self._servers()
            if latest != runs:
                runs, quiet_at = latest, now() + QUIET_S
            if now() >= quiet_at and (not leases or now() >= deadline):
                return
            await self._local_clock.sleep(LOOK_S)

    def _freeze(self, of: ShardKeys) -> Call:
        what = (self._old.identity, self._frozen.identity, self._clock.now_ms(), self._delay_ms, self._claimed)
        return script_call(scripts.FREEZE_SHARD, (of.stats, of.base), *what)

    async def _servers(self) -> list[tuple[str, str]]:
        """The node of each shard and of the key `meta`, and its run."""
        keys = [self._old.meta, *(of.base for of in self._shards)]
        nodes = {self._store.node_of(key): key for key in keys}
        await self._store.send([command("EXISTS", key) for key in nodes.values()])
        return [(self._store.node_of(key), self._store.run_of(key)) for key in keys]

    # the copy

    async def copy(self, tell: Tell) -> int:
        """Copy everything, compare, and return the last token of the old layout. Raises CrawlLost if the copy is not
        equal."""

        def note(step: str, done: int, total: int) -> None:
            if step == "copied":
                self._progress = done, total
            tell(step, done, total)

        await self._remove_attempts(self._claimed - 1, _tell_nobody)
        last_token = await self._last_token()
        new = self._new(last_token)
        filled = with_identity(new, f"{new.identity}:filling")
        await identify_shards(self._store, filled, range(self._after))
        await self._check_claim()  # if this attempt has ended, removes that identity; later, whoever ends it does
        try:
            await LayoutCopy(self._store, self._crawl, self._old, filled).run(last_token, note)
            await identify_shards(self._store, new, range(self._after), former=filled.identity)
            await self._until_synced()
        except CrawlLost:
            await self._check_servers()  # otherwise the copy would be equal
            await self._check_claim()
            raise
        await self._check_servers()
        return last_token

    async def _last_token(self) -> int:
        """A token above those of all old leases, which tells the claim (`redis_keys.ATTEMPTS`)."""
        tokens = await asked(self._store, [command("HGET", of.owner, "token") for of in self._old.shards])
        least = max(self._clock.now_ms(), *(int(token or 0) for token in tokens)) + TOKENS_AHEAD
        return (least // ATTEMPTS + 1) * ATTEMPTS + self._claimed % ATTEMPTS

    async def _remove_attempts(self, last: int, tell: Tell) -> None:
        """Remove what the commands with the claims up to `last` have left in new shards. They can switch no more: another
        command has begun since, or the reshard is cancelled."""
        tokens = self._crawl.last_tokens
        used = {layout_number(tokens[:number]) for number in range(1 + len(tokens))}
        if last < 1 or (tokens and not 0 < (last - tokens[-1]) % ATTEMPTS < ATTEMPTS // 2):
            return  # no other command has begun since the present layout was made
        removed = 0
        # The identities first: without them, nothing more arrives from a command that is still at work.
        for removes_all in (False, True):
            async for page in pages_of_all(self._store, self._crawl.name):
                keys = [key for number, key in page if number not in used and was_made_until(number, last)]
                gone = [key.whole for key in keys if removes_all or key.name == "stats"]
                await asked(self._store, [command("UNLINK", key) for key in gone])
                removed += len(gone)
                tell("undone", removed, removed)

    async def _check_servers(self) -> None:
        """Raises RedisAway if a server was replaced since the shards were frozen, or since a cancel began."""
        if await self._servers() != self._runs:
            raise RedisAway("a Redis server was restarted or replaced meanwhile; run the command again")

    async def _check_claim(self) -> None:
        """Raises CrawlResharded if the reshard was undone, or if another command has claimed it. If the crawl still has the
        old layout, what this command has copied is removed. If not, a server may have lost this claim, and another
        command have got its number, and the crawl uses what that one has copied."""
        fields = command("HMGET", self._old.meta, "reshard_may_switch", "reshard_claims", "last_tokens")
        ((may_switch, claims, tokens),) = await self._store.send([fields])
        has_not_switched = tokens_of(tokens) == self._tokens
        if not has_not_switched or not may_switch or int(claims) != self._claimed:
            if has_not_switched:
                await self._remove_attempts(self._claimed, _tell_nobody)
            raise self._overtaken()

    async def _until_synced(self) -> None:
        await until_synced(self._store, self._local_clock, self._old, [of.base for of in self._shards])

    @contextlib.asynccontextmanager
    async def reported(self) -> AsyncIterator[None]:
        """Report the progress every `REPORT_S` inside the block, once `begin` has begun."""
        task = asyncio.create_task(self._report())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            done, total = self._progress
            text = f"{done} {total} {self._clock.now_ms()} {self._command}"
            with contextlib.suppress(RedisAway, RedisMisused):  # the command itself reports it
                await self._store.send([script_call(scripts.REPORT_RESHARD, [self._old.meta], text)])

    # the end

    async def switch(self, last_token: int) -> None:
        """Let the crawl use the new shards, which `copy` has filled."""
        words = (_field(self._tokens), self._after, last_token, self._claimed)
        call = script_call(scripts.SWITCH_LAYOUT, [self._old.meta], *words)
        self._check_meta((await self._store.send([call]))[0])

    async def open(self, last_token: int) -> None:
        """Let replicas open the crawl again, once the servers keep the switch: what is leased from the new shards must not
        outlive it. Raises ShardLost for shards that were lost since they were filled, which `crawler repair` can restore
        from then on."""
        await self._until_synced()
        (known,) = await self._store.send([command("HGET", self._old.meta, "last_tokens")])
        ours, found = (*self._tokens, last_token), tokens_of(known)
        if found[: len(ours)] != ours:
            raise RedisAway("a Redis server was restarted, and has lost the last step; run the command again")
        lost = await lost_shards(self._store, self._new(last_token))
        await self._end_step((*self._tokens, last_token), *RESHARD_STEP)
        if lost:
            raise ShardLost(self._crawl.name, lost.keys())

    async def clean(self, last_token: int, tell: Tell) -> None:
        """Remove the old keys, except those that tell what was settled under old leases; they expire."""
        old, self._runs = self._old.shards, await self._servers()
        await self._remove_old(tell)
        calls = [command("PEXPIRE", key, KEPT_MS) for of in old for key in (of.owner, of.lost, of.stats)]
        calls += [command("HDEL", of.owner, "granted") for of in old]  # it names domains, and nobody leases here again
        calls.append(command("HDEL", f"{self._old.peers}:owners", *owners_fields(owners_table(self._old.layout))))
        await asked(self._store, calls)
        await self._remove_attempts(self._claimed - 1, _tell_nobody)
        await self._until_synced()  # otherwise the old keys could come back, and nobody would know of them
        # SCAN does not find all keys of a server that was replaced, or of a slot that moves.
        await self._check_servers()
        # Also the fields of the step before: a server may have lost that it had ended.
        await self._end_step((*self._tokens, last_token), *RESHARD_STEP, "former")

    async def standstill_ms(self, last_token: int) -> int | None:
        """How long the crawl stood still: see `frontier.standstill`."""
        layouts = self._old, self._new(last_token)
        return await standstill_ms(self._store, self._local_clock, layouts, self._began_ms)

    async def cancel(self, tell: Tell) -> None:
        """Undo a reshard that has not switched: the crawl goes on with its old shards. Raises CrawlResharded if there is
        none, or it has switched."""
        call = script_call(scripts.CANCEL_RESHARD, [self._old.meta], _field(self._tokens), self._claimed)
        (reply,) = await self._store.send([call])
        self._check_meta(reply)
        self._after, self._claimed = int(reply[1]), int(reply[2])
        self._runs = await self._servers()
        await self._remove_attempts(self._claimed, tell)
        lost = await lost_shards(self._store, self._old)
        gone = {shard for shard, found in lost.items() if found != self._frozen.identity}
        whole = [shard for shard in range(len(self._old.shards)) if shard not in gone]
        await identify_shards(self._store, self._old, whole, self._frozen.identity, cancelled=reply[2].decode())
        await self._until_synced()
        await self._check_servers()
        await self._end_step(self._tokens, *RESHARD_STEP)
        await self._until_synced()  # otherwise the crawl could stand still again, and nobody would know why

    async def _remove_old(self, tell: Tell) -> None:
        keys, kept = self._frozen, LEFT_BEHIND - {"acked"}
        done, total = 0, await key_count(self._store, keys.shards)
        async for page in pages(self._store, keys.crawl, keys.shards, keys.layout):
            names: dict[int, list[str]] = defaultdict(list)
            for key in page:
                if key.name not in kept and key.shard < len(keys.shards):
                    names[key.shard].append(key.name)
            places = ((keys.shards[shard], some) for shard, some in names.items())
            calls = [
                script_call(scripts.REMOVE_COPIED, (of.stats, of.base), keys.identity, *some) for of, some in places
            ]
            await asked(self._store, calls)
            done += len(page)
            tell("removed", min(done, total), total)
        tell("removed", total, total)

    async def _end_step(self, tokens: Sequence[int], *fields: str) -> None:
        call = script_call(scripts.END_RESHARD, [self._old.meta], _field(tokens), self._claimed, *fields)
        self._check_meta((await self._store.send([call]))[0])

    def _check_meta(self, reply: Reply) -> None:
        if reply[0] == b"other":
            raise self._overtaken()

    def _overtaken(self) -> CrawlResharded:
        return CrawlResharded(
            f"the reshard of crawl {self._crawl.name!r} was undone, or another command continues it or has completed it; "
            "see `crawler status`"
        )


def _tell_nobody(step: str, done: int, total: int) -> None: ...


def _field(last_tokens: Sequence[int]) -> str:
    return " ".join(map(str, last_tokens))


async def open_with_new_shards(work: Reshard, crawl: Crawl, tell: Tell) -> int:
    """Carry out `work` on `crawl`, or what is left of it, without its last step, `Reshard.clean`. Returns the last token of
    the old shards."""
    if crawl.former:
        last_token = crawl.last_tokens[-1]
    else:
        async with work.reported():
            await work.begin(tell)
            last_token = await work.copy(tell)
            await work.switch(last_token)
    if not crawl.former or crawl.resharding:
        tell("switched", 0, 0)
    await work.open(last_token)
    return last_token
