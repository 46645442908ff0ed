"""Many small sites over HTTPS, each a domain of its own, on loopback: what a broad crawl meets.

Half of them have a chain of ECDSA keys and half one of RSA keys: a root, an intermediate and the certificate of the sites,
which is for all names under a public suffix. nginx answers under all names with a robots.txt and with the page of Debian's
documentation whose size is nearest to 30 KB.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.bench.docweb import available, free_port, nginx

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

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
        (folder / "page.html").write_bytes(_page().read_bytes())
        authorities = write_certificates(folder)
        backlogs = (" backlog=4096", "")  # of the port, given once
        servers = "".join(
            SERVER.format(port=port, backlog=backlog, suffix=suffix, folder=folder)
            for suffix, backlog in zip(SUFFIXES, backlogs, strict=True)
        )
        with nginx(folder, CONFIGURATION.format(folder=folder, servers=servers), port):
            yield TlsWeb(port, authorities, folder / "access.log")


def write_certificates(folder: Path) -> Path:
    """Write `SUFFIX.pem` and `SUFFIX.key` of each suffix into `folder`. Returns a file with the system's authorities and
    the root of these."""
    authorities = folder / "authorities.pem"
    root_key = ec.generate_private_key(ec.SECP256R1())
    root = _certificate("Root", root_key, None, root_key, is_authority=True)
    authorities.write_bytes(_system_authorities() + _pem(root))
    for suffix, make in zip(SUFFIXES, (_ecdsa_key, _rsa_key), strict=True):
        _write_chain(folder, suffix, (make(), make()), (root, root_key))
    return authorities


def _page() -> Path:
    pages = [path for folder in available().values() for path in folder.rglob("*.html")]
    if not pages:
        raise SystemExit("needs documentation packages; see the header of tests/bench/docweb.py")
    return min(pages, key=lambda path: abs(path.stat().st_size - PAGE_BYTES))


def _system_authorities() -> bytes:
    path = ssl.get_default_verify_paths().cafile
    return Path(path).read_bytes() if path else b""


def _ecdsa_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def _rsa_key() -> Key:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _write_chain(folder: Path, suffix: str, keys: tuple[Key, Key], root: tuple[x509.Certificate, Key]) -> None:
    middle_key, key = keys
    middle = _certificate(f"Intermediate of {suffix}", middle_key, *root, is_authority=True)
    leaf = _certificate(f"*.{suffix}", key, middle, middle_key, is_authority=False)
    (folder / f"{suffix}.pem").write_bytes(_pem(leaf) + _pem(middle))
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / f"{suffix}.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def _certificate(
    name: str, key: Key, issuer: x509.Certificate | None, issuer_key: Key, *, is_authority: bool
) -> x509.Certificate:
    """A certificate for `key`, signed by `issuer`; None: by itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(of_issuer, critical=False)
    )
    if not is_authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
