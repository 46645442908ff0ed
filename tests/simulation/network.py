"""The network between a replica and the server: latency, and everything that can be lost.

Each call of an exchange runs at its own time, so calls of other replicas come in between, as on a cluster. An exchange can
fail in these ways, all of which the replica sees as `RedisAway`:

- `request`: it never arrives;
- `reply`: it runs, and the reply is lost;
- `half`: the first of its calls run, and the reply is lost;
- `late`: it runs after its sender has given up, and perhaps tried again, because it waited in the socket of a busy server.

One fault looks like success: `double`, where it runs once more, later.

The server's clock may step (`Faults`): `TIME` then differs from the true time by `stepped_ms`.
"""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from frontier.errors import RedisAway, RedisMisused
from frontier.scripts import CLAIM, COPY_KEYS, CORRECT_TIME, SETTLE, SWITCH_LAYOUT, Call, Reply
from tests.divided_calls import in_order, places_by_node
from tests.simulation.loop import History, SimLoop, Universe
from tests.simulation.scenario import Scenario
from tests.simulation.wire import Wire, shard_tag

TIMEOUT_S = 5.0
"""As `frontier.store.connect` has it."""

LASTING_S = 3.2
"""How long an exchange of many calls takes, at most, and also all those together that read the counters of each shard once.
One that takes longer than `TIMEOUT_S` always fails."""

EPOCH_MS = 1_700_000_000_000
"""The server's clock when a run begins."""

CLOCK_KEY = "{sim}:peers:clock"
"""The key with the correction of crawl time."""

CONTROL_KEY = "{sim}:meta"
"""One of the keys that replicas share. Their node has the crawl's clock."""

CLAIMED_MS = 6
"""Which argument of `claim` is the time, 0 if the replica does not know it."""

SCANNED = 50
"""Keys in one page of a scan."""

REPEATED = 500
"""Calls that are repeated in one round trip when the shards are rebuilt."""

SEEDER = "seeder"
"""Who creates the crawl, before anything goes wrong."""

FAULTS = ("request", "reply", "half", "late", "late", "double", "double")

Observer = Callable[[str, Call, Reply], None]
"""Is told (replica, call, reply) of each call that was carried out, at that moment."""


@dataclass(slots=True)
class _Exchange:
    loop: SimLoop
    sender: str
    calls: Sequence[Call]
    future: asyncio.Future[list[Reply]]
    replies: list[Reply]
    sent_at: float
    run_id: str  # of the server that the replica is connected to
    node: str
    is_answered: bool = True


