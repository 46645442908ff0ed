"""Asks Redis Sentinels for the address of the master that they watch: Redis documentation, "Sentinel client spec"."""

from __future__ import annotations

import asyncio

import hiredis

from frontier.calls import packed_words
from frontier.errors import FrontierError, RedisAway, RedisMisused
from frontier.redis_connection import ask
from frontier.redis_errors import translate
from frontier.redis_url import Address, RedisUrl
from frontier.slot_map import translated


class Sentinels:
    """Those in `url`. `timeout_s`: for each one's answer."""

    def __init__(self, url: RedisUrl, timeout_s: float, where: str) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._where = where

    async def find(self) -> Address:
        """The address of the master now. All Sentinels are asked at once, and the first answer counts.

        Raises RedisAway if no Sentinel answers, and RedisMisused if none that answers knows the name.
        """
        error: FrontierError = RedisAway(f"no Sentinel of {self._where} answers", self._where)
        asking = [asyncio.create_task(self._ask(host)) for host in self._url.hosts]
        try:
            for first in asyncio.as_completed(asking):
                try:
                    return await first
                except FrontierError as failed:
                    error = failed
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        raise error

    async def _ask(self, host: Address) -> Address:
        question = packed_words("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.master)
        try:
            reply = await ask(host, self._url.sentinel_access, question, self._timeout_s)
        except (OSError, TimeoutError, hiredis.HiredisError) as error:
            raise translate(error, host.name, self._where) from error
        if reply is None:
            raise RedisMisused(f"the Sentinel at {host.name} knows no master {self._url.master!r}")
        name, port = reply
        return translated(Address(name.decode(), int(port)), self._url.reachable)
