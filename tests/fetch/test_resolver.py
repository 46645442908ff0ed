"""Host map, cache and address policy; c-ares against a small DNS server on loopback."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, HostMap, OperatorAddress
from crawler.fetch.resolver import (
    CONTROL_DOMAIN,
    CONTROL_INTERVAL_S,
    VANISHING_S,
    DnsAnswer,
    DnsLookup,
    Resolver,
    ResolverSettings,
    has_ipv6_route,
)
from tests.no_files import no_files_left


class ManualClock:
    """A clock that a test moves forward."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class ScriptedLookup:
    """Returns the answers in turn and repeats the last one. `answers_for` has those for a host, or for names right below
    a domain. `gate` delays them."""

    def __init__(self, *answers: DnsAnswer | FailureKind) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []
        self.answers_for: dict[str, DnsAnswer | FailureKind] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def lookup(self, host: str, *, anew: bool = False) -> DnsAnswer:
        self.asked.append(host)
        await self.gate.wait()
        answer = self.answers_for.get(host) or self.answers_for.get(host.partition(".")[2])
        if answer is None:
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, FailureKind):
            raise FetchFailed(answer, host)
        return answer

    async def close(self) -> None: ...


PUBLIC = DnsAnswer(("8.8.8.8", "2606:4700::1"), 60.0)


def _resolver(lookup: ScriptedLookup, clock: ManualClock | None = None, **settings: float) -> Resolver:
    host_map = HostMap.parse(["*.test=127.0.0.1:8080"])
    return Resolver(lookup, AddressPolicy(), host_map, clock or ManualClock(), ResolverSettings(**settings))  # type: ignore[arg-type]


async def _kind(resolver: Resolver, host: str) -> FailureKind:
    with pytest.raises(FetchFailed) as caught:
        await resolver.resolve(host, 80)
    assert not caught.value.request_sent
    return caught.value.kind


async def test_the_addresses_come_in_the_order_of_the_answer() -> None:
    found = await _resolver(ScriptedLookup(PUBLIC)).resolve("www.example.org", 443)
    assert [(each["host"], each["port"], each["family"]) for each in found] == [
        ("8.8.8.8", 443, socket.AF_INET),
        ("2606:4700::1", 443, socket.AF_INET6),
    ]


async def test_the_host_map_comes_before_the_dns() -> None:
    lookup = ScriptedLookup(PUBLIC)
    [found] = await _resolver(lookup).resolve("WWW.test.", 443)
    assert (found["host"], found["port"]) == ("127.0.0.1", 8080)
    assert isinstance(found["host"], OperatorAddress)
    assert lookup.asked == []


async def test_forbidden_addresses_are_left_out() -> None:
    lookup = ScriptedLookup(DnsAnswer(("127.0.0.1", "8.8.8.8", "10.0.0.1"), 60.0))
    assert [each["host"] for each in await _resolver(lookup).resolve("mixed.example", 80)] == ["8.8.8.8"]


async def test_rebinding_is_refused() -> None:
    """The second answer is a private address. It is judged by itself, whatever the first one was."""
    clock, lookup = ManualClock(), ScriptedLookup(DnsAnswer(("8.8.8.8",), 0.0), DnsAnswer(("127.0.0.1",), 0.0))
    resolver = _resolver(lookup, clock)
    assert (await resolver.resolve("rebind.example", 80))[0]["host"] == "8.8.8.8"
    assert await _kind(resolver, "rebind.example") is FailureKind.FORBIDDEN_ADDRESS


