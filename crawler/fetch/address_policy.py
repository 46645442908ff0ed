"""Which addresses and ports a crawl may connect to: a pure judgement of the address itself.

A crawler does what strangers' pages tell it, from inside the operator's network. So the rule is positive:
only a globally routable unicast address may be connected to, unless the operator allows more. A host name
proves nothing, and neither does an earlier look-up; what counts is the address that the socket is about to be
connected to.

Tables: IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890 and its updates). The standard
library's `is_global` is not used, because its verdicts differ between Python releases.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

import msgspec

from crawler.errors import UserError

# The ports that web pages are served on in public. A link to another port is as a rule an attempt to make the
# crawler speak to something that is not a web server.
WEB_PORTS: frozenset[int] = frozenset({80, 443, 8000, 8008, 8080, 8081, 8088, 8443, 8888})

# The reasons that `allow_private` waives. Link-local is not among them: it holds the cloud metadata services,
# which hand out credentials, so it takes a CIDR in `allow`.
PRIVATE_REASONS: frozenset[str] = frozenset({"loopback", "private", "shared", "unique_local"})


def _v4(table: Iterable[tuple[str, str]]) -> tuple[tuple[int, int, str], ...]:
    """(network, mask, reason) as integers: one `and` and one comparison a row."""
    networks = ((IPv4Network(cidr), reason) for cidr, reason in table)
    return tuple((int(net.network_address), int(net.netmask), reason) for net, reason in networks)


_V4_FORBIDDEN = _v4(
    (
        ("0.0.0.0/8", "unspecified"),  # RFC 791 3.2; Linux connects 0.0.0.0 to itself
        ("10.0.0.0/8", "private"),  # RFC 1918
        ("100.64.0.0/10", "shared"),  # RFC 6598, carrier-grade NAT; some clouds' metadata too
        ("127.0.0.0/8", "loopback"),  # RFC 1122 3.2.1.3
        ("169.254.0.0/16", "link_local"),  # RFC 3927; cloud metadata at 169.254.169.254
        ("172.16.0.0/12", "private"),  # RFC 1918
        ("192.0.0.0/24", "reserved"),  # RFC 6890 2.1, protocol assignments
        ("192.0.2.0/24", "documentation"),  # RFC 5737
        ("192.31.196.0/24", "reserved"),  # RFC 7535, AS112
        ("192.52.193.0/24", "reserved"),  # RFC 7450, AMT
        ("192.88.99.0/24", "reserved"),  # RFC 7526, 6to4 relays, deprecated
        ("192.168.0.0/16", "private"),  # RFC 1918
        ("192.175.48.0/24", "reserved"),  # RFC 7534, AS112
        ("198.18.0.0/15", "benchmarking"),  # RFC 2544
        ("198.51.100.0/24", "documentation"),  # RFC 5737
        ("203.0.113.0/24", "documentation"),  # RFC 5737
        ("224.0.0.0/4", "multicast"),  # RFC 5771
        ("240.0.0.0/4", "reserved"),  # RFC 1112 4, and limited broadcast
    )
)

_GLOBAL_UNICAST = IPv6Network("2000::/3")  # RFC 4291 2.4: the one block that IANA allocates to the public
_V6_FORBIDDEN: tuple[tuple[IPv6Network, str], ...] = (
    (IPv6Network("::/128"), "unspecified"),
    (IPv6Network("::1/128"), "loopback"),
    (IPv6Network("::/96"), "reserved"),  # RFC 4291 2.5.5.1, IPv4-compatible, deprecated
    (IPv6Network("64:ff9b:1::/48"), "private"),  # RFC 8215, NAT64 for local use
    (IPv6Network("100::/64"), "reserved"),  # RFC 6666, discard only
    (IPv6Network("2001:2::/48"), "benchmarking"),  # RFC 5180
    (IPv6Network("2001:db8::/32"), "documentation"),  # RFC 3849
    (IPv6Network("2001::/23"), "reserved"),  # RFC 2928, protocol assignments (Teredo is judged before)
    (IPv6Network("3fff::/20"), "documentation"),  # RFC 9637
    (IPv6Network("5f00::/16"), "reserved"),  # RFC 9602, segment routing
    (IPv6Network("fc00::/7"), "unique_local"),  # RFC 4193; some clouds' metadata at fd00:ec2::254
    (IPv6Network("fe80::/10"), "link_local"),  # RFC 4291 2.5.6
    (IPv6Network("fec0::/10"), "private"),  # RFC 3879, site-local, deprecated
    (IPv6Network("ff00::/8"), "multicast"),  # RFC 4291 2.7
)
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052 2.1: the IPv4 address is the last 32 bits


class OperatorAddress(str):
    """An address that the operator named for the very host in question.

    The host map hands it to the connector in place of a plain string, so the right to connect travels with
    the address and cannot be borrowed by another host whose DNS answers with the same one.
    """

    __slots__ = ()


class AddressPolicy(msgspec.Struct, frozen=True):
    """What the operator allows beyond the public Internet.

    `allow` are networks whose addresses are always allowed. `allow_private` allows loopback, private, shared
    and unique-local addresses, but neither link-local nor multicast nor reserved ones. `ports` are those a
    URL may name.
    """

    allow: tuple[IPv4Network | IPv6Network, ...] = ()
    allow_private: bool = False
    ports: frozenset[int] = WEB_PORTS

    @classmethod
    def of(
        cls, allow: Iterable[str] = (), allow_private: bool = False, ports: Iterable[int] = WEB_PORTS
    ) -> AddressPolicy:
        """A policy from texts. Raises UserError for what is not a CIDR network."""
        try:
            networks = tuple(ip_network(cidr) for cidr in allow)
        except ValueError as error:
            raise UserError(f"allowed network: {error}; expected a network such as 10.1.0.0/16") from error
        return cls(networks, allow_private, frozenset(ports))


def judge_address(address: str, policy: AddressPolicy) -> str | None:
    """Why `address` must not be connected to, as one word, or None when it may.

    `address` is an IPv4 or IPv6 address in text form as the resolver or the URL gave it. An IPv6 address that
    carries an IPv4 address (mapped, NAT64, 6to4, Teredo) is judged by that one, because that is where packets
    go.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return "not_an_address"
    if any(ip in network for network in policy.allow):
        return None
    reason = _reason_v4(ip) if isinstance(ip, IPv4Address) else _reason_v6(ip, policy)
    if policy.allow_private and reason in PRIVATE_REASONS:
        return None
    return reason


