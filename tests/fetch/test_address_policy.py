"""Which addresses are allowed, and the operator's host map."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UserError
from crawler.fetch.address_policy import AddressPolicy, HostMap, OperatorAddress, judge_address

PUBLIC = AddressPolicy()


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1",
        "198.17.0.1", "223.255.255.255", "11.0.0.0", "9.255.255.255", "126.0.0.1", "128.0.0.1", "191.255.0.1",
        "2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2001:200::1", "2400::1",
        "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "2001:0:808:808:0:0:f7f7:f7f7",
    ],
)  # fmt: skip
def test_public_addresses_are_allowed(address: str) -> None:
    assert judge_address(address, PUBLIC) is None


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"), ("127.255.255.254", "loopback"), ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"), ("10.0.0.1", "private"), ("172.16.0.1", "private"),
        ("172.31.255.255", "private"), ("192.168.255.255", "private"), ("100.64.0.1", "shared"),
        ("100.127.255.255", "shared"), ("169.254.169.254", "link_local"), ("192.0.0.1", "reserved"),
        ("192.0.2.1", "documentation"), ("198.51.100.7", "documentation"), ("203.0.113.9", "documentation"),
        ("198.18.0.1", "benchmarking"), ("198.19.255.255", "benchmarking"), ("192.88.99.1", "reserved"),
        ("224.0.0.1", "multicast"), ("239.255.255.255", "multicast"), ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"), ("::1", "loopback"), ("fe80::1", "link_local"), ("fe80::1%eth0", "link_local"),
        ("fc00::1", "unique_local"), ("fd12:3456::1", "unique_local"), ("fec0::1", "private"),
        ("ff02::1", "multicast"), ("2001:db8::1", "documentation"), ("3fff::1", "documentation"),
        ("2001:2::1", "benchmarking"), ("2001:10::1", "reserved"), ("100::1", "reserved"),
        ("5f00::1", "reserved"), ("4000::1", "reserved"), ("e000::1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"), ("::ffff:a9fe:a9fe", "link_local"), ("::127.0.0.1", "reserved"),
        ("::808:808", "reserved"), ("64:ff9b::7f00:1", "loopback"), ("64:ff9b::a9fe:a9fe", "link_local"),
        ("64:ff9b:1::808:808", "reserved"), ("2002:7f00:1::", "loopback"), ("2002:a00:1::1", "private"),
        ("2001:0:7f00:1:0:0:f7f7:f7f7", "loopback"),  # Teredo: the server
        ("2001:0:808:808:0:0:80ff:fffe", "loopback"),  # Teredo: the client, its bits inverted
        ("168.63.129.16", "cloud"), ("::ffff:168.63.129.16", "cloud"), ("64:ff9b::a83f:8110", "cloud"),
        ("2002:a83f:8110::1", "cloud"), ("192.80.8.124", "cloud"), ("161.26.0.10", "cloud"), ("166.9.0.1", "cloud"),
        ("100.100.100.200", "cloud"), ("fd00:ec2::254", "cloud"), ("fd20:ce::254", "cloud"), ("fd00:42::42", "cloud"),
        ("192.88.99.2", "reserved"), ("2620:4f:8000::1", "reserved"), ("::ffff:0:7f00:1", "reserved"),
        ("feff::1", "private"), ("64:ff9b:1::7f00:1", "reserved"), ("2002:c058:6301::1", "reserved"),
        ("2130706433", "not_an_address"), ("127.1", "not_an_address"), ("0177.0.0.1", "not_an_address"),
        ("", "not_an_address"), ("www.test", "not_an_address"),
    ],
)  # fmt: skip
def test_all_others_are_not(address: str, reason: str) -> None:
    assert judge_address(address, PUBLIC) == reason


@given(st.ip_addresses(v=4))
def test_a_wrapped_ipv4_address_is_judged_as_the_bare_one(ip: ipaddress.IPv4Address) -> None:
    verdict = judge_address(str(ip), PUBLIC)
    number = int(ip)
    for wrapped in ((0xFFFF << 32) + number, (0x64FF9B << 96) + number, (0x2002 << 112) + (number << 80)):
        assert judge_address(str(ipaddress.IPv6Address(wrapped)), PUBLIC) == verdict


@given(st.ip_addresses())
def test_what_is_allowed_is_global_by_the_standard_library_too(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """The two tables were made apart; ours may be stricter, never laxer. Wrappings are judged by what they
    wrap.
    """
    wraps = isinstance(ip, ipaddress.IPv6Address) and (ip.ipv4_mapped or ip.sixtofour or ip.teredo)
    if judge_address(str(ip), PUBLIC) is None and not wraps:
        assert ip.is_global
        assert not ip.is_multicast


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.1.1", "192.168.0.1", "100.64.0.1", "::1", "fd00::1", "::ffff:10.0.0.1"]
)
def test_allow_private_opens_the_operators_own_network(address: str) -> None:
    assert judge_address(address, AddressPolicy(allow_private=True)) is None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1",
        "224.0.0.1",
        "0.0.0.0",
        "::ffff:169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "fd00:ec2::254",
        "192.0.0.192",
        "64:ff9b:1::a9fe:a9fe",
    ],
)
def test_allow_private_does_not_open_metadata_or_multicast(address: str) -> None:
    assert judge_address(address, AddressPolicy(allow_private=True)) is not None


def test_a_network_can_be_allowed_by_name() -> None:
    policy = AddressPolicy.of(["10.1.0.0/16", "169.254.169.254/32"])
    assert judge_address("10.1.2.3", policy) is None
    assert judge_address("::ffff:10.1.2.3", policy) is None
    assert judge_address("169.254.169.254", policy) is None
    assert judge_address("10.2.0.1", policy) == "private"


def test_localhost_stands_for_both_its_addresses() -> None:
    policy = AddressPolicy.of(["LocalHost"])
    verdicts = [judge_address(address, policy) for address in ("127.0.0.1", "::1", "127.0.0.2")]
    assert verdicts == [None, None, "loopback"]


def test_a_malformed_network_is_the_operators_error() -> None:
    with pytest.raises(UserError, match=r"10\.1\.0\.0/99"):
        AddressPolicy.of(["10.1.0.0/99"])


class TestHostMap:
    def test_the_first_pattern_that_matches_wins(self) -> None:
        hosts = HostMap.parse(["www.a.test=10.0.0.1:81", "*.test=127.0.0.1:8080", "*=[::1]:9000"])
        assert hosts.find("www.a.test") == ("10.0.0.1", 81)
        assert hosts.find("b.test") == ("127.0.0.1", 8080)
        assert hosts.find("example.org") == ("::1", 9000)

    def test_a_pattern_covers_nothing_else(self) -> None:
        hosts = HostMap.parse(["*.test=127.0.0.1:8080"])
        assert hosts.find("test") is None
        assert hosts.find("www.test.example.org") is None

    def test_a_target_is_marked_as_the_operators(self) -> None:
        found = HostMap.parse(["a=127.0.0.1:1"]).find("a")
        assert found is not None
        assert isinstance(found[0], OperatorAddress)

    @pytest.mark.parametrize(
        "text", ["", "a", "a=", "a=127.0.0.1", "a=127.0.0.1:0", "a=127.0.0.1:65536", "=127.0.0.1:80", "a=localhost:80"]
    )
    def test_a_malformed_target_is_the_operators_error(self, text: str) -> None:
        with pytest.raises(UserError, match="PATTERN=ADDRESS:PORT"):
            HostMap.parse([text])
