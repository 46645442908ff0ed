"""An operator's word to all replicas of a crawl: pause, resume, stop. A hash in Redis that each replica looks at."""

from __future__ import annotations

from frontier.store import Store, command


class Control:
    """The control key of a crawl."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self.state = "run"

    @property
    def paused(self) -> bool:
        return self.state == "pause"

    @property
    def stopped(self) -> bool:
        return self.state == "stop"

    async def refresh(self) -> None:
        """Look at the key. Raises RedisAway."""
        (state,) = await self._store.send([command("HGET", self._key, "state")])
        self.state = state.decode() if state else "run"

    async def set(self, state: str) -> None:
        """Tell all replicas to "run", "pause" or "stop"."""
        await self._store.send([command("HSET", self._key, "state", state)])
        self.state = state
