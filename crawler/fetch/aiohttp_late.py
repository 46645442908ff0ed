"""Imports aiohttp without the system's certificates. They are read when the first connection over TLS needs them.

aiohttp makes two TLS contexts when it is imported. Reading some 140 certificates for each would take an eighth of the CPU
time in which a replica starts.
"""

from __future__ import annotations

import ssl
from typing import Any


class _LateContext(ssl.SSLContext):
    """A context that reads the system's certificates when it is used first."""

    _has_read = False

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        self._read()
        return super().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        self._read()
        return super().wrap_socket(*args, **options)

    def _read(self) -> None:
        if not self._has_read:
            self._has_read = True
            self.set_default_verify_paths()


def _read_later(context: ssl.SSLContext) -> None:
    context.__class__ = _LateContext


ssl.SSLContext.set_default_verify_paths = _read_later  # type: ignore[assignment]
try:
    import aiohttp
finally:
    del ssl.SSLContext.set_default_verify_paths  # the method of its base class is in its place again

__all__ = ["aiohttp"]