@pytest.mark.parametrize(
    ("answer", "settings", "kept_s"),
    [
        (PUBLIC, {}, 60.0),
        (PUBLIC, {"max_ttl_s": 10.0}, 10.0),
        (FailureKind.NO_SUCH_HOST, {"negative_ttl_s": 20.0}, 20.0),
        (DnsAnswer(("10.0.0.1",), 5.0), {"negative_ttl_s": 20.0}, 20.0),
        (FailureKind.DNS, {"failure_ttl_s": 3.0}, 3.0),
    ],
    ids=["ttl", "capped", "no-such-host", "forbidden", "dns-failure"],
)
async def test_an_answer_is_kept_for_its_time(
    answer: DnsAnswer | FailureKind, settings: dict[str, float], kept_s: float
) -> None:
    clock, lookup = ManualClock(), ScriptedLookup(answer)
    resolver = _resolver(lookup, clock, **settings)
    for wait_s, asked in ((0.0, 1), (kept_s - 0.1, 1), (0.2, 2)):
        clock.now += wait_s
        try:
            await resolver.resolve("www.example.org", 80)
        except FetchFailed:
            assert not isinstance(answer, DnsAnswer) or answer.addresses == ("10.0.0.1",)
        assert lookup.asked.count("www.example.org") == asked


OURS, HOSTS = FailureKind.OUR_DNS, FailureKind.DNS


async def _kinds(resolver: Resolver, clock: ManualClock, host: str, times: int = 3) -> list[FailureKind]:
    """The kinds of failures that are ten minutes apart."""
    kinds = []
    for _ in range(times):
        clock.now += 600
        kinds.append(await _kind(resolver, host))
    return kinds


async def test_while_the_dns_is_away_no_host_is_at_fault() -> None:
    """However long it is away, and whatever it has answered before and in the meantime from a cache."""
    clock, lookup = ManualClock(), ScriptedLookup(HOSTS)
    resolver = _resolver(lookup, clock)
    lookup.answers_for = {CONTROL_DOMAIN: FailureKind.NO_SUCH_HOST, "www.example.org": PUBLIC}
    assert await _kinds(resolver, clock, "lame.example") == [OURS, HOSTS, HOSTS]
    del lookup.answers_for[CONTROL_DOMAIN]
    await resolver.resolve("www.example.org", 80)
    assert await _kinds(resolver, clock, "lame.example") == [OURS, OURS, OURS]
    # A look-up that began while it was away ends when it is back.
    lookup.answers_for[CONTROL_DOMAIN] = FailureKind.NO_SUCH_HOST
    assert await _kinds(resolver, clock, "lame.example") == [OURS, HOSTS, HOSTS]


@pytest.mark.parametrize("answer", [FailureKind.NO_SUCH_HOST, PUBLIC, DnsAnswer(("8.8.8.8",), 3600.0)])
async def test_a_host_is_at_fault_each_time_that_the_dns_answers_a_control(answer: DnsAnswer | FailureKind) -> None:
    """Given the last hosts of a crawl, which alone fail, then all failures but the first one of a process are theirs,
    whatever the DNS answers. Each control asks for another name."""
    clock, lookup = ManualClock(), ScriptedLookup(HOSTS)
    resolver = _resolver(lookup, clock)
    lookup.answers_for[CONTROL_DOMAIN] = answer
    assert await _kinds(resolver, clock, "a.example", 4) == [OURS, HOSTS, HOSTS, HOSTS]
    assert await _kinds(resolver, clock, "b.example", 2) == [HOSTS, HOSTS]
    controls = [name for name in lookup.asked if name.endswith(CONTROL_DOMAIN)]
    assert len(set(controls)) == len(controls) == 6


async def test_a_look_up_that_the_time_for_a_connection_does_not_suffice_for_is_judged_too() -> None:
    clock, lookup = ManualClock(), ScriptedLookup(HOSTS)
    resolver = _resolver(lookup, clock)
    lookup.answers_for[CONTROL_DOMAIN] = PUBLIC
    assert await resolver.overdue("slow.example") is None
    assert await _kind(resolver, "slow.example") is OURS
    for _ in range(2):
        clock.now += 600
        lookup.gate.clear()
        waiting = asyncio.create_task(resolver.resolve("slow.example", 80))
        await asyncio.sleep(0)
        overdue = asyncio.create_task(resolver.overdue("slow.example"))
        lookup.gate.set()
        assert await overdue is HOSTS
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), FetchFailed)


