"""`crawler doctor`: checks whether this machine and its Redis are ready for a crawl. Each finding says what to do about a
problem.

On a Redis Cluster, the nodes are compared. After a failover or a slot move, another node has the same work to do, so all
have to be set up alike. There is one finding for each difference, or one that says that there is none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from rich.text import Text

from crawler import processes
from crawler.app.embedded_valkey import open_store
from crawler.app.requests import identity_of, request_rules
from crawler.app.signals import run_until_signal
from crawler.cli.options import as_json, command, given_settings, store
from crawler.cli.screens import TextTable
from crawler.cli.text import emit
from crawler.errors import CrawlerError, Refused, UserError
from crawler.hooks import HttpRequest
from crawler.page import Exchange
from crawler.settings.load import Settings
from crawler.settings.tables import HOME_PAGE, ReplicaTable
from crawler.wording import count_of, redis_remedy
from frontier.cluster import NodeFacts
from frontier.domains import suffix_list_date
from frontier.errors import BadInput, FrontierError, RedisAway, RedisMisused, WritesRefused
from frontier.scripts import command as redis_command
from frontier.store import RedisStore

LITTLE_DISK, NO_DISK = 5 << 30, 1 << 28
QUEUED_COMPACTLY = 512
"""Bytes; longer URLs are rare. A URL above the server's limit turns the queue of its domain into a skip list."""

CLOCK_OFF_S = 2.0
DNS_S = 5.0

CLOCKS_APART_S = 0.5
"""NTP keeps clocks within milliseconds. A crawl takes the time from one node, and corrects it after a failover."""

SLOWEST_FAILOVER_MS = 5_000
"""The highest cluster-node-timeout that docs/how-to/configure-redis.md recommends."""

_STYLES = {"good": "green", "doubtful": "yellow", "bad": "red"}

Result = Literal["good", "doubtful", "bad"]


class Finding(msgspec.Struct, frozen=True):
    """The result of a check. `remedy`: what to do unless the result is good."""

    check: str
    result: Result
    found: str
    remedy: str = ""


@command()
@store
@as_json
def doctor(as_json: bool) -> None:
    """Check this machine and Redis: version, memory, persistence, clock, file limits, DNS, disk, identity and secrets.

    On a cluster, all nodes are compared. They should have the same version, settings, time and number of replicas.

    Exit code 1 if anything is bad.

    Example:

        crawler doctor --redis redis://queue:6379/0
    """
    findings = run_until_signal(examine(given_settings()))
    table = TextTable("check", "", "found", keeps="check")
    for finding in findings:
        found = Text(finding.found)
        if finding.remedy:
            found.append(f"\n-> {finding.remedy}", style="yellow")
        table.add(finding.check, Text(finding.result, style=_STYLES[finding.result]), found)
    emit(findings, as_json, table)
    if any(finding.result == "bad" for finding in findings):
        sys.exit(1)


async def examine(settings: Settings) -> list[Finding]:
    """Run all checks. Failures are returned as findings, not raised."""
    local = settings.replica
    findings = [
        files(local),
        disk("output", local.out),
        contact(settings),
        identity(settings),
        rules(settings),
        suffixes(),
    ]
    if not local.redis:
        findings.append(disk("data", local.data_dir))
    findings.append(await dns(settings.fetch.contact))
    findings += await browser(settings)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if not (local.redis or local.data_dir.exists()):  # try the embedded server, but leave nothing behind
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="peercrawl-"))
                local = replace(local, data_dir=Path(scratch))
            store = await stack.enter_async_context(open_store(local))
            nodes = await store.node_facts()
            findings.append(version(await store.info("server"), is_cluster=bool(nodes)))
            findings.append(memory(await store.info("memory")))
            findings += await writes(store)
            findings.append(persistence(await store.info("persistence"), embedded=not local.redis))
            if not nodes:
                findings += standby(await store.info("replication"), await store.setting("min-replicas-to-write"))
            findings.append(queues(await store.setting("zset-max-listpack-value")))
            findings.append(await clock(store))
            findings.append(await round_trip(store))
            if nodes:
                findings += [*named_nodes(await store.silent_hosts()), *compare(nodes, settings.frontier.replicas_ack)]
    except (FrontierError, CrawlerError) as error:
        findings.append(unusable(error, local.redis or ""))
    return findings