def _reason_v4(ip: IPv4Address) -> str | None:
    number = int(ip)
    for network, mask, reason in _V4_FORBIDDEN:
        if number & mask == network:
            return reason
    return None


def _reason_v6(ip: IPv6Address, policy: AddressPolicy) -> str | None:
    if ip.scope_id is not None:
        return "link_local"  # RFC 4007 6: a zone has a meaning on this machine only
    carried = _carried_v4(ip)
    if carried:
        return next((why for v4 in carried if (why := judge_address(str(v4), policy))), None)
    for network, reason in _V6_FORBIDDEN:
        if ip in network:
            return reason
    return None if ip in _GLOBAL_UNICAST else "reserved"


def _carried_v4(ip: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses inside an IPv6 address that is only a wrapping of them."""
    if ip.ipv4_mapped is not None:  # RFC 4291 2.5.5.2
        return (ip.ipv4_mapped,)
    if ip in _NAT64:
        return (IPv4Address(int(ip) & 0xFFFFFFFF),)
    if ip.sixtofour is not None:  # RFC 3056 2
        return (ip.sixtofour,)
    return ip.teredo or ()  # RFC 4380 4: server and client


class HostMap(msgspec.Struct, frozen=True):
    """Where the operator sends hosts instead of asking the DNS: the first matching pattern wins."""

    targets: tuple[tuple[str, OperatorAddress, int], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> HostMap:
        """From texts `PATTERN=ADDRESS:PORT`, the pattern a shell glob such as `*.test`, an IPv6 address in
        brackets.

        Raises UserError.
        """
        return cls(tuple(_parse_target(text) for text in texts))

    def find(self, host: str) -> tuple[OperatorAddress, int] | None:
        """The address and port for `host` (lower case, no trailing dot), or None when the DNS is to be
        asked.
        """
        for pattern, address, port in self.targets:
            if fnmatchcase(host, pattern):
                return address, port
        return None


def _parse_target(text: str) -> tuple[str, OperatorAddress, int]:
    pattern, _, target = text.partition("=")
    address, _, port = target.rpartition(":")
    try:
        ip = ip_address(address.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        number = 0
    if not pattern or not 0 < number < 65536:
        raise UserError(f"host map {text!r}: expected PATTERN=ADDRESS:PORT, such as *.test=127.0.0.1:8080")
    return pattern.lower().rstrip("."), OperatorAddress(ip), number
