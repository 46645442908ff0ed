"""An operator's word to all replicas of a crawl, in Redis: pause, resume, stop; domains to block or to slow down.

Each replica looks about once a second. A look is one small read, whatever was said before: the rules for domains are
read again only when their number, which counts the changes, has moved. The same read brings the revision of the crawl's
settings, so that a replica knows when to read these again.
"""

from __future__ import annotations

import msgspec

from frontier.keys import CrawlKeys
from frontier.store import Store, command, pairs


class DomainRules(msgspec.Struct, frozen=True):
    """What an operator has said about single domains. `delays`: seconds, in place of the crawl's own delay."""

    blocked: frozenset[str] = frozenset()
    delays: dict[str, float] = msgspec.field(default_factory=dict)

    @classmethod
    def parse(cls, fields: dict[str, str]) -> DomainRules:
        """From the fields of the hash: "block DOMAIN" and "delay DOMAIN" -> seconds."""
        rules = {tuple(name.split(" ", 1)): value for name, value in fields.items()}
        return cls(
            blocked=frozenset(domain for kind, domain in rules if kind == "block"),
            delays={domain: float(value) for (kind, domain), value in rules.items() if kind == "delay"},
        )


class Control:
    """The control keys of a crawl: a hash of state and version, and a hash of rules. `settings_revision`: of the settings
    that the crawl's replicas are to obey, and `seedings`: how often URLs were seeded, as the last look found them; 0 before
    the first."""

    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._keys = keys
        self._version: bytes | None = None
        self.state = "run"
        self.settings_revision = 0
        self.seedings = 0
        self.rules = DomainRules()

    @property
    def paused(self) -> bool:
        return self.state == "pause"

    @property
    def stopped(self) -> bool:
        return self.state == "stop"

    async def refresh(self) -> None:
        """Look at the keys. Raises RedisAway."""
        words = command("HMGET", self._keys.control, "state", "version", "seedings")
        (state, version, seedings), revision = await self._store.send(
            [words, command("HGET", self._keys.meta, "revision")]
        )
        self.state = state.decode() if state else "run"
        self.seedings = int(seedings or 0)
        self.settings_revision = int(revision or 1)
        if version != self._version:
            (reply,) = await self._store.send([command("HGETALL", self._keys.domains)])
            flat = [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else reply
            self.rules, self._version = DomainRules.parse(pairs(flat)), version

    async def seeded(self) -> None:
        """Tell all replicas that URLs were seeded: links that led out of the crawl may lead into it from now on."""
        await self._store.send([command("HINCRBY", self._keys.control, "seedings", 1)])

    async def set(self, state: str) -> None:
        """Tell all replicas to "run", "pause" or "stop"."""
        await self._store.send([command("HSET", self._keys.control, "state", state)])
        self.state = state

    async def block(self, domain: str) -> None:
        """Fetch nothing more from `domain`; its URLs are settled as denied when their turn comes."""
        await self._write("HSET", f"block {domain}", "1")

    async def unblock(self, domain: str) -> None:
        """Take `block` back. URLs that were settled meanwhile stay so."""
        await self._write("HDEL", f"block {domain}")

    async def set_delay(self, domain: str, seconds: float | None) -> None:
        """Let `domain` rest `seconds` between requests in place of the crawl's delay; None: the crawl's again."""
        if seconds is None:
            await self._write("HDEL", f"delay {domain}")
        else:
            await self._write("HSET", f"delay {domain}", repr(float(seconds)))

    async def _write(self, verb: str, *words: str) -> None:
        # In this order: a replica that looks in between reads the new rules with the old version, and again.
        await self._store.send([command(verb, self._keys.domains, *words)])
        await self._store.send([command("HINCRBY", self._keys.control, "version", 1)])