async def test_hosts_that_fail_together_share_a_control_and_the_next_one_comes_later() -> None:
    clock, lookup = ManualClock(), ScriptedLookup(HOSTS)
    resolver = _resolver(lookup, clock)
    lookup.answers_for[CONTROL_DOMAIN] = PUBLIC
    await _kind(resolver, "first.example")
    clock.now += CONTROL_INTERVAL_S / 4
    before = clock.now
    kinds = await asyncio.gather(*(_kind(resolver, f"{name}.example") for name in "abcdef"))
    assert kinds == [HOSTS] * 6
    assert len([name for name in lookup.asked if name.endswith(CONTROL_DOMAIN)]) == 2
    assert clock.now == before + CONTROL_INTERVAL_S * 3 / 4


async def test_a_dns_that_only_knows_the_hosts_of_the_crawl_is_asked_for_one_of_another_domain() -> None:
    """Not for one that fails, nor for one that c-ares knows by itself."""
    clock, lookup = ManualClock(), ScriptedLookup(HOSTS)
    resolver = Resolver(lookup, AddressPolicy(allow_private=True), HostMap(), clock)
    lookup.answers_for = dict.fromkeys(("www.good.example", "www.lame.example", "localhost"), PUBLIC)
    for name in lookup.answers_for:
        await resolver.resolve(name, 80)
    assert await _kinds(resolver, clock, "lame.example") == [OURS, OURS, OURS]
    assert {name.partition(".")[2] for name in lookup.asked[-2:]} == {CONTROL_DOMAIN, "good.example"}
    lookup.answers_for["good.example"] = FailureKind.NO_SUCH_HOST
    assert await _kinds(resolver, clock, "lame.example") == [OURS, HOSTS, HOSTS]


GONE = FailureKind.NO_SUCH_HOST


@pytest.mark.parametrize(
    ("answer", "final"), [(GONE, GONE), (DnsAnswer(("10.0.0.1",), 1.0), FailureKind.FORBIDDEN_ADDRESS)]
)
async def test_a_dns_that_knows_no_host_any_more_is_ours_and_a_dead_host_is_not(
    answer: DnsAnswer | FailureKind, final: FailureKind
) -> None:
    clock, lookup = ManualClock(), ScriptedLookup(answer)
    resolver = _resolver(lookup, clock)
    lookup.answers_for = dict.fromkeys(("a.example", "b.example", "c.example"), PUBLIC)
    for host in lookup.answers_for:
        await resolver.resolve(host, 80)
    assert await _kinds(resolver, clock, "dead.example") == [final] * 3
    clock.now += VANISHING_S
    del lookup.answers_for["b.example"]  # one dead host
    assert await _kind(resolver, "b.example") is final
    lookup.answers_for.clear()
    for host in ("new.example", "a.example", "b.example", "c.example"):
        assert await _kinds(resolver, clock, host) == [OURS] * 3
    lookup.answers_for["c.example"] = PUBLIC
    assert await _kinds(resolver, clock, "new.example") == [final] * 3


async def test_a_host_that_has_just_had_an_address_is_not_yet_gone() -> None:
    """A VPN is down: the DNS knows public names, but not the internal ones."""
    clock, lookup = ManualClock(), ScriptedLookup(GONE)
    resolver = _resolver(lookup, clock)
    lookup.answers_for = {CONTROL_DOMAIN: PUBLIC, "intranet.example": PUBLIC}
    await resolver.resolve("intranet.example", 80)
    del lookup.answers_for["intranet.example"]
    assert await _kinds(resolver, clock, "intranet.example", 2) == [OURS, GONE]


@pytest.mark.parametrize("answer", [GONE, DnsAnswer(("10.0.0.1",), 1.0)])
async def test_a_process_that_starts_while_the_dns_fails_knows_hosts_from_before(
    answer: DnsAnswer | FailureKind,
) -> None:
    clock, lookup = ManualClock(), ScriptedLookup(answer)
    resolver = _resolver(lookup, clock)
    for host in ("a.example", "b.example", "8.8.8.8", "[2001:db8::1]"):
        resolver.remember(host, 7 * 86_400.0)
    assert [await _kind(resolver, host) for host in ("new.example", "a.example", "b.example")] == [OURS] * 3
    lookup.answers_for["b.example"] = PUBLIC
    clock.now += 60.0
    assert await resolver.first("b.example")
    assert await _kind(resolver, "a.example") is not OURS


