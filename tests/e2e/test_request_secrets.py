"""A crawl with a login, a token, an API key, cookies and a proxy with a password: none of them is left anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import signal
import ssl
import sys
import urllib.error
import urllib.request
from asyncio import StreamWriter
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest
import redis
import trustme

from tests.e2e.harness import Running, wait_until
from tests.fetch.proxies import HttpProxy
from tests.fetch.servers import FaultServer
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

LOGIN, TOKEN, KEY, PROXY, AWAY = "robot:lemon-basic", "lemon-bearer", "lemon-key", "me:lemon-proxy", "me:lemon-away"
COOKIE, RENEWED = "lemon-cookie", "lemon-renewed"

SECRETS = [b"lemon", *(b64encode(text.encode()).rstrip(b"=")[:-1] for text in (LOGIN, PROXY, AWAY))]
"""What is looked for. The last digits of base64 depend on what follows."""

SHOP, API, OTHER, AWAY_SITE = "https://shop.test", "http://api.test", "https://other.test", "http://away.test"

SETTINGS = """
[politeness]
delay = 0.01
[scope]
kind = "any"
[fetch]
contact = "https://crawler.test/about"
verify_tls = false
[frontier]
shards = 8

[[requests]]
origin = "https://shop.test"
basic_env = "SHOP_LOGIN"
headers_env = ["X-Api-Key: SHOP_KEY"]
headers = ["X-Team: search"]
accept_language = "de"

[[requests]]
origin = "http://api.test"
bearer_env = "API_TOKEN"
over_http = true

[[requests]]
host = "away.test"
proxy_env = "AWAY_URL"
proxy_dns = true

[[requests]]
cookies = true
proxy_env = "PROXY_URL"
proxy_dns = true
"""

FIELDS = re.compile(rb"^([A-Za-z-]+): (.*)\r$", re.MULTILINE)


class Sites(FaultServer):
    """All sites of the test. The shop wants its login and sets a cookie, without which its second page is forbidden."""

    async def answer(self, writer: StreamWriter) -> bool:
        head = self.requests[-1]
        fields, target = dict(FIELDS.findall(head)), head.split()[1].decode()
        status, extra, body = self.page(fields[b"Host"].decode(), target, fields)
        lines = "".join(f"{line}\r\n" for line in (*extra, "Content-Type: text/html", f"Content-Length: {len(body)}"))
        writer.write(f"HTTP/1.1 {status} Said\r\n{lines}\r\n{body}".encode())
        return True

    def page(self, host: str, target: str, fields: dict[bytes, bytes]) -> tuple[int, list[str], str]:
        login = f"Basic {b64encode(LOGIN.encode()).decode()}".encode()
        wanted = {"shop.test": login, "api.test": f"Bearer {TOKEN}".encode()}.get(host)
        if fields.get(b"Authorization") != wanted:
            return 401, [], ""
        if target == "/robots.txt":
            return 200, [], "User-agent: *\nAllow: /\n"
        if host != "shop.test":
            return 200, [], "<p>welcome</p>"
        if target == "/":
            links = "".join(f'<a href="{url}">x</a>' for url in ("/in", "/away", f"{API}/", f"{OTHER}/"))
            return 200, [f"Set-Cookie: session={COOKIE}; Secure; HttpOnly"], links
        if target == "/away":
            return 302, [f"Location: {OTHER}/from-shop", f"set-cookie: session={RENEWED}; Secure"], ""
        known = {f"session={COOKIE}".encode(), f"session={RENEWED}".encode()}
        return (200 if fields.get(b"Cookie") in known else 403), [], "<p>inside</p>"


class World:
    """The sites and their proxy, in a thread."""

    def __init__(self) -> None:
        authority, self._tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("shop.test", "other.test").configure_cert(self._tls)
        self._loop = asyncio.new_event_loop()
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        self.plain = await self._stack.enter_async_context(Sites())
        self.secure = await self._stack.enter_async_context(Sites(self._tls))
        proxy = HttpProxy(self.plain.port, PROXY, tunnel_port=self.secure.port)
        self.proxy = await self._stack.enter_async_context(proxy)
        away = await self._stack.enter_async_context(HttpProxy(1, status=407))
        self.away = away

    def __enter__(self) -> World:
        self._loop.run_until_complete(self.start())
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.close()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SHOP_LOGIN": LOGIN,
            "SHOP_KEY": KEY,
            "API_TOKEN": TOKEN,
            "PROXY_URL": f"http://{PROXY}@127.0.0.1:{self.proxy.port}",
            "AWAY_URL": f"http://{AWAY}@127.0.0.1:{self.away.port}",
        }


def in_redis(server: ValkeyProcess) -> Iterator[bytes]:
    """Every key of the server, and every value."""
    client: Any = redis.Redis(unix_socket_path=str(server.socket))
    read = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"list": lambda key: client.lrange(key, 0, -1),
    }
    for key in client.scan_iter():
        yield key
        yield repr(read[client.type(key)](key)).encode()
    client.close()


def in_files(folder: Path) -> Iterator[bytes]:
    """The content of every file, and that of compressed ones."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            yield data
            if data[:2] == b"\x1f\x8b":
                yield gzip.decompress(data)


def pages(address: str, replica: str) -> Iterator[bytes]:
    """What the status server shows to whoever asks."""
    paths = ["/", "/metrics", "/snapshot", "/sd", "/healthz", "/readyz", f"/replica/{replica}"]
    paths += [f"/domain/{name}.test" for name in ("shop", "api", "other", "away")]
    paths += [f"/why?url={quote(url)}" for url in (f"{SHOP}/", f"{SHOP}/in", f"{API}/", f"{AWAY_SITE}/")]
    for path in paths:
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
                yield answer.read()
        except urllib.error.HTTPError as error:
            yield error.read()


