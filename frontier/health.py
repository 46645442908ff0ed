"""The health records of the replicas in a peer loop. A record expires if its replica stops reporting."""

from __future__ import annotations

from frontier.store import Store, command


class Health:
    """Stores one expiring key per replica, and a set of all replicas. All methods raise RedisAway."""

    def __init__(self, store: Store, key: str, ttl_s: float) -> None:
        self._store = store
        self._key = f"{key}:health"
        self._ttl_ms = int(ttl_s * 1000)

    async def report(self, replica: str, record: bytes, ttl_s: float = 0.0) -> None:
        """Store `record`, in the caller's own format, for `ttl_s` seconds, or longer if this one is longer."""
        key, ttl_ms = f"{self._key}:{replica}", max(self._ttl_ms, int(ttl_s * 1000))
        await self._store.send([command("SET", key, record, "PX", ttl_ms), command("SADD", self._key, replica)])

    async def withdraw(self, replica: str) -> None:
        await self._store.send([command("DEL", f"{self._key}:{replica}"), command("SREM", self._key, replica)])

    async def records(self) -> dict[str, bytes]:
        """The record of each replica that reported within `ttl_s` seconds. Removes the others from the set."""
        (members,) = await self._store.send([command("SMEMBERS", self._key)])
        replicas = sorted(member.decode() for member in members)
        if not replicas:
            return {}
        found = await self._store.send([command("GET", f"{self._key}:{replica}") for replica in replicas])
        gone = [replica for replica, record in zip(replicas, found, strict=True) if record is None]
        if gone:
            await self._store.send([command("SREM", self._key, *gone)])
        return {replica: record for replica, record in zip(replicas, found, strict=True) if record is not None}
