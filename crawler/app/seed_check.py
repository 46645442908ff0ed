"""Judges seeds before they are queued: those that the crawl's settings forbid are reported at once, with what allows them.

A replica makes the same decision for every request (`crawler.fetch`). But it first asks for robots.txt, which is then
unreachable, and that may change, so the seed would be tried again for minutes.

Hosts are looked up in the DNS, within limits on number and time. A host that was not found, or not looked up, is left to
the replicas, which may have another DNS. A name that only a proxy looks up (`proxy_dns` in `[[requests]]`) is never looked
up here: what it leads to is not known here, and nobody else may learn of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from crawler.app.request_setup import leaves_names_to_proxy
from crawler.errors import FetchFailed
from crawler.fetch.address_policy import AddressPolicy, HostMap, judge_address
from crawler.scope.seeds import Seed
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import addresses
from crawler.settings.tables import RequestsTable

LOOKED_UP, LOOKUP_S = 200, 3.0
"""The most hosts that are looked up, and the seconds for all of them. Seeds of the user's own network, which this finds,
are few; a list of a million sites must not wait for its slowest name servers."""


class RefusedSeed(msgspec.Struct, frozen=True):
    """A seed that the settings forbid to fetch. `reasons`: each with the setting that forbids it; `options`: the
    command-line options that allow it."""

    url: str
    reasons: tuple[str, ...]
    options: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.url}: {', and '.join(self.reasons)}; add {' '.join(self.options)}"


async def refused_seeds(
    seeds: Sequence[Seed], settings: CrawlSettings, requests: Sequence[RequestsTable]
) -> dict[Seed, RefusedSeed]:
    """Return those of `seeds` that `settings` forbid to fetch. `requests`: the rules for requests of this machine."""
    policy, mapped = addresses(settings), HostMap.parse(settings.fetch.host_map)
    origins = {seed.url.origin: urlsplit(seed.url.origin) for seed in seeds}
    hosts = {parts.hostname or "": None for parts in origins.values()}
    judged = {host: _addresses_of(host) for host in hosts if mapped.find(host) is None}
    left = {seed for seed in seeds if leaves_names_to_proxy(requests, seed.url)}
    names = {origins[seed.url.origin].hostname or "": None for seed in seeds if seed not in left}
    looked_up = await _look_up([host for host in names if judged.get(host) == ()])
    refused = {}
    for seed in seeds:
        parts = origins[seed.url.origin]
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        addresses_here = judged.get(host) or (() if seed in left else looked_up.get(host, ()))
        if host in judged and (found := _judge(seed.url.href, addresses_here, port, policy)):
            refused[seed] = found
    return refused


def _judge(url: str, found: Sequence[str], port: int, policy: AddressPolicy) -> RefusedSeed | None:
    reasons, options = [], []
    if port not in policy.ports:
        reasons.append(f"port {port} is not in fetch.ports")
        options.append(f"--port {port}")
    verdicts = {address: judge_address(address, policy) for address in found}
    if verdicts and all(verdicts.values()):
        named = ", ".join(f"{address} ({reason})" for address, reason in verdicts.items())
        reasons.append(f"fetch.allow does not list {named}")
        options += [f"--allow {address}" for address in verdicts]
    return RefusedSeed(url, tuple(reasons), tuple(options)) if reasons else None


def _addresses_of(host: str) -> tuple[str, ...]:
    """Return the address that `host` is, or nothing if it is a name."""
    try:
        return (str(ip_address(host)),)
    except ValueError:
        return ()


async def _look_up(hosts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the addresses of the first of `hosts`, as far as the DNS returns them in time."""
    if not hosts:
        return {}
    from crawler.fetch.dns import DnsLookup  # noqa: PLC0415 - seeds that are addresses need no DNS

    dns = DnsLookup(timeout_s=LOOKUP_S, tries=1)
    found: dict[str, tuple[str, ...]] = {}

    async def look_up(host: str) -> None:
        try:
            found[host] = (await dns.lookup(host)).addresses
        except FetchFailed:
            return  # a replica may find it

    try:
        async with asyncio.timeout(LOOKUP_S), asyncio.TaskGroup() as group:
            for host in hosts[:LOOKED_UP]:
                group.create_task(look_up(host))
    except TimeoutError:
        pass
    finally:
        await dns.close()
    return found