class Network:
    """Carries exchanges to the server, which acts as `scenario.nodes` nodes of a cluster.

    `cut`: until when (global seconds) a replica, or "" for all, cannot reach it, or nobody can reach the node of this name.
    `stalled_until`: until when (global seconds) the server stands still; calls that have arrived by then run afterwards.
    `stalled_nodes`: the same for single nodes.
    """

    def __init__(self, universe: Universe, wire: Wire, scenario: Scenario, history: History) -> None:
        self._universe = universe
        self._wire = wire
        self._scenario = scenario
        self._history = history
        self._rng = random.Random(f"network {scenario.seed}")
        self.cut: dict[str, float] = {}
        self.silent_until: dict[str, float] = {}  # until when a replica waits for the control node in vain
        self.stalled_until = 0.0
        self.stalled_nodes: dict[str, float] = {}
        self.stray_settles: set[str] = set()  # shards of settle calls without an answer: late, doubled, or it was lost
        self.is_faulty = True
        self._restarts = 0
        self._log: list[tuple[float, str, Call, Reply]] = []  # calls to shards
        self._seen_runs: dict[str, str] = {}  # by replica
        self.stepped_ms = 0.0  # by how much the server's clock is ahead of what it would be without its steps
        self.is_step_noticed = True  # that of the last step, by a replica that corrected crawl time
        self.timekeepers: set[str] = set()  # replicas that have used the last correction of crawl time
        self._readers: set[str] = set()  # replicas that have read it
        self._scans: dict[str, list[bytes]] = {}  # process -> the keys that it goes through
        self.exchange: object = None  # whose calls are being carried out
        self.observers: list[Observer] = []
        self.senders: list[Callable[[str, Call], None]] = []  # are told (replica, call) of each call when it is sent

    def now_ms(self) -> float:
        """Crawl time without any error: the server's clock as if it had never stepped."""
        return EPOCH_MS + self._universe.now * 1000

    @property
    def run_id(self) -> str:
        """That of the server process."""
        return f"run{self._restarts}"

    def run_seen_by(self, replica: str) -> str:
        """The run ID that `replica` has read when it connected last, or ""."""
        return self._seen_runs.get(replica, "")

    def restart(self, lost_s: float = 0.0) -> list[tuple[str, Call, Reply]]:
        """Break all connections, as a fast restart of the server does. What has not arrived yet is not carried out.

        The shards lose what was written in the last `lost_s` seconds, but not the crawl and its seeds, which nothing could
        restore; the other keys are on another node. Returns the calls (replica, call, reply) that both keep.
        """
        self._restarts += 1
        kept_until = self._universe.now - lost_s
        self._log = [
            item for item in self._log if item[0] <= kept_until or item[1] == SEEDER or item[2].script is SWITCH_LAYOUT
        ]
        self._wire.commands([("DEL", key) for key in self._wire.command("KEYS", "{*:[0-9]*}:*")])
        repeated = [item for item in self._log if item[2].script is not SWITCH_LAYOUT]
        for at in range(0, len(repeated), REPEATED):
            items = repeated[at : at + REPEATED]
            again = self._wire.execute([call for _, _, call, _ in items])
            for (_, _, call, reply), found in zip(items, again, strict=True):
                if found != reply:
                    raise AssertionError(f"{call} does not give {reply} again")
        return [(replica, call, reply) for _, replica, call, reply in self._log]

    def node_of(self, key: str) -> str:
        """The node of `key`, by its hash tag."""
        tag = key[key.index("{") + 1 : key.index("}")]
        return f"node{zlib.crc32(tag.encode()) % self._scenario.nodes}"

    def submit(self, loop: SimLoop, sender: str, calls: Sequence[Call], node: str) -> asyncio.Future[list[Reply]]:
        """Send `calls` of `sender`, which runs on `loop`, on their way to `node`."""
        rng, now = self._rng, self._universe.now
        with self._universe.judging():
            for call in calls:
                for sent in self.senders:
                    sent(sender, call)
        exchange = _Exchange(loop, sender, calls, loop.create_future(), [], now, self.run_seen_by(loop.name), node)
        if max(self.cut.get(name, 0.0) for name in (loop.name, node, "")) > now:
            failed_at = now + rng.choice((0.001, TIMEOUT_S))
            if node == self.node_of(CONTROL_KEY):
                self.silent_until[loop.name] = max(failed_at, self.silent_until.get(loop.name, 0.0))
            self._fail(exchange, failed_at)
            return exchange.future
        fault = rng.choice(FAULTS) if self.is_faulty and rng.random() < self._scenario.exchange_fault else ""
        if fault:
            self._history.note(loop.name, "lost", f"{fault} {[call.script and call.script.name for call in calls]}")
        arrival = now + self._way()
        if fault in ("request", "reply", "half", "late"):
            failed_at = now + rng.choice((0.001, rng.uniform(0.0, TIMEOUT_S), TIMEOUT_S))
            self._fail(exchange, failed_at)
            if fault == "request":
                return exchange.future
            if fault == "late":
                arrival = failed_at + rng.uniform(0.0, 2 * TIMEOUT_S)
        if fault == "half":
            exchange.calls = calls[: rng.randint(0, len(calls) - 1)]
        self._carry_out(exchange, arrival)
        if fault == "double":
            echo = _Exchange(
                loop, sender, calls, loop.create_future(), [], now, exchange.run_id, node, is_answered=False
            )
            self._carry_out(echo, arrival + rng.uniform(0.0, 2.0))
        return exchange.future

    def _way(self) -> float:
        """Seconds that one way takes."""
        rng = self._rng
        if self.is_faulty and rng.random() < self._scenario.slow:
            return rng.choice((rng.uniform(0.01, 0.25), rng.uniform(0.01, 0.25), rng.uniform(0.2, 4.0)))
        return rng.uniform(0.0001, 0.002)

    def _fail(self, exchange: _Exchange, at: float) -> None:
        exchange.is_answered = False
        future, node = exchange.future, exchange.node

        def fail() -> None:
            if not future.done():
                future.set_exception(RedisAway("simulated: no answer", node))

        self._universe.at(at, fail, exchange.loop)

    def _carry_out(self, exchange: _Exchange, at: float) -> None:
        """Carry out the calls from `at` on: at one moment, or each a little after the one before."""
        rng = self._rng
        # The counters are read shard by shard, and much may happen meanwhile.
        is_reading = bool(exchange.calls) and exchange.calls[0].script is None
        step_s = rng.choice((0.0, rng.uniform(0.0, 0.1)) if is_reading else (0.0, 0.0, rng.uniform(0.0, 0.01)))
        step_s = min(step_s, LASTING_S / max(len(exchange.calls), self._scenario.shards))
        if not step_s:
            self._universe.at(at, lambda: self._do(exchange, len(exchange.calls)))
            return
        for number in range(max(1, len(exchange.calls))):
            self._universe.at(at + number * step_s, lambda: self._do(exchange, 1))

    def _do(self, exchange: _Exchange, count: int) -> None:
        gives_up_at = exchange.sent_at + TIMEOUT_S
        stalled_until = max(self.stalled_until, self.stalled_nodes.get(exchange.node, 0.0))
        if self._universe.now < stalled_until:
            if exchange.is_answered and stalled_until > gives_up_at:
                self._fail(exchange, gives_up_at)
            self._universe.at(stalled_until, lambda: self._do(exchange, count))
            return
        self._seen_runs[exchange.loop.name] = self.run_id
        if exchange.run_id and exchange.run_id != self.run_id:
            if exchange.is_answered:  # an echo has no sender
                self._fail(exchange, self._universe.now + self._way())
            return
        exchange.run_id = self.run_id
        done = len(exchange.replies)
        calls = exchange.calls[done : done + count]
        self.exchange = exchange
        exchange.replies += self._execute(exchange.sender, calls, exchange.loop.name)
        if not exchange.is_answered:
            self.stray_settles |= {shard_tag(call.keys[0]) for call in calls if call.script is SETTLE}
        if exchange.is_answered and len(exchange.replies) == len(exchange.calls):
            at = self._universe.now + self._way()
            if at > gives_up_at:
                self._fail(exchange, gives_up_at)
            else:
                self._universe.at(at, lambda: self._answer(exchange), exchange.loop)

    @staticmethod
    def _answer(exchange: _Exchange) -> None:
        if not exchange.future.done():
            exchange.future.set_result(exchange.replies)

    def carry_out(self, sender: str, calls: Sequence[Call]) -> list[Reply]:
        """The replies to `calls`, which are carried out at once."""
        self.exchange = calls
        return self._execute(sender, calls, sender)

    def _execute(self, sender: str, calls: Sequence[Call], process: str) -> list[Reply]:
        if not calls:
            return []
        if calls[0].arguments[0] == "TIME":
            server_ms = self.now_ms() + self.stepped_ms
            replies: list[Reply] = [[int(server_ms // 1000), int(server_ms * 1000 % 1_000_000)]]
        elif calls[0].arguments[0] == "SCAN" and calls[0].script is None:
            replies = [self._scan(process, call) for call in calls]
        else:
            replies = self._wire.execute(calls)
        if calls[0].script is CORRECT_TIME and replies[0][0] == b"corrected":
            self.is_step_noticed = True
            self.timekeepers, self._readers = {process}, set()
        if calls[0].arguments[:2] == ("HMGET", CLOCK_KEY):
            self._readers.add(process)
        if calls[0].script is CLAIM and int(calls[0].arguments[CLAIMED_MS]) > 0 and process in self._readers:
            self.timekeepers.add(process)
        for call, reply in zip(calls, replies, strict=True):
            is_script = call.script is not None and (is_of_shard(call) or call.script is SWITCH_LAYOUT)
            is_logged = is_script or call.arguments[0] == "UNLINK"
            if self._scenario.restarts and is_logged:
                self._log.append((self._universe.now, sender, call, reply))
            for observer in self.observers:
                observer(sender, call, reply)
        return replies

    def _scan(self, process: str, call: Call) -> Reply:
        """A page of the keys of a node, in an order that is the same in each run."""
        cursor, node = int(call.arguments[1]), self.node_of(call.at)
        if not cursor:
            keys = sorted(self._wire.command("KEYS", call.arguments[3]))
            self._scans[process] = [key for key in keys if self.node_of(key.decode()) == node]
        found = self._scans[process]
        return [b"%d" % (cursor + SCANNED if cursor + SCANNED < len(found) else 0), found[cursor : cursor + SCANNED]]


_SHARD_KEY = re.compile(r"\{[^}]*:[0-9]+(@[0-9]+)?\}:")


def is_of_shard(call: Call) -> bool:
    """Whether `call` is about a shard, and not about keys that all replicas share."""
    return _SHARD_KEY.match(call.key) is not None


class SimStore:
    """The `Store` of one process. `sender`: the name of the replica that runs there now."""

    def __init__(self, network: Network, loop: SimLoop) -> None:
        self._network = network
        self._loop = loop
        self.sender = loop.name
        self._away: set[str] = set()
        self._time_key = CONTROL_KEY  # as for a store that opens the crawl

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await self.send_each(calls)
        for reply in replies:
            if isinstance(reply, RedisAway):
                raise reply
        return replies

    async def send_each(self, calls: Sequence[Call]) -> list[Reply | RedisAway]:
        for call in calls:
            self._check(call)
        places = places_by_node(calls, self._node_of_call)
        asked = [
            self._network.submit(self._loop, self.sender, [calls[place] for place in of_node], node)
            for node, of_node in places.items()
        ]
        try:
            answers = [await self._answer(node, future) for node, future in zip(places, asked, strict=True)]
        finally:
            for future in asked:
                future.cancel()  # if the caller no longer waits: nobody reads the other answers
        return in_order(places.values(), answers)

    async def _answer(self, node: str, future: asyncio.Future[list[Reply]]) -> list[Reply] | RedisAway:
        try:
            replies = await future
        except RedisAway as away:
            self._away.add(node)
            return away
        self._away.discard(node)
        return replies

    def _check(self, call: Call) -> None:
        """Raises RedisMisused for what a node of a cluster, or a server that loses writes, does not carry out."""
        words = [str(word) for word in call.arguments[:1]] if call.script is None else []
        if words == ["WAITAOF"]:
            raise RedisMisused("ERR unknown command 'WAITAOF'")
        keys = [str(key) for key in call.arguments[1:]] if words == ["SUNION"] else ()
        keys = call.keys if call.script is COPY_KEYS else keys
        if len({self._network.node_of(key) for key in keys}) > 1:
            raise RedisMisused("CROSSSLOT Keys in request don't hash to the same slot")

    def _node_of_call(self, call: Call) -> str:
        return self._network.node_of(call.key or self._time_key)

    def node_of(self, key: str) -> str:
        return self._network.node_of(key)

    def is_away(self, node: str) -> bool:
        return node in self._away

    def run_of(self, key: str) -> str:
        return self._network.run_seen_by(self._loop.name)

    def runs(self) -> Hashable:
        return self._network.run_seen_by(self._loop.name)

    def keep_time_by(self, key: str) -> None:
        self._time_key = key

    async def time_ms(self) -> float:
        (reply,) = await self.send([Call(("TIME",))])
        seconds, microseconds = reply
        return int(seconds) * 1000 + int(microseconds) / 1000

    async def close(self) -> None: ...