@pytest.mark.parametrize(("control", "final"), [(PUBLIC, GONE), (GONE, OURS)])
async def test_the_only_host_of_a_crawl_is_gone_if_others_are_not(
    control: DnsAnswer | FailureKind, final: FailureKind
) -> None:
    clock, lookup = ManualClock(), ScriptedLookup(GONE)
    resolver = _resolver(lookup, clock)
    resolver.remember("a.example", 2 * VANISHING_S)
    lookup.answers_for = {CONTROL_DOMAIN: control}
    assert await _kind(resolver, "a.example") is final


async def test_a_dns_that_has_known_no_host_is_believed() -> None:
    """As in a closed network whose hosts are named by their addresses."""
    resolver = _resolver(ScriptedLookup(GONE))
    assert [await _kind(resolver, f"{name}.example") for name in "abcd"] == [GONE] * 4


async def test_the_cache_forgets_the_oldest_answer() -> None:
    lookup = ScriptedLookup(PUBLIC)
    resolver = _resolver(lookup, max_entries=2)
    for host in ("a.example", "b.example", "a.example", "c.example", "b.example", "a.example"):
        await resolver.resolve(host, 80)
    assert lookup.asked == ["a.example", "b.example", "c.example", "a.example"]
    assert repr(resolver) == "<Resolver known=2 asking=0>"


async def test_a_host_that_takes_turns_with_others_is_not_forgotten_before_its_next_one() -> None:
    lookup = ScriptedLookup(PUBLIC)
    settings = ResolverSettings(max_entries=2)
    resolver = Resolver(lookup, AddressPolicy(), HostMap(), ManualClock(), settings, in_turn=lambda: 3)
    for host in 2 * ("a.example", "b.example", "c.example"):
        await resolver.resolve(host, 80)
    assert lookup.asked == ["a.example", "b.example", "c.example"]


async def test_one_look_up_serves_all_who_wait_and_outlives_the_first() -> None:
    lookup = ScriptedLookup(PUBLIC)
    lookup.gate.clear()
    resolver = _resolver(lookup)
    first, *others = (asyncio.create_task(resolver.resolve("www.example.org", port)) for port in (80, 443, 80))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    lookup.gate.set()
    assert [found[0]["port"] for found in await asyncio.gather(*others)] == [443, 80]
    assert lookup.asked == ["www.example.org"]


class Dns(asyncio.DatagramProtocol):
    """A name server with the records of `zone`: (name, type) -> [(ttl, address)]. `silent` ones get no
    answer.
    """

    def __init__(self) -> None:
        self.zone: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self.questions: list[tuple[str, int]] = []
        self.silent: set[str] = set()
        self.asked = asyncio.Event()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        labels, at = [], 12  # RFC 1035 4.1.1: the header has 12 bytes
        while size := data[at]:
            labels.append(data[at + 1 : at + 1 + size].decode())
            at += size + 1
        name, (kind,) = ".".join(labels), struct.unpack_from(">H", data, at + 1)
        self.questions.append((name, kind))
        self.asked.set()
        if name in self.silent:
            return
        records = self.zone.get((name, kind), [])
        code = 0 if any(known == name for known, _ in self.zone) else 3  # RFC 1035 4.1.1: name error
        answers = b"".join(_record(kind, ttl, address) for ttl, address in records)
        header = data[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0)
        self._transport.sendto(header + data[12 : at + 5] + answers, addr)


def _record(kind: int, ttl: int, address: str) -> bytes:
    packed = socket.inet_pton(socket.AF_INET if kind == 1 else socket.AF_INET6, address)
    return b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, ttl, len(packed)) + packed


