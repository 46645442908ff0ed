"""HTTP and SOCKS5 proxies on loopback that send everything to one web server, whatever host they are asked for."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from base64 import b64encode
from collections.abc import Coroutine

from tests.fetch.loopback import LoopbackServer


class HttpProxy(LoopbackServer):
    """Forwards plain requests and opens tunnels, all to 127.0.0.1:`port`, or tunnels to `tunnel_port`. `heads`: the heads
    that it received. `user`: the credentials that it asks for ("user:password"), or "". `status`: what it answers instead,
    or 0."""

    def __init__(
        self, port: int, user: str = "", status: int = 0, tls: ssl.SSLContext | None = None, tunnel_port: int = 0
    ) -> None:
        super().__init__(tls)
        self._to = port
        self._tunnel_to = tunnel_port or port
        self._expected = f"Basic {b64encode(user.encode()).decode()}" if user else ""
        self._status = status
        self.heads: list[bytes] = []

    def send_to(self, port: int) -> None:
        """From now on, forward plain requests to `port`."""
        self._to = port

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        status = self._status or (407 if self._expected and self._expected.encode() not in head else 0)
        if status:
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
            await writer.drain()
            return
        is_tunnel = head.startswith(b"CONNECT ")
        site, to_site = await asyncio.open_connection("127.0.0.1", self._tunnel_to if is_tunnel else self._to)
        if is_tunnel:
            writer.write(b"HTTP/1.1 200 Connected\r\nVia: test\r\n\r\n")
            upwards = _copy(reader, to_site)
        else:
            to_site.write(_in_origin_form(head))
            upwards = self._forward(reader, to_site)
        try:
            await _both(upwards, _copy(site, writer))
        finally:
            to_site.close()

    async def _forward(self, reader: StreamReader, to_site: StreamWriter) -> None:
        """Send on the further requests of a connection."""
        while True:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            to_site.write(_in_origin_form(self.heads[-1]))


def _in_origin_form(head: bytes) -> bytes:
    """What a proxy sends to the site: the path, and no field that is for the proxy."""
    line, *fields = head.split(b"\r\n")
    method, target, version = line.split(b" ")
    path = b"/" + target.split(b"/", 3)[3]
    kept = [field for field in fields if not field.lower().startswith(b"proxy-")]
    return b"\r\n".join([b" ".join([method, path, version]), *kept])


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()


async def _both(upwards: Coroutine[None, None, None], downwards: Coroutine[None, None, None]) -> None:
    """Run both directions until one of them ends."""
    directions = [asyncio.ensure_future(upwards), asyncio.ensure_future(downwards)]
    await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    for one in directions:
        one.cancel()
    await asyncio.gather(*directions, return_exceptions=True)


class SocksProxy(HttpProxy):
    """The same for SOCKS5 with the names of hosts (RFC 1928, RFC 1929). `status`: its reply code. `heads` has what it was
    asked for, as HOST:PORT."""

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(bytes([5, 2 if self._expected else 0]))
        if self._expected:
            _, size = await reader.readexactly(2)
            user = await reader.readexactly(size)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            is_known = f"Basic {b64encode(user + b':' + password).decode()}" == self._expected
            writer.write(bytes([1, 0 if is_known else 1]))
            if not is_known:
                await writer.drain()
                return
        _, _, _, kind = await reader.readexactly(4)
        assert kind == 3, "it was asked for an address, and not for a name"
        name = await reader.readexactly((await reader.readexactly(1))[0])
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.heads.append(b"%b:%d" % (name, port))
        writer.write(bytes([5, self._status, 0, 1, 0, 0, 0, 0, 0, 0]))
        await writer.drain()
        if not self._status:
            site, to_site = await asyncio.open_connection("127.0.0.1", self._to)
            try:
                await _both(_copy(reader, to_site), _copy(site, writer))
            finally:
                to_site.close()
