"""Which addresses and ports a crawl may connect to: a pure judgement of the address itself.

A crawler follows links that strangers wrote, from inside the operator's network. So the rule is positive: it may connect
only to a globally routable unicast address, unless the operator allows more. A host name proves nothing, and neither does
an earlier look-up; what counts is the address that the socket is about to be connected to.

Sources: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890 and its updates), and the documentation of the
clouds. `is_global` of the standard library is not used, because its answers differ between Python releases.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from crawler.errors import UserError

WEB_PORTS: frozenset[int] = frozenset({80, 443, 8000, 8008, 8080, 8081, 8088, 8443, 8888})
"""The ports of public web pages. A link to another port usually tries to make the crawler talk to something that is not a
web server."""

PRIVATE_REASONS: frozenset[str] = frozenset({"loopback", "private", "shared", "unique_local"})
"""The reasons that `allow_private` waives. "cloud" and "link_local" are not among them: at these addresses clouds hand out
credentials, so the operator must name them in `allow`."""

_FORBIDDEN = tuple(
    (ip_network(network), reason)
    for network, reason in (  # the first that matches counts
        # Services of a cloud for its own machines. Some have formally public addresses, others are in a private range.
        ("168.63.129.16/32", "cloud"),  # Azure: wire server
        ("192.80.8.124/32", "cloud"),  # Equinix Metal: metadata
        ("161.26.0.0/16", "cloud"),  # IBM: infrastructure services
        ("166.8.0.0/14", "cloud"),  # IBM: service endpoints
        ("100.100.100.200/32", "cloud"),  # Alibaba: metadata
        ("fd00:100::100:200/128", "cloud"),  # Alibaba
        ("fd00:ec2::/32", "cloud"),  # AWS: metadata, credentials of pods, DNS, NTP
        ("fd20:ce::254/128", "cloud"),  # Google: metadata
        ("fd00:c1::a9fe:a9fe/128", "cloud"),  # Oracle: metadata
        ("fd00:42::42/128", "cloud"),  # Scaleway: metadata
        ("fd00:a9fe:a9fe::1/128", "cloud"),  # Akamai: metadata
        ("0.0.0.0/8", "unspecified"),  # RFC 791 3.2; Linux connects 0.0.0.0 to itself
        ("10.0.0.0/8", "private"),  # RFC 1918
        ("100.64.0.0/10", "shared"),  # RFC 6598, carrier-grade NAT
        ("127.0.0.0/8", "loopback"),  # RFC 1122 3.2.1.3
        ("169.254.0.0/16", "link_local"),  # RFC 3927; the metadata of most clouds is at 169.254.169.254
        ("172.16.0.0/12", "private"),  # RFC 1918
        ("192.0.0.0/24", "reserved"),  # RFC 6890 2.1, protocol assignments; Oracle metadata at 192.0.0.192
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
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("2001:2::/48", "benchmarking"),  # RFC 5180
        ("2001:db8::/32", "documentation"),  # RFC 3849
        ("2001::/23", "reserved"),  # RFC 2928, protocol assignments (Teredo is judged before)
        ("2620:4f:8000::/48", "reserved"),  # RFC 7534, AS112
        ("3fff::/20", "documentation"),  # RFC 9637
        ("fc00::/7", "unique_local"),  # RFC 4193
        ("fe80::/10", "link_local"),  # RFC 4291 2.5.6
        ("fec0::/10", "private"),  # RFC 3879, site-local, deprecated
        ("ff00::/8", "multicast"),  # RFC 4291 2.7
        # The rest outside 2000::/3, the block for global unicast (RFC 4291 2.4). Among others, IPv4-compatible addresses,
        # NAT64 for local use (RFC 8215), which may carry any IPv4 address, and segment routing (RFC 9602).
        ("::/3", "reserved"),
        ("4000::/2", "reserved"),
        ("8000::/1", "reserved"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052 2.1: the IPv4 address is the last 32 bits


_LOCALHOST = {"localhost": ("127.0.0.1", "::1")}


class OperatorAddress(str):
    """An address that the operator named for one host.

    The host map returns it in place of a plain string. So the right to connect belongs to the address object, and another
    host whose DNS answers with the same address does not get it.
    """

    __slots__ = ()


class AddressPolicy(msgspec.Struct, frozen=True):
    """What the operator allows beyond the public Internet.

    Addresses in the networks `allow` are always allowed. `allow_private` allows loopback, private, shared and unique-local
    addresses, but no addresses of cloud services, and neither link-local, multicast nor reserved ones. `ports` are those
    that a URL may name.
    """

    allow: tuple[IPv4Network | IPv6Network, ...] = ()
    allow_private: bool = False
    ports: frozenset[int] = WEB_PORTS

    @classmethod
    def of(
        cls, allow: Iterable[str] = (), allow_private: bool = False, ports: Iterable[int] = WEB_PORTS
    ) -> AddressPolicy:
        """Parse the networks `allow`; `localhost` stands for both its addresses. Raises UserError for one that is not in
        CIDR notation."""
        try:
            networks = tuple(ip_network(one) for name in allow for one in _LOCALHOST.get(name.lower(), (name,)))
        except ValueError as error:
            expected = "a network such as 10.1.0.0/16, the address of a host, or localhost"
            raise UserError(f"allowed network: {error}; expected {expected}") from error
        return cls(networks, allow_private, frozenset(ports))


def judge_address(address: str, policy: AddressPolicy) -> str | None:
    """Why `address` must not be connected to, as one word, or None if it may.

    `address` is an IPv4 or IPv6 address in text form, from the resolver or the URL. An IPv6 address that carries IPv4
    addresses (mapped, NAT64, 6to4, Teredo) is judged by those, because that is where packets go.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return "not_an_address"
    if any(ip in network for network in policy.allow):
        return None
    if isinstance(ip, IPv6Address):
        if ip.scope_id is not None:
            return "link_local"  # RFC 4007 6: a zone has a meaning on this machine only
        if carried := _carried_v4(ip):
            return next((why for v4 in carried if (why := judge_address(str(v4), policy))), None)
    reason = next((reason for network, reason in _FORBIDDEN if ip in network), None)
    return None if policy.allow_private and reason in PRIVATE_REASONS else reason


def _carried_v4(ip: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that `ip` carries."""
    if ip.ipv4_mapped is not None:  # RFC 4291 2.5.5.2
        return (ip.ipv4_mapped,)
    if ip in _NAT64:
        return (IPv4Address(int(ip) & 0xFFFFFFFF),)
    if ip.sixtofour is not None:  # RFC 3056 2
        return (ip.sixtofour,)
    return ip.teredo or ()  # RFC 4380 4: server and client


class HostMap(msgspec.Struct, frozen=True):
    """Addresses that the operator gives to hosts, instead of the DNS. The first matching pattern counts."""

    targets: tuple[tuple[str, OperatorAddress, int], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> HostMap:
        """Parse texts of the form `PATTERN=ADDRESS:PORT`. The pattern is a shell glob such as `*.test`; an IPv6 address is
        in brackets. Raises UserError.
        """
        return cls(tuple(_parse_target(text) for text in texts))

    def find(self, host: str) -> tuple[OperatorAddress, int] | None:
        """The address and port for `host` (lower case, no trailing dot), or None if no pattern matches."""
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
