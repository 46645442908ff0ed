"""`crawler identity`: keys, and what has to be published with them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Group
from rich.text import Text

from crawler.cli.options import FILE, FOLDER, Whole, as_json, given_settings, group, settings_file
from crawler.cli.text import emit
from crawler.errors import UserError
from crawler.settings.load import Settings
from crawler.settings.tables import IdentityTable

if TYPE_CHECKING:
    from crawler.identity.keys import SigningKey

EXAMPLE = "https://crawler.example.com/.well-known/http-message-signatures-directory"


@group()
def identity() -> None:
    """Make and publish the keys with which requests are signed (Web Bot Auth)."""


@identity.command()
@click.argument("file", type=FILE, default="identity.pem", help="Where to write the key.")
@as_json
def init(file: Path, as_json: bool) -> None:
    """Make an Ed25519 key, and print its thumbprint and what to publish. A file that exists is not overwritten.

    To replace a key, make a second one and name it after the first in `identity.keys`; when the directory with both is
    published, swap them.

    Examples:

        crawler identity init
        crawler identity init /etc/peercrawl/key-2027.pem
    """
    from crawler.identity.keys import make_key  # noqa: PLC0415 - needs an optional package
    from crawler.identity.web_bot_auth import key_set  # noqa: PLC0415

    key = make_key(file)
    published = msgspec.json.decode(key_set([key]))
    lines = [
        Text(f"{file} written; only you can read it. Whoever has it can send requests in your name."),
        Text.assemble("thumbprint: ", (key.thumbprint, "bold")),
        Text(f'\nAdd to the settings of each replica:\n\n[identity]\nkeys = ["{file}"]\ndirectory = "{EXAMPLE}"\n'),
        Text("Publish at the URL of the directory, which is on a host of your own:\n"),
        Text(key_set([key]).decode()),
        Text("\n`crawler identity directory` writes it for a web server, with the header fields that sign it."),
    ]
    emit({"file": str(file), "thumbprint": key.thumbprint, "directory": published}, as_json, Group(*lines), wraps=False)


@identity.command()
@click.argument("folder", type=FOLDER, default=".", help="Folder for the two files.")
@click.option("--days", type=Whole(1, 365), default=30, help="Days for which the signatures are valid.")
@settings_file
@as_json
def directory(folder: Path, days: int, as_json: bool) -> None:
    """Write the key directory for a web server that serves files, and the header fields to send with it.

    The fields have a signature per key, as the draft recommends. Repeat the command before they expire, and after each
    change of the keys.

    Example:

        crawler identity directory /srv/www/keys --settings crawler.toml
    """
    from crawler.identity.web_bot_auth import signed_directory  # noqa: PLC0415 - needs an optional package

    table, keys = _signing(given_settings())
    signed = signed_directory(keys, table.directory, time.time(), days * 86_400)
    body, headers = folder / "http-message-signatures-directory", folder / "http-message-signatures-directory.headers"
    lines = "".join(f"{name}: {value}\n" for name, value in signed.fields)
    _write(body, signed.body)
    _write(headers, lines.encode())
    until = datetime.fromtimestamp(time.time() + days * 86_400, UTC).date()
    said = Text(
        f"{body} written, to be served at {table.directory} with the header fields in {headers}, valid until {until}"
    )
    emit({"file": str(body), "headers": str(headers), "valid_until": str(until)}, as_json, said, wraps=False)


def _signing(settings: Settings) -> tuple[IdentityTable, list[SigningKey]]:
    from crawler.identity.keys import read_keys  # noqa: PLC0415 - needs an optional package

    table = settings.identity
    for name, value in (("keys", table.keys), ("directory", table.directory)):
        if not value:
            raise UserError(
                f"set identity.{name} in the settings (--settings FILE): `crawler identity init` shows what to write"
            )
    return table, read_keys(table.keys)


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; give another name") from error
