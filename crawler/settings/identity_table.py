"""The identity of the crawler, `[identity]`. Like the settings of a replica, it is never read from Redis: whoever can write
there must not choose the keys and the name with which a machine signs."""

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, ClassVar
from unicodedata import category

from msgspec import Meta

from crawler.errors import UserError
from crawler.identity.published import LONGEST_VALIDITY_S, is_https_url
from crawler.settings.table import Table


def _check_https(url: str) -> None:
    if url and not is_https_url(url):
        raise UserError(
            f"{url!r} is not an https URL that others can fetch, such as https://crawler.example.com/keys.json"
        )


def _check_networks(networks: tuple[str, ...]) -> None:
    for network in networks:
        try:
            ip_network(network)
        except ValueError as error:
            raise UserError(f"{error}: write a network such as 192.0.2.0/28 or 2001:db8::/64") from error


def _check_printable(text: str) -> None:
    if any(category(sign) in ("Cc", "Cs") and sign not in "\t\n" for sign in text):
        raise UserError(f"{text!r} has control characters, which a page cannot have: remove them")


class IdentityTable(Table, frozen=True, kw_only=True):
    """How sites can check who sends the requests (Web Bot Auth), and what the crawler tells about itself."""

    restart: ClassVar[str] = "each process reads it when it starts"

    keys: Annotated[
        tuple[Path, ...],
        "PEM files with Ed25519 keys; relative paths are looked up in the current folder. The first one signs every "
        "request; all are in the key directory. To change the key, publish the new one in second place first. "
        "Empty: requests are not signed.",
    ] = ()
    directory: Annotated[
        str,
        Meta(extra={"check": _check_https}),
        "URL at which the key directory is published, sent with every request: https, usually with the path "
        "`/.well-known/http-message-signatures-directory`.",
    ] = ""
    lifetime: Annotated[
        int,
        Meta(ge=10, le=LONGEST_VALIDITY_S),
        "Seconds for which the signature of a request is valid. Lower: less time to misuse one that was "
        "intercepted; higher: sites whose clocks are wrong accept it.",
    ] = 60
    operator: Annotated[
        str, Meta(extra={"check": _check_printable}), "Who runs the crawler, for `crawler identity page`."
    ] = ""
    purpose: Annotated[
        str,
        Meta(extra={"check": _check_printable}),
        "Why it crawls and what happens to the pages, for `crawler identity page`.",
    ] = ""
    complaints: Annotated[
        str,
        Meta(extra={"check": _check_printable}),
        "Email address, or URL of a form, at which owners of sites can complain, for `crawler identity page`. "
        "Empty: `fetch.contact`.",
    ] = ""
    addresses: Annotated[
        tuple[str, ...],
        Meta(extra={"check": _check_networks}),
        "Networks from which the requests come, such as `192.0.2.0/28`, for `crawler identity page` and "
        "`crawler identity addresses`.",
    ] = ()
    addresses_url: Annotated[
        str,
        Meta(extra={"check": _check_https}),
        "URL at which the output of `crawler identity addresses` is published, for the page.",
    ] = ""
