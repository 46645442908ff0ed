"""Which node serves which slot, and which slot a key is in. Pure functions: Redis Cluster specification, "Key distribution
model"."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from frontier.redis_url import Address

SLOTS = 16_384

UNSERVED = "unserved slots"
"""The name, in place of a node's, of all slots that no node serves."""


@lru_cache(maxsize=1 << 15)
def slot_of(key: str) -> int:
    """The slot of `key`: the CRC16 (XMODEM) of its hash tag, or of the whole key if it has none."""
    begin = key.find("{")
    if begin >= 0:
        end = key.find("}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


class SlotRange(msgspec.Struct, frozen=True):
    """Slots `first` to `last` are served by `master`. `replicas` have copies."""

    first: int
    last: int
    master: Address
    replicas: tuple[Address, ...] = ()


SlotMap = tuple[SlotRange, ...]


def read_slots(reply: Sequence[Any], asked: Address, reachable: Mapping[str, Address]) -> SlotMap:
    """Read the reply to CLUSTER SLOTS of the node at `asked`. `reachable`: as in RedisUrl.

    A node that does not know its own address, or shall not tell it, leaves it out; it is then the one that was asked.
    """
    ranges = []
    for first, last, *nodes in reply:
        master, *replicas = (_endpoint(node, asked, reachable) for node in nodes)
        ranges.append(SlotRange(first, last, master, tuple(sorted(replicas))))
    return tuple(sorted(ranges, key=lambda one: one.first))


def read_shards(reply: Sequence[Any], asked: Address, has_tls: bool) -> tuple[Address, ...]:
    """Read the reply to CLUSTER SHARDS of the node at `asked`: all nodes, as they announce themselves. It names replicas
    that have failed, which CLUSTER SLOTS omits. `has_tls`: whether connections use TLS, which has a port of its own."""
    port = "tls-port" if has_tls else "port"
    nodes = [_by_name(node) for shard in reply for node in _by_name(shard)["nodes"]]
    return tuple(Address(_host(node["endpoint"], asked), node[port]) for node in nodes if port in node)


def _by_name(reply: Sequence[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _endpoint(node: Sequence[Any], asked: Address, reachable: Mapping[str, Address]) -> Address:
    return translated(Address(_host(node[0], asked), node[1]), reachable)


def _host(announced: bytes | None, asked: Address) -> str:
    host = (announced or b"").decode()
    return host if host not in ("", "?") else asked.host


def translated(announced: Address, reachable: Mapping[str, Address]) -> Address:
    """Where a node can be reached that announces itself as `announced`."""
    return reachable.get(announced.name, announced)


def read_redirect(error: str, asked: Address, reachable: Mapping[str, Address]) -> tuple[int, Address]:
    """The slot and the node that a MOVED or ASK error names."""
    _, slot, endpoint = error.split()[:3]
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return int(slot), translated(Address(host if host not in ("", "?") else asked.host, int(port)), reachable)
