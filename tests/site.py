"""A web site on loopback whose responses a test writes: `with Site(respond) as site:`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any, NamedTuple, Self

TEXT = MappingProxyType({"Content-Type": "text/plain"})


class Request(NamedTuple):
    """`host`: without the port. `at`: monotonic seconds."""

    method: str
    path: str
    host: str
    headers: Message
    at: float
    body: bytes = b""


class Reply(NamedTuple):
    """`headers`: beside Content-Length, and Content-Type unless it is HTML."""

    body: str | bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


Respond = Callable[[Request], Reply | str | bytes | None]


class Site(ThreadingHTTPServer):
    """Answers requests with what `respond` returns: a reply, a body, or None for a 404. Listens at `port`, and
    answers within `with`. `answered`: requests with their statuses, in order."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, respond: Respond | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answered: list[tuple[Request, int]] = []
        self.port = int(self.server_address[1])
        if respond is not None:
            self.respond = respond  # type: ignore[assignment, method-assign]

    def respond(self, request: Request) -> Reply | str | bytes | None:
        """What a subclass answers."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # otherwise the client went away
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def asked(self) -> list[str]:
        """The paths of all requests, in order."""
        return [request.path for request, _ in self.answered]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def host_map(self, *hosts: str) -> list[str]:
        """Entries of `fetch.host_map` that lead from `hosts` to this site."""
        return [f"{host}=127.0.0.1:{self.port}" for host in hosts]

    def settings(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Settings with which `crawler.Crawl` finds this site at a.test, without a delay, and keeps all in `folder`."""
        return {
            "fetch": {"host_map": self.host_map("a.test")},
            "politeness": {"delay": 0},
            "replica": {"data_dir": str(folder / "data"), "out": str(folder / "out")},
        }

    def times(self, path: str, status: int | None = None, host: str | None = None) -> int:
        """How often `path` was asked for, and answered with `status`, at `host`."""
        return sum(
            request.path == path and status in (None, answered) and host in (None, request.host)
            for request, answered in self.answered
        )


class _Handler(BaseHTTPRequestHandler):
    wbufsize = -1  # one segment per response: otherwise each waits 40 ms for an acknowledgement
    server: Site

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").partition(":")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, host, self.headers, time.monotonic(), body)
        made = self.server.respond(request)
        reply = made if isinstance(made, Reply) else Reply(b"", 404) if made is None else Reply(made)
        sent = reply.body.encode() if isinstance(reply.body, str) else reply.body
        self.server.answered.append((request, reply.status))
        self.send_response(reply.status)
        for name, value in {"Content-Type": "text/html", "Content-Length": str(len(sent)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(sent)

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass
