"""The checks of `crawler doctor`: whether this machine and its Redis are ready for a crawl. Each finding says what to do
about a problem."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from crawler.app.embedded_valkey import open_store
from crawler.app.identity_setup import identity_of
from crawler.app.request_setup import request_rules
from crawler.cli.check_finding import Finding, Result
from crawler.cli.node_checks import compare
from crawler.errors import CrawlerError, UserError
from crawler.fetch import fd_limit
from crawler.fetch.dns import DnsLookup
from crawler.settings.load import Settings
from crawler.settings.tables import HOME_PAGE, ReplicaTable
from crawler.wording import count_of
from frontier.errors import FrontierError, RedisAway
from frontier.store import RedisStore

LITTLE_DISK, NO_DISK = 5 << 30, 1 << 28
QUEUED_COMPACTLY = 512
"""Bytes; longer URLs are rare. A URL above the server's limit turns the queue of its domain into a skip list."""

CLOCK_OFF_S = 2.0
DNS_S = 5.0


async def examine(settings: Settings, wall: Callable[[], float] = time.time) -> list[Finding]:
    """Run all checks. `wall`: the wall clock, in seconds since 1970. Failures are returned as findings, not raised."""
    local = settings.replica
    findings = [files(local), disk("output", local.out), contact(settings), identity(settings), rules(settings)]
    if not local.redis:
        findings.append(disk("data", local.data_dir))
    findings.append(await dns(settings.fetch.contact))
    try:
        async with contextlib.AsyncExitStack() as stack:
            if not (local.redis or local.data_dir.exists()):  # try the embedded server, but leave nothing behind
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="peercrawl-"))
                local = replace(local, data_dir=Path(scratch))
            store = await stack.enter_async_context(open_store(local))
            nodes = await store.node_facts()
            findings.append(version(await store.info("server"), is_cluster=bool(nodes)))
            findings.append(memory(await store.info("memory")))
            findings.append(persistence(await store.info("persistence"), embedded=not local.redis))
            findings.append(queues(await store.setting("zset-max-listpack-value")))
            findings.append(await clock(store.time_ms, wall))
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
    remedy = "start it, or correct --redis" if url else "repeat the command"
    return Finding("Redis", "bad", str(error), remedy + "; rediss:// needs a port with TLS" * url.startswith("rediss"))


def files(local: ReplicaTable) -> Finding:
    """Check that there are enough file descriptors for all connections."""
    limit, needed = fd_limit.highest_fd_limit(), fd_limit.required_files(local.concurrency)
    return _judge(
        "open files",
        "good" if limit >= needed else "bad",
        f"{limit:,} allowed, {needed:,} needed by a replica",
        f"ulimit -Hn {needed}, LimitNOFILE={needed} in systemd, or a lower --concurrency",
    )


def disk(what: str, folder: Path) -> Finding:
    """Check the free disk space."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    result: Result = "bad" if free < NO_DISK else "doubtful" if free < LITTLE_DISK else "good"
    return _judge(
        f"disk for {what}", result, f"{free / 2**30:.1f} GiB free at {place}", "make room, or use another folder"
    )


def contact(settings: Settings) -> Finding:
    """Check that site owners can reach the operator."""
    address = settings.fetch.contact
    return _judge(
        "contact",
        "doubtful" if address == HOME_PAGE else "good",
        address,
        "set fetch.contact to your own web page or email address: it is sent with every request",
    )


def identity(settings: Settings) -> Finding:
    """Check that requests can be signed, if they shall be."""
    try:
        found = identity_of(settings.identity)
    except UserError as error:
        return Finding("identity", "bad", str(error), "docs/how-to/identify-the-crawler.md describes the settings")
    if found is None:
        return Finding("identity", "good", "requests are not signed")
    return Finding("identity", "good", f"requests are signed with the key {found.key_id}")


def rules(settings: Settings) -> Finding:
    """Check that this machine has the secrets that the rules about requests name."""
    try:
        found = request_rules(settings.requests, os.environ)
    except UserError as error:
        return Finding("requests", "bad", str(error), "docs/how-to/control-requests.md describes the rules")
    return Finding("requests", "good", count_of(len(found), "rule") if found else "all requests are the same")


async def dns(contact_url: str) -> Finding:
    """Check that host names can be resolved."""
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
    """Report the version. `open_store` has already refused versions that are too old. `is_cluster`: the URL is that of a
    cluster."""
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
    """Check that Redis cannot evict keys of the frontier."""
    policy = facts.get("maxmemory_policy", "?")
    limit = int(facts.get("maxmemory", 0))
    found = f"policy {policy}, {int(facts.get('used_memory', 0)) / 2**20:.0f} MiB used"
    if limit and policy != "noeviction":
        return Finding(
            "Redis memory", "bad", found, "CONFIG SET maxmemory-policy noeviction: otherwise URLs are lost silently"
        )
    if not limit:
        return Finding(
            "Redis memory",
            "doubtful",
            f"{found}, no limit",
            "set maxmemory, so that Redis refuses writes before memory runs out",
        )
    return Finding("Redis memory", "good", f"{found} of {limit / 2**20:.0f}")


def persistence(facts: dict[str, str], embedded: bool) -> Finding:
    """Check how much data a crash of Redis can lose."""
    if facts.get("aof_enabled") == "1":
        return Finding("Redis persistence", "good", "append-only file" + (" (embedded)" if embedded else ""))
    return Finding(
        "Redis persistence",
        "doubtful",
        "no append-only file",
        "CONFIG SET appendonly yes: otherwise a crash of Redis loses everything since its last snapshot",
    )


def queues(longest: str | None) -> Finding:
    """Check that queues are stored compactly. `longest`: the server's zset-max-listpack-value, None if it is unknown."""
    return _judge(
        "Redis queues",
        "good" if longest is not None and int(longest) >= QUEUED_COMPACTLY else "doubtful",
        f"compact up to {longest} bytes per URL" if longest is not None else "the server does not report its settings",
        f"CONFIG SET zset-max-listpack-value {QUEUED_COMPACTLY}: queues of up to 128 URLs then take a third less memory",
    )


async def clock(server_ms: Callable[[], Awaitable[float]], wall: Callable[[], float]) -> Finding:
    """Check the local clock. Replicas use the server's clock; a wrong local one only affects logs and archives."""
    offset_s = wall() - await server_ms() / 1000
    return _judge(
        "clock",
        "good" if abs(offset_s) <= CLOCK_OFF_S else "doubtful",
        f"{offset_s:+.3f} s from the server's",
        "synchronize with NTP: logs and archives have this machine's time",
    )


async def round_trip(store: RedisStore) -> Finding:
    """Check the round-trip time to Redis, as the median of five."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        await store.time_ms()
        times.append(time.perf_counter() - began)
    median_ms = sorted(times)[2] * 1000
    return _judge(
        "Redis round trip",
        "good" if median_ms < 20 else "doubtful",
        f"{median_ms:.2f} ms",
        "run replicas near Redis: leases and settlements wait for it",
    )


def _judge(check: str, result: Result, found: str, remedy: str) -> Finding:
    return Finding(check, result, found, "" if result == "good" else remedy)