def check_what_is_left(seen: list[bytes]) -> None:
    """`seen`: all that can be seen of the crawl."""
    everything = b"\n".join(seen)
    assert b"X-Team: search" in everything, "records are searched"
    assert b"Authorization: [redacted]" in everything
    assert b"X-Api-Key: [redacted]" in everything
    assert b"Cookie: [redacted]" in everything
    assert b"Set-Cookie: [redacted]" in everything
    assert b"Proxy-Authorization: [redacted]" in everything
    assert b"peercrawl_own_failures_total" in everything
    assert [secret for secret in SECRETS if secret in everything] == []


def test_secrets_are_sent_where_they_belong_and_are_nowhere_else(tmp_path: Path) -> None:
    for name in ("store", "work"):
        (tmp_path / name).mkdir()
    work, settings = tmp_path / "work", tmp_path / "crawler.toml"
    settings.write_text(SETTINGS)
    seen: list[bytes] = []
    with World() as world, ValkeyProcess(tmp_path / "store", persistent=True) as server:
        out = tmp_path / "out"
        environment = {
            **world.environment,
            "CRAWLER_REPLICA__REDIS": server.url,
            "CRAWLER_REPLICA__OUT": str(out),
            "CRAWLER_REPLICA__LOG_LEVEL": "debug",
            "CRAWLER_REPLICA__INTERVAL": "0.5",
        }

        def crawler(*words: str, name: str = "command") -> Running:
            command = [sys.executable, "-m", "crawler", words[0], *words[1:], "--settings", str(settings)]
            return Running(command, work, name, environment)

        assert crawler("seed", f"{SHOP}/", f"{AWAY_SITE}/", name="seed").wait().code == 0
        replica = crawler("run", name="run")
        try:
            wait_until(lambda: all_fetched(world) and world.away.heads, "the pages of all sites")
            record = json.loads(crawler("status", "--json", name="status").wait().out)["replicas"][0]
            seen += pages(record["address"], record["replica"])
            wait_until(lambda: replica.err.count("proxy_failed"), "the failure of the proxy that refuses")
            for words in (["why", f"{SHOP}/in", "--out", str(out)], ["why", f"{AWAY_SITE}/"], ["config", "show"]):
                assert crawler(*words, name="-".join(words[:1])).wait().code == 0
            shown = Running(
                [sys.executable, "-m", "crawler", "config", "check", str(settings)], work, "check", environment
            )
            assert shown.wait().code == 0
            seen += in_redis(server)
        finally:
            replica.send(signal.SIGTERM)
            ended = replica.wait()
        assert ended.code == 0, ended.err
        audited = Running(
            [sys.executable, "-m", "crawler", "audit", str(out), "--delay", "0.01"], work, "audit", environment
        ).wait()
        assert audited.code == 0, audited.out + audited.err
        seen += in_redis(server)
        # Two replicas of a supervisor have the rules and the variables as well.
        folders = ("--data-dir", str(tmp_path / "data"), "--out", str(tmp_path / "out2"))
        words = ["crawl", f"{API}/", "--replicas", "2", *folders]
        both = Running(
            [sys.executable, "-m", "crawler", *words, "--settings", str(settings)], work, "both", world.environment
        )
        assert both.wait().code == 0, both.err
        assert '"status":200' in "".join(path.read_text() for path in (tmp_path / "out2").glob("*.jsonl"))
        sent = [*world.plain.requests, *world.secure.requests]
        asked = list(world.proxy.heads)
    seen += in_files(tmp_path)
    check_what_was_sent(sent, asked)
    check_what_is_left(seen)


def all_fetched(world: World) -> bool:
    heads = b"".join([*world.plain.requests, *world.secure.requests])
    return all(target in heads for target in (b"GET /in ", b"GET /from-shop ", b"GET / HTTP/1.1\r\nHost: api.test"))


def check_what_was_sent(sent: list[bytes], asked: list[bytes]) -> None:
    """`sent`: to sites; `asked`: of the proxy."""
    by_host: dict[bytes, list[dict[bytes, bytes]]] = {}
    for head in sent:
        fields = dict(FIELDS.findall(head))
        by_host.setdefault(fields[b"Host"], []).append({**fields, b"target": head.split()[1]})
    shop = by_host.pop(b"shop.test")
    assert all(one[b"Authorization"].startswith(b"Basic ") and one[b"X-Api-Key"] == KEY.encode() for one in shop)
    assert all(one[b"Accept-Language"] == b"de" for one in shop)
    assert {one[b"target"] for one in shop} == {b"/robots.txt", b"/", b"/in", b"/away"}
    assert all(b"Cookie" in one for one in shop if one[b"target"] in (b"/in", b"/away"))
    api = by_host.pop(b"api.test")
    assert all(one[b"Authorization"] == f"Bearer {TOKEN}".encode() for one in api)
    assert by_host.keys() == {b"other.test"}
    for one in (*api, *by_host[b"other.test"]):
        assert not one.keys() & {b"X-Api-Key", b"Cookie", b"Proxy-Authorization", b"X-Team"}
    assert not any(b"Authorization" in one for one in by_host[b"other.test"])
    assert all(b"Proxy-Authorization: Basic" in head for head in asked)
    assert not any(KEY.encode() in head or b"Basic " + b64encode(LOGIN.encode()) in head for head in asked)
