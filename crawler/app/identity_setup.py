"""Loads the keys of `[identity]`: a replica gets the function that signs its requests, and the public keys that its archive
records. `crawler.identity.web_bot_auth` makes the signatures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crawler.errors import UserError
from crawler.identity.published import KEY_SET_FIELD
from crawler.settings.tables import IdentityTable

if TYPE_CHECKING:
    from crawler.fetch.request import Signer  # imports aiohttp, which commands that sign nothing do not need

UNSIGNED = (
    "the replicas of this crawl have signed their requests, but no [identity] is given here, so these will not be signed: "
    "to sign them, stop, and start again with settings that have [identity]"
)
"""What a command warns of that continues a crawl without the identity that it had."""


class Identity(msgspec.Struct, frozen=True):
    """`key_id`: thumbprint of the key that signs. `about`: fields for the warcinfo records of the archive."""

    key_id: str
    signer: Signer
    about: tuple[tuple[str, str], ...]


def identity_of(table: IdentityTable) -> Identity | None:
    """Return the identity that `table` describes, None if requests shall not be signed. Raises UserError if a key cannot be
    used."""
    if not table.keys:
        if table.directory:
            raise UserError(
                "identity.directory is set, but identity.keys names no key to sign with: `crawler identity init` makes one"
            )
        return None
    if not table.directory:
        raise UserError("identity.keys needs identity.directory, the https URL at which the keys are published")
    # These need optional packages.
    from crawler.identity.signing_keys import read_keys  # noqa: PLC0415
    from crawler.identity.web_bot_auth import RequestSigner, key_set  # noqa: PLC0415

    for path in table.keys:
        if not (path.is_absolute() or path.exists()):
            raise UserError(
                f"there is no key at {path} in {Path.cwd()}, where relative paths are looked up: "
                f"`crawler identity init {path}` makes one"
            )
    keys = read_keys(table.keys)
    signer = RequestSigner(keys[0], table.directory, table.lifetime)
    return Identity(keys[0].thumbprint, signer, ((KEY_SET_FIELD, key_set(keys).decode()),))