def unusable(error: FrontierError | CrawlerError, url: str) -> Finding:
    """Report that Redis at `url`, "" for the embedded one, cannot be used because of `error`."""
    if not isinstance(error, RedisAway):
        return Finding("Redis", "bad", str(error), "correct --redis" if url else "see docs/how-to/runbook.md")
    if remedy := redis_remedy(str(error)):  # it runs
        return Finding("Redis", "bad", str(error), remedy)
    remedy = "start it, or correct --redis" if url else "repeat the command"
    if url.startswith(("rediss", "valkeys")):
        remedy += f"; {url.partition(':')[0]}:// needs a port with TLS"
    return Finding("Redis", "bad", str(error), remedy)


def files(local: ReplicaTable) -> Finding:
    limit, needed = processes.highest_fd_limit(), processes.required_files(local.concurrency)
    return _judge(
        "open files",
        "good" if limit >= needed else "bad",
        f"{limit:,} allowed, {needed:,} needed by a replica",
        f"ulimit -Hn {needed}, LimitNOFILE={needed} in systemd, or a lower --concurrency",
    )


def disk(what: str, folder: Path) -> Finding:
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    result: Result = "bad" if free < NO_DISK else "doubtful" if free < LITTLE_DISK else "good"
    return _judge(
        f"disk for {what}", result, f"{free / 2**30:.1f} GiB free at {place}", "make room, or use another folder"
    )


def contact(settings: Settings) -> Finding:
    address = settings.fetch.contact
    return _judge(
        "contact",
        "doubtful" if address == HOME_PAGE else "good",
        address,
        "set fetch.contact to your own web page or email address: it is sent with every request",
    )


def identity(settings: Settings) -> Finding:
    try:
        found = identity_of(settings.identity)
    except UserError as error:
        return Finding("identity", "bad", str(error), "docs/how-to/identify-the-crawler.md describes the settings")
    if found is None:
        return Finding("identity", "good", "requests are not signed")
    return Finding("identity", "good", f"requests are signed with the key {found.key_id}")


def rules(settings: Settings) -> Finding:
    try:
        found = request_rules(settings.requests, os.environ)
    except UserError as error:
        return Finding("requests", "bad", str(error), "docs/how-to/control-requests.md describes the rules")
    return Finding("requests", "good", count_of(len(found), "rule") if found else "all requests are the same")


def suffixes() -> Finding:
    try:
        return Finding("suffix list", "good", suffix_list_date())
    except BadInput as error:
        return Finding("suffix list", "bad", str(error), "correct the variable, or leave it out")


async def browser(settings: Settings) -> list[Finding]:
    """Check the browser, what keeps it from the network, and that it renders a page."""
    from crawler.browser import Renderer, RenderLimits  # noqa: PLC0415 - few crawls need it
    from crawler.browser.process import (  # noqa: PLC0415
        INSTALL,
        LITTLE_SHARED_MEMORY,
        find_browser,
        find_isolation,
        shared_memory,
    )

    local, is_wanted = settings.replica, settings.render.mode != "off"
    try:
        program, isolation = find_browser(local.browser), find_isolation(local.browser_isolation)
    except CrawlerError as error:
        return [Finding("browser", "bad" if is_wanted else "good", str(error), INSTALL if is_wanted else "")]
    renderer = Renderer(RenderLimits(time_s=10.0), "doctor", program=program, isolation=local.browser_isolation)
    body = b"<p id=a></p><script>a.textContent = 'r' + 'endered'</script>"
    page = Exchange("http://doctor.invalid/", 200, "", ((b"Content-Type", b"text/html"),), b"", b"", body, "", 0, 0, 0)

    async def refuse(_: HttpRequest) -> Exchange:
        raise Refused("offline")

    try:
        rendered = await renderer.render(page, refuse)
        works = rendered.dom is not None and b">rendered<" in rendered.dom.body
        found = f"{renderer.version} at {program} {'renders a page' if works else 'renders no page'} "
        found += f"in {rendered.elapsed:.1f} s"
        problem = "" if works else f"it ended with {rendered.outcome!r}"
    except CrawlerError as error:
        found, problem = str(error), str(error)
    finally:
        await renderer.stop()
    fences = "its sandbox works" if isolation.is_sandboxed else "without its sandbox"
    kept_in = f"by the kernel, {fences}" if isolation.kind == "namespace" else f"by its flags only, {fences}"
    if isolation.why:
        kept_in += f" ({isolation.why})"
    is_kept_in = isolation.kind == "namespace" and isolation.is_sandboxed
    size = shared_memory()
    return [
        _judge("browser", "bad" if problem and is_wanted else "doubtful" if problem else "good", found, INSTALL),
        _judge(
            "its isolation",
            "good" if is_kept_in or not is_wanted else "doubtful",
            kept_in,
            "allow namespaces of unprivileged users: docs/how-to/render-pages.md",
        ),
        _judge(
            "/dev/shm",
            "good" if size >= LITTLE_SHARED_MEMORY or not is_wanted else "doubtful",
            f"{size / 2**20:,.0f} MiB",
            "give the container 1 GiB (--shm-size 1g), or browsers use slower files in /tmp",
        ),
    ]


