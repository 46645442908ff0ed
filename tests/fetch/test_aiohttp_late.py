"""The system's certificates are read when a connection over TLS needs them, and not when a process starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

CONTEXTS = """
import gc, ssl
import crawler.app.replica
read = [one.cert_store_stats()["x509_ca"] for one in gc.get_objects() if isinstance(one, ssl.SSLContext)]
assert len(read) == 2 and not any(read), read
assert ssl.create_default_context().cert_store_stats()["x509_ca"]
"""

REQUEST = """
import asyncio, ssl, sys
from crawler.fetch.aiohttp_late import aiohttp

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("site.pem")
    async def answer(reader, writer):
        await reader.readuntil(b"\\r\\n\\r\\n")
        writer.write(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
        writer.close()
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server, aiohttp.ClientSession() as session:
        try:
            async with session.get(f"https://localhost:{server.sockets[0].getsockname()[1]}/") as response:
                print(response.status)
        except aiohttp.ClientConnectorCertificateError as error:
            print(error.certificate_error.verify_message)

asyncio.run(main())
"""


def run(program: str, folder: Path, **environment: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_imports_of_a_replica_read_no_certificate(tmp_path: Path) -> None:
    run(CONTEXTS, tmp_path)


@pytest.mark.parametrize("known", [True, False])
def test_what_the_system_trusts_is_trusted_and_nothing_else(tmp_path: Path, known: bool) -> None:
    """`SSL_CERT_FILE` names the certificates of the system."""
    authority, other = trustme.CA(), trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "site.pem")
    (authority if known else other).cert_pem.write_to_path(tmp_path / "system.pem")
    answered = run(REQUEST, tmp_path, SSL_CERT_FILE=str(tmp_path / "system.pem"))
    assert answered == ("204" if known else "unable to get local issuer certificate")