@asynccontextmanager
async def _dns(**options: object) -> AsyncIterator[tuple[Dns, DnsLookup]]:
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(Dns, ("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    lookup = DnsLookup([f"127.0.0.1:{port}"], **options)  # type: ignore[arg-type]
    try:
        yield server, lookup
    finally:
        await lookup.close()
        transport.close()


async def test_both_families_are_asked_for_and_the_shortest_ttl_counts() -> None:
    async with _dns(ipv6=True) as (dns, lookup):
        dns.zone = {
            ("www.example.org", 1): [(60, "8.8.8.8"), (60, "8.8.4.4")],
            ("www.example.org", 28): [(30, "2606:4700::1")],
        }
        answer = await lookup.lookup("www.example.org")
    assert sorted(answer.addresses) == ["2606:4700::1", "8.8.4.4", "8.8.8.8"]
    assert answer.ttl_s == 30.0
    assert sorted(kind for _, kind in dns.questions) == [1, 28]


async def test_without_an_ipv6_route_only_ipv4_is_asked_for() -> None:
    async with _dns(ipv6=False) as (dns, lookup):
        dns.zone = {("www.example.org", 1): [(60, "8.8.8.8")]}
        assert (await lookup.lookup("www.example.org")).addresses == ("8.8.8.8",)
    assert dns.questions == [("www.example.org", 1)]
    assert isinstance(has_ipv6_route(), bool)


async def test_a_name_that_does_not_exist_is_told_from_a_server_that_does_not_answer() -> None:
    async with _dns(ipv6=False, timeout_s=0.05, tries=1) as (dns, lookup):
        dns.zone = {("only6.example", 28): [(60, "2606:4700::1")]}
        dns.silent = {"slow.example"}
        for host, kind in (
            ("nowhere.example", FailureKind.NO_SUCH_HOST),
            ("only6.example", FailureKind.NO_SUCH_HOST),
            ("slow.example", FailureKind.DNS),
        ):
            with pytest.raises(FetchFailed) as caught:
                await lookup.lookup(host)
            assert caught.value.kind is kind
    assert ("nowhere.example", 1) in dns.questions


async def test_a_look_up_without_a_file_descriptor_is_the_machines_fault() -> None:
    """c-ares says that no server could be contacted."""
    async with _dns(ipv6=False, timeout_s=0.05, tries=1) as (_, lookup):
        with no_files_left(), pytest.raises(FetchFailed) as caught:
            await lookup.lookup("www.example.org")
    assert caught.value.kind is FailureKind.MACHINE


async def test_a_rebinding_name_server_leads_nowhere() -> None:
    async with _dns(ipv6=False) as (dns, lookup):
        resolver = Resolver(lookup, AddressPolicy(), HostMap(), ManualClock())
        dns.zone = {("rebind.example", 1): [(0, "8.8.8.8")]}
        assert (await resolver.resolve("rebind.example", 80))[0]["host"] == "8.8.8.8"
        dns.zone = {("rebind.example", 1): [(0, "127.0.0.1")]}
        assert await _kind(resolver, "rebind.example") is FailureKind.FORBIDDEN_ADDRESS


async def test_the_channel_is_replaced_so_that_its_own_cache_stays_bounded() -> None:
    async with _dns(ipv6=False, lookups_per_channel=2) as (dns, lookup):
        dns.zone = {("www.example.org", 1): [(600, "8.8.8.8")]}
        for _ in range(6):
            await lookup.lookup("www.example.org")
        assert len(dns.questions) == 3


async def test_a_host_can_be_asked_for_anew_although_its_address_is_kept() -> None:
    async with _dns(ipv6=False) as (dns, lookup):
        dns.zone = {("www.example.org", 1): [(600, "8.8.8.8")]}
        for anew in (False, True, False):
            await lookup.lookup("www.example.org", anew=anew)
        assert len(dns.questions) == 2


async def test_closing_gives_up_what_is_under_way_at_once() -> None:
    async with _dns(ipv6=False) as (dns, lookup):
        dns.silent = {"slow.example"}
        resolver = Resolver(lookup, AddressPolicy(), HostMap(), ManualClock())
        waiting = asyncio.create_task(resolver.resolve("slow.example", 80))
        await dns.asked.wait()
        async with asyncio.timeout(2.5):
            await resolver.close()
            with pytest.raises((asyncio.CancelledError, FetchFailed)):
                await waiting
