"""A web without end: each page links to pages that nobody has seen before, on as many domains as asked for.

    python -m bench.endless [--domains 200000] [--links 200] [--known 0] [--close]

Prints its port, answers under all names until it is ended. A page's links count on from the last page's, spread over the
domains; so a crawl of n pages discovers n times `--links` URLs, whatever it fetches. Each domain has a robots.txt. With
`--known`, a page also has so many links to the roots of domains; with `--close`, each response ends its connection.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from frontier.entries import Entry

ROBOTS = b"User-agent: *\nDisallow: /private/\n"
CONNECTIONS = "/connections"
"""The path at which it says how many there have been."""

STEP = 7_919
"""Links go from domain to domain in steps of this prime, so that neighbours on a page are of different ones."""

MIX = 2_654_435_761
"""Multiplied by this odd number, consecutive numbers look random, as parts of real URLs do: queues compress as usual."""


def domain(number: int) -> str:
    return f"d{number:06}.test"


def seeds(count: int) -> Iterator[Entry]:
    """The roots of the first `count` domains."""
    return (Entry(f"http://{domain(number)}/", domain(number)) for number in range(count))


@contextmanager
def serve(domains: int, links: int, known: int = 0, closes: bool = False) -> Iterator[list[str]]:
    """The web in a process of its own; yields the host map."""
    words = [sys.executable, "-m", "bench.endless", "--domains", str(domains), "--links", str(links)]
    words += ["--known", str(known), *(["--close"] if closes else [])]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield [f"*.test=127.0.0.1:{int(process.stdout.readline())}"]
    finally:
        process.kill()
        process.wait()


def connections(host_map: list[str]) -> int:
    """How many connections the web with this host map has had."""
    with urllib.request.urlopen(f"http://{host_map[0].partition('=')[2]}{CONNECTIONS}") as response:
        return int(response.read()) - 1


class Web:
    """What is on the pages. `connections`: how many there have been."""

    def __init__(self, domains: int, links: int, known: int = 0, closes: bool = False) -> None:
        self._domains = domains
        self._links = links
        self._known = known
        self.closes = closes
        self.connections = 0
        self._next = 0

    def answer(self, head: bytes) -> bytes:
        """The response to a request head."""
        if b"/robots.txt HTTP" in head:
            return self._response(b"text/plain", ROBOTS)
        if CONNECTIONS.encode() in head:
            return self._response(b"text/plain", b"%d" % self.connections)
        return self._response(b"text/html", self._page().encode())

    def _response(self, media: bytes, body: bytes) -> bytes:
        close = b"Connection: close\r\n" if self.closes else b""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n"
        return head % (media, len(body), close) + body

    def _page(self) -> str:
        first, self._next = self._next, self._next + self._links
        links = "\n".join(
            f'<li><a href="http://{domain(number * STEP % self._domains)}/{_path(number)}">An article</a>'
            for number in range(first, first + self._links)
        )
        old = "".join(
            f'<li><a href="http://{domain((first + number) % self._domains)}/">A site</a>\n'
            for number in range(self._known)
        )
        return f"<!doctype html><title>Page {first}</title><p>New here:<ul>\n{links}\n{old}</ul>"


def _path(number: int) -> str:
    return f"some/{number * MIX % 2**32:08x}.html"


class Connection(asyncio.Protocol):
    """Answers one request after the other."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._web.connections += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self._transport.write(self._web.answer(head))
            if self._web.closes:
                self._transport.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=200_000)
    parser.add_argument("--links", type=int, default=200)
    parser.add_argument("--known", type=int, default=0)
    parser.add_argument("--close", action="store_true")
    options = parser.parse_args()
    web = Web(options.domains, options.links, options.known, options.close)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(web), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
