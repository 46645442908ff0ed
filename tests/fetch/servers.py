"""Web servers with one fault each, on loopback. `requests` holds each request as it was received."""

from __future__ import annotations

import asyncio
import re
import ssl
from asyncio import StreamReader, StreamWriter

import trustme

from tests.fetch.loopback import LoopbackServer


def tls_pair(*hosts: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The context of a server for `hosts`, and that of a client that trusts its certificate."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert(*hosts).configure_cert(server)
    authority.configure_trust(client)
    return server, client


class FaultServer(LoopbackServer):
    """A server that answers with a small page. Each subclass breaks this in one way."""

    body = b"<p>whole</p>"
    extra = b""  # header lines

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.asked = asyncio.Event()  # a request has come
        self.hung_up = asyncio.Event()  # the client closed a connection

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while await self._one(reader, writer):
                pass
        finally:
            self.open -= 1
            self.hung_up.set()

    async def _one(self, reader: StreamReader, writer: StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)\r\n", head)
        self.requests.append(head + (await reader.readexactly(int(length[1])) if length else b""))
        self.asked.set()
        goes_on = await self.answer(writer)
        await writer.drain()
        return goes_on

    async def answer(self, writer: StreamWriter) -> bool:
        """Write a response; False closes the connection after it."""
        length = f"Content-Length: {len(self.body)}\r\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\n" + self.extra + length + b"\r\n" + self.body)
        return True


class Raw(FaultServer):
    """Sends the given bytes in these pieces, each in its own segment, and closes."""

    def __init__(self, *pieces: bytes, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self._pieces = pieces

    async def answer(self, writer: StreamWriter) -> bool:
        for piece in self._pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        return False


class SetsCookie(FaultServer):
    extra = b"Set-Cookie: id=1; Path=/\r\n"


class AnswersInPlainText(FaultServer):
    """Answers a TLS handshake as a plain HTTP port does."""

    async def _one(self, reader: StreamReader, writer: StreamWriter) -> bool:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        return False


class DropsConnection(FaultServer):
    """Reads the request and closes the connection without an answer."""

    async def answer(self, writer: StreamWriter) -> bool:
        return False


class DropsSecondRequest(FaultServer):
    """Answers once, then closes the kept-alive connection when the next request arrives."""

    async def answer(self, writer: StreamWriter) -> bool:
        return await super().answer(writer) if len(self.requests) == 1 else False


class NeverAnswers(FaultServer):
    async def answer(self, writer: StreamWriter) -> bool:
        await asyncio.Event().wait()
        return False


class SendsHalf(FaultServer):
    async def answer(self, writer: StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf.")
        return False


class OneByteASecond(FaultServer):
    """Sends one byte at a time without end: never silent for long, never finished. In fact it sends 20 bytes a second."""

    async def answer(self, writer: StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)


class FallsSilent(FaultServer):
    """Half a body, then nothing, with the connection open."""

    async def answer(self, writer: StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf.")
        await asyncio.Event().wait()
        return False


class EndlessBody(FaultServer):
    async def answer(self, writer: StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            await asyncio.sleep(0)  # drain() alone may never let others run


class EndlessHeaders(FaultServer):
    async def answer(self, writer: StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-Filler: " + b"y" * 1000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)  # drain() alone may never let others run


class EndlessHeaderLine(FaultServer):
    async def answer(self, writer: StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nX-Filler: ")
        while True:
            writer.write(b"y" * 1000)
            await writer.drain()
            await asyncio.sleep(0)  # drain() alone may never let others run


class EndlessInterim(FaultServer):
    async def answer(self, writer: StreamWriter) -> bool:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0)  # drain() alone may never let others run


class SpeaksUnasked(FaultServer):
    """Sends a second response right after the first, to pass for the answer to the next request."""

    async def answer(self, writer: StreamWriter) -> bool:
        goes_on = await super().answer(writer)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        return goes_on
