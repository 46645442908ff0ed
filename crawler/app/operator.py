"""What commands change in the queue of a crawl: seeds, the delay of a domain, the end of its backoff, failed URLs
again.

Seeds that the crawl's settings forbid are reported at once, with what allows them: a replica would first ask for their
robots.txt, and try that for minutes. Hosts are looked up in the DNS, within limits on number and time; those that were
not found are left to the replicas, which may have another DNS. A name that only a proxy looks up (`proxy_dns` in
`[[requests]]`) is told to no name server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from crawler.app.requests import leaves_names_to_proxy
from crawler.errors import FetchFailed
from crawler.fetch.address_policy import AddressPolicy, HostMap, judge_address
from crawler.page import LinkKind
from crawler.scope.seeds import Seed
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import addresses, politeness_policy, scorer
from crawler.settings.tables import RequestsTable
from frontier.clock import ServerClock
from frontier.control import Control, RetryReply, retry_now
from frontier.crawls import Crawl, crawl_clock
from frontier.dead_letters import DeadLetter, DeadLetters
from frontier.domains import shard_of
from frontier.entries import GUESSED, Entry, PushMode
from frontier.errors import RedisAway
from frontier.queue import Frontier, FrontierSettings, PushReply
from frontier.scripts import command
from frontier.store import RedisStore, batched
from frontier.urls import origin_of
from politeness.delay import delay_ms, with_set_delay
from politeness.robots_cache import RobotsCache, longest_asked_delay


async def set_domain_delay(store: RedisStore, crawl: Crawl, domain: str, seconds: float | None) -> float:
    """Set the delay of `domain`, None for that of the crawl, and return which holds now, in seconds: a longer one that its
    robots.txt asks for, if any. The stored delay, which commands show and the next lease uses, is replaced at once.
    Otherwise it would be that of the last response until the next one. Raises RedisAway, and has then changed nothing."""
    control = Control(store, crawl.keys)
    robots = crawl.keys.shards[shard_of(domain, crawl.shards)].robots(domain)
    (records,) = await store.send([command("HVALS", robots)])
    await control.set_delay(domain, seconds)
    policy = politeness_policy(CrawlSettings.from_json(crawl.settings)).throttle.delay
    shown_ms = delay_ms(with_set_delay(policy, seconds), longest_asked_delay(records), None, 0.0)
    with contextlib.suppress(RedisAway):  # the delay is set, and shown after the next response
        await control.show_delay(domain, shown_ms)
    return shown_ms / 1000


async def _forget_robots_failures(store: RedisStore, crawl: Crawl, origins: dict[str, str]) -> ServerClock:
    """Have each unreachable robots.txt of `origins` (origin -> domain) requested again. Returns the crawl's clock."""
    clock = await crawl_clock(store, crawl)
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    await RobotsCache(store, frontier, "").forget_failures(origins, clock.now_ms())
    return clock


async def retry_domain(store: RedisStore, crawl: Crawl, domain: str) -> RetryReply:
    """End the backoff of `domain`; its waiting URLs and unreachable robots.txt are requested now. Raises RedisAway."""
    robots = crawl.keys.shards[shard_of(domain, crawl.shards)].robots(domain)
    (origins,) = await store.send([command("HKEYS", robots)])
    # First, or a URL could be postponed again because of the old record.
    clock = await _forget_robots_failures(store, crawl, {origin.decode(): domain for origin in origins})
    policy = politeness_policy(CrawlSettings.from_json(crawl.settings)).throttle.delay
    return await retry_now(store, crawl.keys, domain, clock.now_ms(), delay_ms(policy, None, None, 0.0))


AT_ONCE = 5_000
"""Dead letters that are read before they are queued again."""


async def list_letters(
    store: RedisStore, crawl: Crawl, domain: str | None, reason: str | None, limit: int, only_requisites: bool = False
) -> tuple[list[DeadLetter], int]:
    """Return at most `limit` dead letters, those of `domain` and with `reason` if these are given, and the number of
    shards that cannot be read, because their nodes are away. Raises RedisAway if no shard can be read."""
    letters = DeadLetters(store, crawl.keys)
    found = letters.find(domain, reason, skips_away=True)
    wanted = (letter async for letter in found if letter.is_requisite or not only_requisites)
    return await _first(wanted, limit), letters.unread


async def _first(letters: AsyncIterator[DeadLetter], limit: int) -> list[DeadLetter]:
    found = []
    async for letter in letters:
        found.append(letter)
        if len(found) >= limit:
            break
    return found


async def requeue(store: RedisStore, crawl: Crawl, domain: str | None, reason: str | None) -> int:
    """Queue all dead letters again, or those of `domain` and with `reason`. Returns their number. Raises RedisAway.

    A robots.txt that was unreachable is asked again first. Otherwise its count of failures, which is stored, would end
    these URLs as dead at once.
    """
    number = 0
    letters = DeadLetters(store, crawl.keys)
    while found := await _first(letters.find(domain, reason), AT_ONCE):
        number += await _requeue(store, crawl, found)
        if len(found) < AT_ONCE:
            break  # URLs that are given up again in the meantime are left alone
    return number


async def requeue_urls(store: RedisStore, crawl: Crawl, urls: Collection[str]) -> set[str]:
    """Queue the dead letters of `urls` again. Returns the URLs that had one. Raises RedisAway."""
    found = [
        letter
        async for letter in DeadLetters(store, crawl.keys).find()
        if letter.url in urls and not letter.is_requisite
    ]
    for at in range(0, len(found), AT_ONCE):
        await _requeue(store, crawl, found[at : at + AT_ONCE])
    return {letter.url for letter in found}


async def _requeue(store: RedisStore, crawl: Crawl, found: Sequence[DeadLetter]) -> int:
    clock = await _forget_robots_failures(store, crawl, {origin_of(letter.url): letter.domain for letter in found})
    return await DeadLetters(store, crawl.keys).requeue(found, clock.now_ms())


LOOKED_UP, LOOKUP_S = 200, 3.0
"""The most hosts that are looked up, and the seconds for all of them. Seeds of the user's own network, which this
finds, are few; a list of a million sites must not wait for its slowest name servers."""


class RefusedSeed(msgspec.Struct, frozen=True):
    """A seed that the settings forbid. `reasons`: with the settings; `options`: of the command line that allow it."""

    url: str
    reasons: tuple[str, ...]
    options: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.url}: {', and '.join(self.reasons)}; add {' '.join(self.options)}"


async def refused_seeds(
    seeds: Sequence[Seed], settings: CrawlSettings, requests: Sequence[RequestsTable], looks_up: bool = True
) -> dict[Seed, RefusedSeed]:
    """Return those of `seeds` that `settings` forbid. `requests`: the rules of this machine; `looks_up`: judge
    addresses, too."""
    policy, mapped = addresses(settings), HostMap.parse(settings.fetch.host_map)
    origins = {seed.url.origin: urlsplit(seed.url.origin) for seed in seeds}
    hosts = {parts.hostname or "": None for parts in origins.values()}
    judged = {host: _addresses_of(host) for host in hosts if mapped.find(host) is None}
    left = {seed for seed in seeds if leaves_names_to_proxy(requests, seed.url)}
    names = {origins[seed.url.origin].hostname or "": None for seed in seeds if seed not in left}
    looked_up = await _look_up([host for host in names if judged.get(host) == ()]) if looks_up else {}
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
    from crawler.fetch.resolver import DnsLookup  # noqa: PLC0415 - seeds that are addresses need no DNS

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


SEED_CHUNK = 5_000
"""Seeds pushed in one round trip."""

AGAIN_CHUNK = 100_000
"""Seeds that are looked for among the dead letters at once: these are all read each time."""


async def queue_seeds(
    store: RedisStore,
    crawl: Crawl,
    seeds: Iterable[Seed],
    settings: CrawlSettings,
    mode: PushMode = "new",
) -> PushReply:
    """Queue `seeds` at depth 0, as `mode` says; in mode "again" those that are dead letters as `crawler dead requeue`
    does. `settings`: those of the crawl. Raises UserError if the scorer cannot be loaded."""
    clock = await crawl_clock(store, crawl)
    limits = FrontierSettings(
        domain_cap=settings.limits.domain_cap,
        replicas_ack=settings.frontier.replicas_ack,
        pack_above=settings.frontier.pack_above,
    )
    frontier = Frontier(store, crawl.keys, clock, limits, crawl.fingerprint_key)
    score = scorer(settings.frontier.scorer)
    accepted = seen = capped = outside = 0
    for part in batched(seeds, SEED_CHUNK if mode == "new" else AGAIN_CHUNK):
        entries = [
            Entry(
                seed.url.href,
                seed.url.domain,
                score(seed.url.href, 0, LinkKind.ANCHOR) if seed.priority is None else seed.priority,
                mode=mode,
                tag=seed.tag,
                chain=GUESSED if not seed.has_scheme and seed.url.href.startswith("https:") else "",
            )
            for seed in part
        ]
        if mode == "again":
            requeued = await requeue_urls(store, crawl, {entry.url for entry in entries})
            accepted += len(requeued)
            entries = [entry for entry in entries if entry.url not in requeued]
        for chunk in batched(entries, SEED_CHUNK):
            pushed = await frontier.push(chunk)
            accepted, seen = accepted + pushed.accepted, seen + pushed.seen
            capped, outside = capped + pushed.capped, outside + pushed.outside
    await Control(store, crawl.keys).seeded()
    return PushReply(accepted, seen, capped, outside)
