"""The address ranges of the crawler as a JSON file that sites can fetch.

This module follows draft-illyes-webbotauth-jafar-00 (21 April 2026), which extends the format that large crawlers use
(`googlebot.json` has the same `creationTime` and `prefixes`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Network, ip_network
from typing import Any

import msgspec


def address_ranges(networks: Sequence[str], service: str, now: float) -> dict[str, Any]:
    """Return the file for `networks` (CIDR or single addresses), from which the crawler `service` sends requests.
    `now`: when it is made, in seconds since 1970.

    `synctoken` changes only with the ranges, so that a reader need not compare them.
    """
    prefixes = [_prefix(network, service) for network in networks]
    return {
        "synctoken": hashlib.sha256(msgspec.json.encode(prefixes)).hexdigest()[:16],
        "creationTime": datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "prefixes": prefixes,
    }


def _prefix(network: str, service: str) -> dict[str, Any]:
    parsed = ip_network(network)
    name = "ipv4Prefix" if isinstance(parsed, IPv4Network) else "ipv6Prefix"
    return {name: str(parsed), "services": [service]}
