"""Many small sites over HTTPS, each a domain of its own, on loopback: what a broad crawl meets.

Half of them have a chain of ECDSA keys and half one of RSA keys: a root, an intermediate and the certificate of the sites,
which is for all names under a public suffix. nginx answers under all names with a robots.txt and with the page of Debian's
documentation whose size is nearest to 30 KB.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from bench.docweb import available, nginx
from tests.ports import free_port

SUFFIXES = ("co.uk", "com.au")
"""Public suffixes, of whose names each is a domain of its own. The first has ECDSA keys, the second RSA keys."""

PAGE_BYTES = 30_000

CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
worker_rlimit_nofile 65536;
events {{ worker_connections 30000; }}
http {{
  log_format seen '$connection $host $status $uri';
  access_log {folder}/access.log seen buffer=64k flush=200ms;
  default_type text/html; keepalive_timeout 60; server_names_hash_bucket_size 128; sendfile on;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  {servers}
}}
"""

SERVER = """
server {{
  listen 127.0.0.1:{port} ssl{backlog}; server_name *.{suffix};
  ssl_certificate {folder}/{suffix}.pem; ssl_certificate_key {folder}/{suffix}.key;
  root {folder};
  location = /robots.txt {{ default_type text/plain; return 200 "User-agent: *\\nDisallow: /private/\\n"; }}
  location / {{ try_files /page.html =404; }}
}}
"""


@dataclass(frozen=True, slots=True)
class TlsWeb:
    """A running web. `authorities`: a file with the system's certificates and that of the web's root."""

    port: int
    authorities: Path
    log: Path

    @property
    def host_map(self) -> list[str]:
        return [f"*.{suffix}=127.0.0.1:{self.port}" for suffix in SUFFIXES]

    def connections_a_site(self) -> float:
        """How many connections a site has been asked over, on average."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return len({line[0] for line in lines}) / len({line[1] for line in lines})


def domain(number: int) -> str:
    """The name of a site."""
    return f"d{number:06}.{SUFFIXES[number % 2]}"


@contextmanager
def serve() -> Iterator[TlsWeb]:
    """The web, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="tlsweb-") as scratch:
        folder, port = Path(scratch), free_port()
        (folder / "page.html").write_bytes(home_page().read_bytes())
        authorities = write_certificates(folder)
        backlogs = (" backlog=4096", "")  # of the port, given once
        servers = "".join(
            SERVER.format(port=port, backlog=backlog, suffix=suffix, folder=folder)
            for suffix, backlog in zip(SUFFIXES, backlogs, strict=True)
        )
        with nginx(folder, CONFIGURATION.format(folder=folder, servers=servers), port):
            yield TlsWeb(port, authorities, folder / "access.log")


def write_certificates(folder: Path, names: Iterable[str] = ()) -> Path:
    """Write `SUFFIX.pem` and `SUFFIX.key` of each suffix into `folder`, and of each of `names`, which the wildcards do not
    cover. Returns a file with the system's authorities and the root of these."""
    root = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authorities, system = folder / "authorities.pem", ssl.get_default_verify_paths().cafile
    authorities.write_bytes((Path(system).read_bytes() if system else b"") + root.cert_pem.bytes())
    kinds = dict(zip(SUFFIXES, (trustme.KeyType.ECDSA, trustme.KeyType.RSA), strict=True))
    parents = {suffix: root.create_child_ca(key_type=kind) for suffix, kind in kinds.items()}
    for name in (*(f"*.{suffix}" for suffix in SUFFIXES), *names):
        suffix = next(suffix for suffix in SUFFIXES if name.endswith(suffix))
        site = parents[suffix].issue_cert(name, key_type=kinds[suffix])
        file = name.removeprefix("*.")
        site.private_key_pem.write_to_path(folder / f"{file}.key")
        for part in site.cert_chain_pems:
            part.write_to_path(folder / f"{file}.pem", append=True)
    return authorities


def home_page() -> Path:
    """The page of the installed documentation whose size is nearest to `PAGE_BYTES`."""
    pages = [path for folder in available().values() for path in folder.rglob("*.html")]
    if not pages:
        raise SystemExit("needs documentation packages; see the header of bench/docweb.py")
    return min(pages, key=lambda path: abs(path.stat().st_size - PAGE_BYTES))
