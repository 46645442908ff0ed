"""Compares the nodes of a Redis Cluster. After a failover or a slot move, another node has the same work to do, so all have
to be set up alike. There is one finding for each difference, or one that says that there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from crawler.cli.check_finding import Finding, Result
from crawler.wording import count_of
from frontier.cluster import SLOTS, NodeFacts
from frontier.errors import FrontierError

CLOCKS_APART_S = 0.5
"""NTP keeps clocks within milliseconds. A crawl takes the time from one node, and corrects it after a failover."""

SLOWEST_FAILOVER_MS = 5_000
"""The highest cluster-node-timeout that docs/how-to/configure-redis.md recommends."""

Facts = Mapping[str, NodeFacts]
"""By name of the node."""

_COMPARED: tuple[tuple[str, Callable[[NodeFacts], str], Result, str], ...] = (
    (
        "version",
        lambda node: node.info.get("valkey_version", node.info.get("redis_version", "?")),
        "doubtful",
        "install the same version on all nodes",
    ),
    (
        "append-only file",
        lambda node: {"0": "off", "1": "on"}.get(node.info.get("aof_enabled", ""), "?"),
        "bad",
        "CONFIG SET appendonly yes on those without: they lose what they hold if they are killed",
    ),
    (
        "appendfsync",
        lambda node: node.settings.get("appendfsync", "?"),
        "doubtful",
        "CONFIG SET appendfsync to the same on all nodes: after a failover, the weakest one counts",
    ),
    (
        "snapshots",
        lambda node: node.settings.get("save", "?") or "off",
        "doubtful",
        "CONFIG SET save to the same on all nodes",
    ),
    (
        "memory policy",
        lambda node: node.info.get("maxmemory_policy", "?"),
        "bad",
        "CONFIG SET maxmemory-policy noeviction on all nodes: others lose URLs silently",
    ),
    (
        "memory limit",
        lambda node: _mebibytes(node.info.get("maxmemory", "0")),
        "doubtful",
        "CONFIG SET maxmemory to the same on all nodes: a failover moves the data of one to another",
    ),
)
"""What is compared, its value, how bad a difference is, and what to do about it."""


def compare(found: Mapping[str, NodeFacts | FrontierError], replicas_ack: int) -> list[Finding]:
    """What to say about the nodes of a cluster, by name. `replicas_ack`: how many replicas have to confirm pushed links."""
    facts = {name: one for name, one in found.items() if isinstance(one, NodeFacts)}
    findings = [
        Finding("Redis nodes", "bad", f"no answer from {name}: {one}", "start it, or remove it from the cluster")
        for name, one in found.items()
        if isinstance(one, FrontierError)
    ]
    findings += [
        *_states(facts),
        *_clocks(facts),
        *_differences(facts),
        *_faults(facts),
        *_replicas(facts, replicas_ack),
    ]
    masters = sum(node.is_master for node in facts.values())
    agreeing = f"{count_of(masters, 'master')} and {count_of(len(facts) - masters, 'replica')}"
    what = f"{agreeing} agree: state, clocks, version, persistence, memory"
    return findings or [Finding("Redis nodes", "good", what)]


def _states(facts: Facts) -> Iterator[Finding]:
    for name, node in facts.items():
        state = node.cluster.get("cluster_state", "ok")  # it may be kept from this user
        slots = node.cluster.get("cluster_slots_ok", str(SLOTS))
        if state != "ok" or slots != str(SLOTS):  # a cluster without full coverage is "ok" without some of its slots
            yield Finding(
                "Redis nodes: state",
                "bad",
                f"{name} says cluster_state {state}, with {slots} of 16384 slots served",
                f"valkey-cli --cluster check {name}: it names slots without a master, which --cluster fix repairs",
            )


def _faults(facts: Facts) -> Iterator[Finding]:
    """What makes the fault of one node worse for the others."""
    covering = [name for name, node in facts.items() if node.settings.get("cluster-require-full-coverage") == "yes"]
    if covering:
        yield Finding(
            "Redis nodes: coverage",
            "doubtful",
            f"cluster-require-full-coverage yes at {_named(covering, facts)}",
            "CONFIG SET cluster-require-full-coverage no: otherwise all stop when some slots have no node",
        )
    slow = [name for name, node in facts.items() if _failover_ms(node) > SLOWEST_FAILOVER_MS]
    if slow:
        longest_ms = max(_failover_ms(facts[name]) for name in slow)
        yield Finding(
            "Redis nodes: failover",
            "doubtful",
            f"cluster-node-timeout {longest_ms} at {_named(slow, facts)}",
            f"CONFIG SET cluster-node-timeout {SLOWEST_FAILOVER_MS}: a node that hangs is replaced after that time, in ms",
        )


def _failover_ms(node: NodeFacts) -> int:
    return int(node.settings.get("cluster-node-timeout", "0"))


def _named(names: Sequence[str], facts: Facts) -> str:
    return "all nodes" if len(names) == len(facts) else ", ".join(sorted(names))


def _clocks(facts: Facts) -> Iterator[Finding]:
    if not facts:
        return
    slowest, fastest = (pick(facts, key=lambda name: facts[name].ahead_s) for pick in (min, max))
    apart_s = facts[fastest].ahead_s - facts[slowest].ahead_s
    if apart_s - facts[fastest].error_s - facts[slowest].error_s > CLOCKS_APART_S:
        yield Finding(
            "Redis nodes: clocks",
            "doubtful",
            f"{apart_s:.3f} s apart: {slowest} is behind {fastest}",
            "synchronize the nodes with NTP: the crawl's time is that of one node, and a failover changes which",
        )


def _differences(facts: Facts) -> Iterator[Finding]:
    for what, value_of, result, remedy in _COMPARED:
        by_value: dict[str, list[str]] = {}
        for name, node in facts.items():
            by_value.setdefault(value_of(node), []).append(name)
        if len(by_value) > 1:
            yield Finding(f"Redis nodes: {what}", result, _shares(by_value), remedy)


def _replicas(facts: Facts, replicas_ack: int) -> Iterator[Finding]:
    by_number: dict[str, list[str]] = {}
    for name, node in facts.items():
        if node.is_master:
            by_number.setdefault(str(node.replicas), []).append(name)
    if any(int(number) < replicas_ack for number in by_number):
        yield Finding(
            "Redis nodes: replicas",
            "bad",
            f"{_shares(by_number)}, but frontier.replicas_ack is {replicas_ack}",
            "add replicas (valkey-cli --cluster add-node --cluster-slave): links to nodes that have too few of them wait",
        )
    elif len(by_number) > 1:
        yield Finding(
            "Redis nodes: replicas",
            "doubtful",
            _shares(by_number),
            "give each master as many replicas: without one, a master that dies takes its shards with it",
        )


def _shares(by_value: Mapping[str, list[str]]) -> str:
    """Each value with its nodes, the rarest first. The nodes of the most frequent one are only counted."""
    *rare, (most, many) = sorted(by_value.items(), key=lambda item: len(item[1]))
    shares = [f"{value} at {', '.join(sorted(names))}" for value, names in rare]
    return "; ".join([*shares, f"{most} at {len(many)} {'others' if rare else 'nodes'}"])


def _mebibytes(limit: str) -> str:
    return "none" if limit == "0" else f"{int(limit) / 2**20:.0f} MiB"
