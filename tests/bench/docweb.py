"""A web of real documentation pages: Debian's html packages, served by nginx on loopback under many domain names.

Every name `PACKAGE-NN.test` serves the folder of a package, so a crawl of n copies has n times the pages, with the true
sizes, links and markup of people's pages. Needs nginx and some of the packages in PACKAGES (`apt-get install nginx-light
python3.11-doc postgresql-doc-15 python-django-doc`).
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {
    "python": Path("/usr/share/doc/python3.11/html"),
    "postgresql": Path("/usr/share/doc/postgresql-doc-15/html"),
    "django": Path("/usr/share/doc/python-django-doc/html"),
}

CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 2048; }}
http {{
  access_log off; types {{ text/html html; text/css css; application/javascript js; }} default_type text/plain;
  sendfile on; keepalive_requests 1000000; keepalive_timeout 600;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  {servers}
}}
"""

SERVER = "server {{ listen 127.0.0.1:{port}; server_name {names}; root {path}; index index.html; }}"


@dataclass(frozen=True, slots=True)
class DocWeb:
    """A running web: `names` to crawl from their roots, all at 127.0.0.1:`port`."""

    names: tuple[str, ...]
    port: int

    @property
    def seeds(self) -> list[str]:
        return [f"http://{name}/index.html" for name in self.names]

    @property
    def host_map(self) -> list[str]:
        return [f"*.test=127.0.0.1:{self.port}"]


def available() -> dict[str, Path]:
    """The packages that are installed here."""
    return {name: path for name, path in PACKAGES.items() if path.is_dir()}


@contextmanager
def serve(copies: int) -> Iterator[DocWeb]:
    """Serve each installed package under `copies` domain names until the block ends."""
    packages = available()
    if not packages or shutil.which("nginx") is None:
        raise SystemExit("needs nginx and documentation packages; see the header of tests/bench/docweb.py")
    names = {package: [f"{package}-{number:02}.test" for number in range(copies)] for package in packages}
    with tempfile.TemporaryDirectory(prefix="docweb-") as scratch:
        folder, port = Path(scratch), _free_port()
        servers = " ".join(
            SERVER.format(port=port, names=" ".join(names[package]), path=path) for package, path in packages.items()
        )
        (folder / "nginx.conf").write_text(CONFIGURATION.format(folder=folder, servers=servers))
        process = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf"), "-p", scratch])
        try:
            _wait_for(port)
            yield DocWeb(tuple(name for package in names.values() for name in package), port)
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit(f"nginx did not answer at port {port}")
