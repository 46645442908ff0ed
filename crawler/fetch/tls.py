"""TLS where the defaults fail: the reason of a failed handshake in words, contexts for weak servers, and intermediate
certificates that a server does not send.

A server should send its certificate with all that lead to a root. Many send only their own. Browsers fetch the others from
where each certificate says (RFC 5280 4.2.2.1, caIssuers), so nobody notices there.

What is fetched comes over plain http from anybody, and only helps to build a chain: it is never trusted by itself. OpenSSL
trusts what is self-signed, and with `VERIFY_X509_PARTIAL_CHAIN` (a default of Python 3.13) every certificate that it was
given. So that flag is off here, and certificates of the same issuer and subject are not used.

If this machine has no roots at all, as with an empty certificate store, no certificate can be verified, and no site is at
fault.
"""

from __future__ import annotations

import os
import re
import ssl
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from crawler.errors import FetchFailed
from crawler.fetch.response import describe

MAX_CERTIFICATE = 64 * 1024
"""Bytes of a fetched certificate. Usual ones have 2 KiB."""

MAX_ISSUERS = 3
"""Certificates that are fetched for one server. Chains with more do not occur."""

MAX_COMPLETED, MAX_CONTEXTS = 1_000, 32
"""Servers that need fetched certificates, or for which none were found, of which a replica knows; and the authorities of
these certificates. Each takes a megabyte."""

_VERIFY_ERRORS = {
    9: "the certificate is not valid yet",
    10: "the certificate has expired",
    18: "the certificate is self-signed",
    19: "the certificate leads to an authority that is not trusted",
    2: "the certificate leads to an authority that is not trusted",
    20: "an intermediate certificate is missing, or its authority is not trusted",
    21: "an intermediate certificate is missing, or its authority is not trusted",
    62: "the certificate is for another name",
    64: "the certificate is for another address",
    66: "the key of the certificate is too small",
    67: "the key of an intermediate certificate is too small",
    68: "a certificate is signed with a weak algorithm",
}
"""By OpenSSL's numbers (x509_vfy.h)."""

_MISSING = (20, 21)
_UNTRUSTED = (2, 18, 19, *_MISSING)

_REASONS = {
    "DH_KEY_TOO_SMALL": "the server's key is too small",
    "EE_KEY_TOO_SMALL": "the key of the certificate is too small",
    "BAD_ECPOINT": "the server's key is malformed",
    "UNSUPPORTED_PROTOCOL": "the server has only old versions of TLS",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the server has only old versions of TLS",
    "UNSAFE_LEGACY_RENEGOTIATION_DISABLED": "the server cannot renegotiate safely",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the server accepts none of our cipher suites",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS",
    "TLSV1_UNRECOGNIZED_NAME": "the server does not know the name",
    "LEGACY_SIGALG_DISALLOWED_OR_UNSUPPORTED": "the server signs with a weak algorithm",
    "WRONG_SIGNATURE_TYPE": "the server signs with a weak algorithm",
}


def cause_of(error: BaseException) -> BaseException:
    """The error of `ssl` in what aiohttp raised, or `error` itself."""
    return getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error


def tls_in_words(error: BaseException) -> str:
    """Why a connection failed."""
    cause = cause_of(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _VERIFY_ERRORS.get(cause.verify_code) or cause.verify_message
    if isinstance(cause, ssl.SSLError) and cause.reason:
        return _REASONS.get(cause.reason) or cause.reason.lower().replace("_", " ")
    return describe(error)


@cache
def system_context() -> ssl.SSLContext:
    """The context of this process with the roots of the system."""
    context = _with_roots_of_system()
    context.set_alpn_protocols(["http/1.1"])
    return context


def lacks_roots(error: BaseException) -> bool:
    """Whether a connection with `system_context` failed with `error` because the system has no roots. If so, its store is
    read again, so that the next connection succeeds if it has been mended."""
    cause = cause_of(error.__cause__ or error if isinstance(error, FetchFailed) else error)
    if not isinstance(cause, ssl.SSLCertVerificationError) or cause.verify_code not in _UNTRUSTED:
        return False
    context = system_context()
    lacks = not _has_roots(context)
    if lacks:
        context.load_default_certs()
    return lacks


def store_in_words() -> str:
    """Where the certificate store should be, and what helps if it has no roots."""
    paths = ssl.get_default_verify_paths()
    places = f"{os.environ.get(paths.openssl_cafile_env, paths.openssl_cafile)} and {_folder_of_roots()}"
    return f"no trusted certificate authorities in {places}; install ca-certificates, or correct SSL_CERT_FILE"


def _with_roots_of_system() -> ssl.SSLContext:
    """A new context that has read all roots of the system.

    With `ssl.create_default_context` alone, OpenSSL looks for the issuer of an intermediate certificate in the folder of
    roots, and lists the folder for it (`X509_LOOKUP_store`): an eighth of the time of each handshake."""
    file = ssl.get_default_verify_paths().cafile
    try:
        read = Path(file).read_bytes() if file else b""
        context = ssl.create_default_context(cafile=file) if file else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for path in _files_in_folder():
            if (root := path.read_bytes().strip()) not in read:
                context.load_verify_locations(cafile=path)
                read += root
    except (OSError, ssl.SSLError):
        return ssl.create_default_context()  # it leaves out what cannot be read
    return context if context.cert_store_stats()["x509_ca"] else ssl.create_default_context()


def _has_roots(context: ssl.SSLContext) -> bool:
    """Whether `context` has read roots, or OpenSSL finds some in the folder when it needs them."""
    return bool(context.cert_store_stats()["x509_ca"]) or any(_files_in_folder())


def _files_in_folder() -> Iterator[Path]:
    return (path for folder in _folder_of_roots().split(os.pathsep) for path in Path(folder).glob("????????.[0-9]"))


def _folder_of_roots() -> str:
    paths = ssl.get_default_verify_paths()
    return os.environ.get(paths.openssl_capath_env, paths.openssl_capath)


def _context(base: ssl.SSLContext | None) -> ssl.SSLContext:
    context = _with_roots_of_system() if base is None else None
    if context is None or not _has_roots(context):
        base = base or system_context()  # it still has those of a store that has been lost since
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if roots := b"".join(base.get_ca_certs(binary_form=True)):
            context.load_verify_locations(cadata=roots)
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)
    context.set_alpn_protocols(["http/1.1"])
    return context


