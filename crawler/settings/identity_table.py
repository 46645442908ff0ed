"""The identity of the crawler, `[identity]`. Like the settings of a replica, it is never read from Redis: whoever can write
there must not choose the keys and the name with which a machine signs."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from crawler.identity.published import is_https_url
from crawler.settings.table import Table

LONGEST_LIFETIME_S = 86_400


class IdentityTable(Table):
    """How sites can check who sends the requests (Web Bot Auth), and what the crawler tells about itself."""

    restart: ClassVar[str] = "each process reads it when it starts"

    keys: tuple[Path, ...] = Field(
        (),
        description="PEM files with Ed25519 keys. The first one signs every request; all are in the key directory. To "
        "change the key, publish the new one in second place first. Empty: requests are not signed.",
    )
    directory: str = Field(
        "",
        description="URL at which the key directory is published, sent with every request: https, usually with the path "
        "`/.well-known/http-message-signatures-directory`.",
    )
    lifetime: Annotated[int, Field(ge=10, le=LONGEST_LIFETIME_S)] = Field(
        60,
        description="Seconds for which the signature of a request is valid. Lower: less time to misuse one that was "
        "intercepted; higher: sites whose clocks are wrong accept it.",
    )
    operator: str = Field("", description="Who runs the crawler, for `crawler identity page`.")
    purpose: str = Field("", description="Why it crawls and what happens to the pages, for `crawler identity page`.")
    complaints: str = Field(
        "",
        description="Email address, or URL of a form, at which owners of sites can complain, for `crawler identity page`. "
        "Empty: `fetch.contact`.",
    )
    addresses: tuple[str, ...] = Field(
        (),
        description="Networks from which the requests come, such as `192.0.2.0/28`, for `crawler identity page` and "
        "`crawler identity addresses`.",
    )
    addresses_url: str = Field(
        "", description="URL at which the output of `crawler identity addresses` is published, for the page."
    )

    @field_validator("directory", "addresses_url")
    @classmethod
    def _is_https(cls, url: str) -> str:
        if url and not is_https_url(url):
            raise ValueError(
                f"{url!r} is no https URL that others can fetch, such as https://crawler.example.com/keys.json"
            )
        return url

    @field_validator("addresses")
    @classmethod
    def _are_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            try:
                ip_network(network)
            except ValueError as error:
                raise ValueError(f"{error}: write a network such as 192.0.2.0/28 or 2001:db8::/64") from error
        return networks
