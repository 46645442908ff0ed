"""What the server does on real sockets: delays, aborted answers, several addresses, the process itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from tests.simweb.features import Features, Kind
from tests.simweb.server import Record, RequestLog, SimWebServer
from tests.simweb.world import World


class Client:
    """One connection that writes raw requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, server: SimWebServer, index: int = 0) -> Client:
        return cls(*await asyncio.open_connection(*server.listening[index], limit=1 << 26))

    def ask(self, url: str) -> None:
        host, _, path = url.removeprefix("http://").partition("/")
        self.writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: raw\r\n\r\n".encode())

    async def get(self, url: str) -> tuple[int, dict[str, str], bytes]:
        self.ask(url)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status_line, *lines = head.strip().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines)
        return (
            int(status_line.split()[1]),
            fields,
            await self.reader.readexactly(int(fields["Content-Length"])),
        )

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def world_of(kind: Kind, **features: Any) -> tuple[World, str]:
    """A world whose leaves all answer so, and the URL of a leaf."""
    world = World(1, 1, 20, replace(Features.plain(), answers={kind: 1.0}, robots={}, private=0, **features))
    return world, world.sites[0].slot(19).url


class WatchedLog(RequestLog):
    """A log that one can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.appended = asyncio.Event()

    def append(self, record: Record) -> None:
        super().append(record)
        self.appended.set()


async def test_a_connection_serves_many_requests_and_each_is_logged() -> None:
    log = RequestLog()
    async with SimWebServer(World(1, 2, 30), log) as server:
        client = await Client.to(server)
        assert (await client.get("http://d00001.test/"))[0] == 200
        assert (await client.get("http://d00001.test/nowhere"))[0] == 404
        client.ask("http://d00000.test/nowhere")
        assert (await client.get("http://elsewhere.example/robots.txt"))[0] == 404
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        await client.close()
    assert [record.url for record in log.records] == [
        "http://d00001.test/",
        "http://d00001.test/nowhere",
        "http://d00000.test/nowhere",
        "http://elsewhere.example/robots.txt",
    ]
    first = log.records[0]
    assert (first.domain, first.status, first.agent, first.aborted) == ("d00001.test", 200, "raw", False)
    assert first.start <= first.end <= log.records[1].start


async def test_busy_urls_answer_at_the_nth_request_and_tell_how_long_to_wait() -> None:
    """RFC 9110 section 10.2.3: both forms of Retry-After mean what the record says."""
    log = RequestLog()
    world, _ = world_of(Kind.BUSY, retry_after_s=7)
    forms = set()
    async with SimWebServer(world, log) as server:
        client = await Client.to(server)
        for number in range(3, 20):
            url = world.sites[0].slot(number).url
            resource = world.resource(url)
            assert resource is not None
            assert resource.trouble is not None
            for _ in range(1, resource.trouble.succeeds_at):
                status, fields, _ = await client.get(url)
                record = log.records[-1]
                assert status == resource.trouble.status
                assert record.retry_after is not None
                if fields["Retry-After"].isdecimal():
                    assert record.retry_after == int(fields["Retry-After"]) == 7
                else:
                    date = parsedate_to_datetime(fields["Retry-After"]).timestamp()
                    assert record.retry_after == pytest.approx(date - record.wall)
                    assert 7 <= record.retry_after <= 8
                forms.add(fields["Retry-After"].isdecimal())
            assert (await client.get(url))[0] == 200
        await client.close()
    assert forms == {True, False}


async def test_an_answer_that_the_client_does_not_read_has_not_ended() -> None:
    """Given a page larger than what the system buffers, and a client that closes without reading it."""
    log = WatchedLog()
    world, url = world_of(Kind.PAGE, body_bytes=(30_000_000, 30_000_000))
    async with SimWebServer(world, log) as server:
        client = await Client.to(server)
        client.ask(url)
        await client.reader.readexactly(100_000)
        assert log.count == 0
        client.writer.transport.abort()
        await log.appended.wait()
    assert log.records[0].aborted


async def test_a_large_answer_arrives_whole_and_ends_about_when_it_is_read() -> None:
    """Given a page of many pieces, and a client that reads all but the last of it only later."""
    log = RequestLog()
    world, url = world_of(Kind.PAGE, body_bytes=(20_000_000, 20_000_000))
    async with SimWebServer(world, log) as server:
        client = await Client.to(server)
        status, _, body = await client.get(url)
        assert (status, body[-8:]) == (200, b"</html>\n")
        assert len(body) >= 20_000_000
        client.ask(url)
        await client.reader.readexactly(1_000_000)
        resumed = time.monotonic()
        await client.reader.readuntil(b"</html>\n")
        await client.close()
    assert log.records[1].end > resumed
    assert not log.records[1].aborted
