"""A web of one page of 2 KB without links, under all names below two public suffixes, over HTTP and HTTPS, on loopback.

nginx answers with 404 for robots.txt, and keeps connections. Names and certificates are those of `tests.bench.tlsweb`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.docweb import free_port, nginx
from tests.bench.politeness import PAGE
from tests.bench.tlsweb import SUFFIXES, write_certificates

CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
worker_rlimit_nofile 65536;
events {{ worker_connections 30000; }}
http {{
  log_format seen '$connection $uri';
  access_log {folder}/access.log seen buffer=64k flush=200ms;
  default_type text/html; keepalive_timeout 600; keepalive_requests 1000000; server_names_hash_bucket_size 128;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  root {folder};
  {servers}
}}
"""

SERVER = """
server {{
  listen 127.0.0.1:{listen}; server_name *.{suffix};
  ssl_certificate {folder}/{suffix}.pem; ssl_certificate_key {folder}/{suffix}.key;
  location = /robots.txt {{ return 404; }}
  location / {{ try_files /page.html =404; }}
}}
"""


@dataclass(frozen=True, slots=True)
class SmallPages:
    """A running web. `authorities`: a file with the system's certificates and that of the web's root."""

    port: int
    tls_port: int
    authorities: Path
    log: Path

    def host_map(self, tls: bool) -> list[str]:
        return [f"*.{suffix}=127.0.0.1:{self.tls_port if tls else self.port}" for suffix in SUFFIXES]


class Served:
    """Counts the pages in the log of a web, and the connections over which these and robots.txt were asked for."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at = self._pages = 0
        self._connections: set[bytes] = set()

    @property
    def connections(self) -> int:
        """How many there were when `pages` was called."""
        return len(self._connections)

    def pages(self) -> int:
        """Those that nginx has logged so far: all but those of the last 200 ms."""
        with self._log.open("rb") as log:
            log.seek(self._at)
            lines = log.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._at += sum(map(len, whole))
        self._pages += sum(not line.endswith(b" /robots.txt\n") for line in whole)
        self._connections.update(line.partition(b" ")[0] for line in whole)
        return self._pages


@contextmanager
def serve() -> Iterator[SmallPages]:
    """The web, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="smallpages-") as scratch:
        folder, port, tls_port = Path(scratch), free_port(), free_port()
        (folder / "page.html").write_text(PAGE)
        authorities = write_certificates(folder)
        first, *others = SUFFIXES
        listen = [(first, f"{port} backlog=4096"), (first, f"{tls_port} ssl backlog=4096")]
        for suffix in others:  # the backlog of a port is given once
            listen += [(suffix, f"{port}"), (suffix, f"{tls_port} ssl")]
        servers = "".join(SERVER.format(listen=words, suffix=suffix, folder=folder) for suffix, words in listen)
        with nginx(folder, CONFIGURATION.format(folder=folder, servers=servers), port):
            yield SmallPages(port, tls_port, authorities, folder / "access.log")