async def dns(contact_url: str) -> Finding:
    from crawler.fetch.resolver import DnsLookup  # noqa: PLC0415 - imports aiohttp, which the help does not need

    host = urlsplit(contact_url).hostname or "example.com"
    lookup = DnsLookup()
    try:
        async with asyncio.timeout(DNS_S):
            answer = await lookup.lookup(host)
    except (CrawlerError, TimeoutError) as error:
        problem = str(error) or f"no answer in {DNS_S:g} s"
        return Finding("DNS", "doubtful", f"{host}: {problem}", "check /etc/resolv.conf; crawling needs DNS")
    finally:
        await lookup.close()
    return Finding("DNS", "good", f"{host} is at {answer.addresses[0]}")


def version(server: dict[str, str], is_cluster: bool) -> Finding:
    """Report the version; older ones were refused. `is_cluster`: the URL is that of a cluster."""
    name = server.get("server_name", "redis")
    number = server.get("valkey_version", server.get("redis_version", "?"))
    mode = server.get("server_mode", server.get("redis_mode", "standalone"))
    return _judge(
        "Redis version",
        "bad" if mode == "cluster" and not is_cluster else "good",
        f"{name} {number}, mode {mode}",
        "write its URL as redis+cluster://HOST:PORT: a crawl needs all nodes of the cluster",
    )


def named_nodes(silent: Mapping[str, FrontierError]) -> list[Finding]:
    """Report nodes in the URL of a cluster that do not answer. `silent`: their errors, by name."""
    return [
        Finding("Redis URL", "doubtful", f"no answer from {name}: {error}", "name nodes that run: a start asks them")
        for name, error in silent.items()
    ]


def memory(facts: dict[str, str]) -> Finding:
    policy = facts.get("maxmemory_policy", "?")
    limit = int(facts.get("maxmemory", 0))
    found = f"policy {policy}, {int(facts.get('used_memory', 0)) / 2**20:.0f} MiB used"
    if limit and policy != "noeviction":
        return Finding(
            "Redis memory", "bad", found, "CONFIG SET maxmemory-policy noeviction: otherwise URLs are lost silently"
        )
    if 0 < limit <= int(facts.get("used_memory", 0)):
        return Finding("Redis memory", "bad", f"{found} of {limit / 2**20:.0f}: full", "CONFIG SET maxmemory to more")
    if not limit:
        return Finding(
            "Redis memory",
            "doubtful",
            f"{found}, no limit",
            "set maxmemory, so that Redis refuses writes before memory runs out",
        )
    return Finding("Redis memory", "good", f"{found} of {limit / 2**20:.0f}")


async def writes(store: RedisStore) -> list[Finding]:
    """Check that Redis takes writes, with one that changes nothing."""
    try:
        await store.send([redis_command("ZADD", "{peercrawl}:doctor", "XX", 0, "")])
    except WritesRefused as error:
        return [Finding("Redis writes", "bad", str(error), redis_remedy(str(error)))]
    except RedisMisused:  # this user may not use the key
        pass
    return []