def unverified(context: ssl.SSLContext) -> ssl.SSLContext:
    """`context`, which from now on accepts every certificate."""
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def weak_context(base: ssl.SSLContext | None, verify: bool) -> ssl.SSLContext:
    """A context for servers with old versions of TLS, small keys or weak algorithms. Certificates are verified if `verify`
    is set."""
    context = _context(base)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0x4)
    return context if verify else unverified(context)


class Issuers:
    """The intermediate certificates that were fetched, and for which servers. `base`: see `_context`.

    There is a context for each URL that servers' certificates name, so that one site cannot give another one certificates.
    """

    def __init__(self, base: ssl.SSLContext | None) -> None:
        self._base = base
        self._contexts: dict[str, ssl.SSLContext | None] = {}  # by the first URL; None: it had no usable certificate
        self._servers: dict[str, str] = {}  # the URLs that their certificates name; empty: none

    def __repr__(self) -> str:
        return f"<Issuers {len(self._contexts)} for {len(self._servers)} servers>"

    def context_of(self, server: str) -> ssl.SSLContext | None:
        """The context for `server` if it needs certificates that were fetched."""
        return self._contexts.get(self._servers[server]) if server in self._servers else None

    def may_help(self, server: str, error: BaseException) -> bool:
        """Whether to look for certificates, after `server` was connected to with `error`."""
        cause = cause_of(error)
        is_missing = isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code in _MISSING
        url = self._servers.get(server)
        return is_missing and (url is None or (url != "" and url not in self._contexts))

    async def find(self, server: str, certificate: bytes, fetch: Callable[[str], Awaitable[bytes]]) -> None:
        """Fetch the certificates that lead from `certificate`, the one of `server`, towards a root, unless they are known.
        `fetch` raises FetchFailed, or returns what a URL has."""
        first = _issuer_of(certificate)
        if first and first not in self._contexts:
            issuers = await _issuers(first, fetch)
            context = _context(self._base) if issuers else None
            for issuer in issuers:
                assert context is not None
                context.load_verify_locations(cadata=issuer)
            self._contexts[first] = context
        self._servers[server] = first
        while len(self._contexts) > MAX_CONTEXTS:
            del self._contexts[next(iter(self._contexts))]
        while len(self._servers) > MAX_COMPLETED:
            del self._servers[next(iter(self._servers))]


async def _issuers(url: str, fetch: Callable[[str], Awaitable[bytes]]) -> list[bytes]:
    """The certificate that `url` has, and those to which it leads, in DER."""
    found: list[bytes] = []
    while url and len(found) < MAX_ISSUERS:
        try:
            issuer = _read(await fetch(url))
        except (FetchFailed, ssl.SSLError, ValueError):
            break
        if issuer is None:
            break
        found.append(issuer)
        url = _issuer_of(issuer)
    return found


_ISSUER = re.compile(
    rb"\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86(?:\x81?)([\x01-\xff])(http://[\x21-\x7e]+)", re.DOTALL
)
"""The access description of caIssuers with a URL (RFC 5280 4.2.2.1), in DER."""


def _issuer_of(certificate: bytes) -> str:
    """Where `certificate`, in DER, says that the one of its issuer is; empty if it does not."""
    found = _ISSUER.search(certificate)
    return found[2][: found[1][0]].decode("ascii") if found else ""


def _read(data: bytes) -> bytes | None:
    """The certificate in `data`, in DER or PEM, in DER. None if it must not be used: if it is no authority's, or may be
    self-signed. Raises SSLError or ValueError if there is none."""
    if data.lstrip().startswith(b"-----BEGIN"):
        data = ssl.PEM_cert_to_DER_cert(data.decode("ascii", "replace").strip())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=data)
    found: Any = context.get_ca_certs()
    if len(found) != 1 or context.cert_store_stats()["x509"] != 1:
        return None
    return None if _comparable(found[0]["issuer"]) == _comparable(found[0]["subject"]) else data


def _comparable(name: Iterable[Iterable[object]]) -> list[str]:
    """The attributes of `name` in a form in which at least those are the same that are the same for OpenSSL."""
    normal = (unicodedata.normalize("NFKC", repr(attribute)).casefold() for parts in name for attribute in parts)
    return sorted(re.sub(r"\s", "", text) for text in normal)
