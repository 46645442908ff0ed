"""A web of real documentation pages: Debian's html packages, served by nginx on loopback at many addresses.

Each copy of a package has a name, `PACKAGE-NN.test` at 127.0.0.1, and an address of its own, 127.0.1.N, at one port:
crawlers that can be told where a name leads use the names; the addresses need no DNS, no proxy and no patch, so they are
the same for every crawler, and have a robots.txt that denies the sources of the pages. A crawl of n copies has n times
the pages, with the true sizes, links and markup of people's pages. The server's own log says which pages were fetched.
Needs nginx and some of the packages in PACKAGES (`apt-get install nginx-light python3.11-doc postgresql-doc-15
python-django-doc`).
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from tests.ports import free_port

PACKAGES = {
    "python": Path("/usr/share/doc/python3.11/html"),
    "postgresql": Path("/usr/share/doc/postgresql-doc-15/html"),
    "django": Path("/usr/share/doc/python-django-doc/html"),
}

API_PACKAGES = {
    "java": Path("/usr/share/doc/openjdk-17-doc/api"),
    "rust": Path("/usr/share/doc/rust-doc/html"),
    "boost": Path("/usr/share/doc/libboost1.74-doc/doc/html"),
}
"""References made by javadoc, rustdoc and BoostBook (`apt-get install openjdk-17-doc rust-doc libboost1.74-doc`)."""

MANUAL_PACKAGES = {
    "sqlite": Path("/usr/share/doc/sqlite3"),
    "sqlalchemy": Path("/usr/share/doc/python-sqlalchemy-doc/html"),
    "git": Path("/usr/share/doc/git-doc"),
    "node": Path("/usr/share/doc/nodejs/api"),
    "glib": Path("/usr/share/gtk-doc/html/glib"),
    "gio": Path("/usr/share/gtk-doc/html/gio"),
}
"""Manuals, each made in another way except for those of GLib (`apt-get install sqlite3-doc python-sqlalchemy-doc git-doc
nodejs-doc libglib2.0-doc`)."""

CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
worker_rlimit_nofile 65536;
events {{ worker_connections 30000; }}
http {{
  log_format seen '$status $sent_http_content_type $server_addr $host $request_uri';
  access_log {folder}/access.log seen buffer=64k flush=200ms;
  types {{ text/html html; text/css css; application/javascript js; image/svg+xml svg; }} default_type text/plain;
  sendfile on; keepalive_requests 1000000; keepalive_timeout 600;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  {certificate}
  {servers}
}}
"""

SERVER = """
server {{ listen 127.0.0.1:{port}{ssl}; server_name {name}; root {path}; index index.html; }}
server {{
  listen {address}:{port}{ssl}; root {path}; index index.html;
  location = /robots.txt {{ return 200 "User-agent: *\\nDisallow: /_sources/\\n"; }}
}}
"""

FLUSH_S = 0.3
"""The log is complete so long after the last response."""


@dataclass(frozen=True, slots=True)
class DocWeb:
    """A running web: `names` to crawl from their roots at 127.0.0.1:`port`, or the `addresses` at the same port."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    port: int
    tls: bool
    log: Path = field(repr=False)

    @property
    def seeds(self) -> list[str]:
        return [f"{self.scheme}://{name}/index.html" for name in self.names]

    @property
    def address_seeds(self) -> list[str]:
        """The roots by address, the packages taking turns."""
        return [f"{self.scheme}://{address}:{self.port}/index.html" for address in self.addresses]

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def host_map(self) -> list[str]:
        return [f"*.test=127.0.0.1:{self.port}"]

    def fetched(self) -> Fetched:
        """What was asked for since the last call."""
        time.sleep(FLUSH_S)
        lines = self.log.read_text().splitlines()
        self.log.write_text("")
        pages: Counter[str] = Counter()
        for line in lines:
            status, media, address, host, target = line.split(" ", 4)
            if status == "200" and media == "text/html":
                pages[f"{address} {host} {target}"] += 1
        return Fetched(len(pages), pages.total() - len(pages), len(lines))


@dataclass(frozen=True, slots=True)
class Fetched:
    """Different HTML pages served, repeated requests for them, and requests of all kinds."""

    pages: int
    repeats: int
    requests: int


def available(packages: Mapping[str, Path] = PACKAGES) -> dict[str, Path]:
    """Those of `packages` that are installed here."""
    return {name: path for name, path in packages.items() if path.is_dir()}


@contextmanager
def serve(copies: int, tls: bool = False, wanted: Mapping[str, Path] = PACKAGES) -> Iterator[DocWeb]:
    """Serve those of the packages `wanted` that are installed, each in `copies` copies, until the block ends; `tls`: over
    HTTPS, with a certificate of an authority that nobody knows."""
    packages = available(wanted)
    if not packages or shutil.which("nginx") is None:
        raise SystemExit("needs nginx and documentation packages; see the header of bench/docweb.py")
    sites = [(f"{package}-{number:02}.test", path) for number in range(copies) for package, path in packages.items()]
    addresses = tuple(f"127.0.1.{number}" for number in range(1, len(sites) + 1))
    with tempfile.TemporaryDirectory(prefix="docweb-") as scratch:
        folder, port = Path(scratch), free_port()
        servers = [
            SERVER.format(port=port, ssl=" ssl" if tls else "", name=name, address=address, path=path)
            for address, (name, path) in zip(addresses, sites, strict=True)
        ]
        certificate = _certificate(folder, [*addresses, *(name for name, _ in sites)]) if tls else ""
        text = CONFIGURATION.format(folder=folder, servers="".join(servers), certificate=certificate)
        with nginx(folder, text, port):
            yield DocWeb(tuple(name for name, _ in sites), addresses, port, tls, folder / "access.log")


@contextmanager
def nginx(folder: Path, configuration: str, port: int) -> Iterator[int]:
    """nginx with `configuration` and its files in `folder`, until the block ends; its process id."""
    (folder / "nginx.conf").write_text(configuration)
    process = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    try:
        _wait_for(port)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _certificate(folder: Path, names: list[str]) -> str:
    certificate = trustme.CA().issue_cert(*names)
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for part in certificate.cert_chain_pems:
        part.write_to_path(folder / "cert.pem", append=True)
    return f"ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;"


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit(f"nginx did not answer at port {port}")