def persistence(facts: dict[str, str], embedded: bool) -> Finding:
    if facts.get("aof_enabled") == "1":
        return Finding("Redis persistence", "good", "append-only file" + (" (embedded)" if embedded else ""))
    return Finding(
        "Redis persistence",
        "doubtful",
        "no append-only file",
        "CONFIG SET appendonly yes: otherwise a crash of Redis loses everything since its last snapshot",
    )


def standby(facts: dict[str, str], least: str | None) -> list[Finding]:
    """Check that a master that another server has replaced soon refuses writes. `least`: its min-replicas-to-write."""
    if facts.get("connected_slaves", "0") == "0" or least is None:
        return []
    return [
        _judge(
            "Redis failover",
            "good" if least != "0" else "doubtful",
            f"min-replicas-to-write {least}",
            "CONFIG SET min-replicas-to-write 1 on all servers, and min-replicas-max-lag 2: otherwise a master that is cut "
            "off takes writes that its successor lacks, and their pages are fetched again. With 1, the crawl pauses while "
            "no replica is connected: have two",
        )
    ]


def queues(longest: str | None) -> Finding:
    """Check that queues are stored compactly. `longest`: the server's zset-max-listpack-value, None if it is unknown."""
    return _judge(
        "Redis queues",
        "good" if longest is not None and int(longest) >= QUEUED_COMPACTLY else "doubtful",
        f"compact up to {longest} bytes per URL" if longest is not None else "the server does not report its settings",
        f"CONFIG SET zset-max-listpack-value {QUEUED_COMPACTLY}: queues of up to 128 URLs then take a third less memory",
    )


async def clock(store: RedisStore) -> Finding:
    """Check the local clock. Replicas use the server's clock; a wrong local one only affects logs and archives."""
    offset_s = time.time() - await store.time_ms() / 1000
    return _judge(
        "clock",
        "good" if abs(offset_s) <= CLOCK_OFF_S else "doubtful",
        f"{offset_s:+.3f} s from the server's",
        "synchronize with NTP: logs and archives have this machine's time",
    )


async def round_trip(store: RedisStore) -> Finding:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        await store.time_ms()
        times.append(time.perf_counter() - began)
    median_ms = statistics.median(times) * 1000
    return _judge(
        "Redis round trip",
        "good" if median_ms < 20 else "doubtful",
        f"{median_ms:.2f} ms",
        "run replicas near Redis: leases and settlements wait for it",
    )


def _judge(check: str, result: Result, found: str, remedy: str) -> Finding:
    return Finding(check, result, found, "" if result == "good" else remedy)


# the nodes of a cluster

Facts = Mapping[str, NodeFacts]
"""By name of the node."""

_COMPARED: Mapping[str, Result] = {
    "version": "doubtful",
    "appendonly": "bad",
    "appendfsync": "doubtful",
    "save": "doubtful",
    "maxmemory": "doubtful",
    "maxmemory-policy": "bad",
}
"""Settings of the nodes -> how bad a difference is: after a failover, the weakest one counts."""


def compare(found: Mapping[str, NodeFacts | FrontierError], replicas_ack: int) -> list[Finding]:
    """What to say about the nodes of a cluster, by name. `replicas_ack`: how many replicas have to confirm pushed links."""
    facts = {name: one for name, one in found.items() if isinstance(one, NodeFacts)}
    findings = [
        Finding("Redis nodes", "bad", f"no answer from {name}: {one}", "start it, or remove it from the cluster")
        for name, one in found.items()
        if isinstance(one, FrontierError)
    ]
    findings += [
        *_clocks(facts),
        *_differences(facts),
        *_faults(facts),
        *_replicas(facts, replicas_ack),
    ]
    masters = sum(node.is_master for node in facts.values())
    agreeing = f"{count_of(masters, 'master')} and {count_of(len(facts) - masters, 'replica')}"
    what = f"{agreeing} agree: clocks, version, persistence, memory"
    return findings or [Finding("Redis nodes", "good", what)]


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
    for what, result in _COMPARED.items():
        by_value: dict[str, list[str]] = {}
        for name, node in facts.items():
            value = node.version if what == "version" else node.settings.get(what, "?")
            by_value.setdefault(value or '""', []).append(name)
        if len(by_value) > 1:
            change = "install the same version" if what == "version" else f"CONFIG SET {what} to the same"
            yield Finding(f"Redis nodes: {what}", result, _shares(by_value), f"{change} on all nodes")


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
