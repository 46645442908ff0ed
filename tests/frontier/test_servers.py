"""The frontier on other servers and over other transports than the bundled Valkey on a Unix socket.

Each case starts a server and runs tests of the queue against it, in a process of their own. `make test-redis` runs the
tests of scripts on Debian's Redis.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from crawler.app.embedded_valkey import server_binary
from tests.ports import free_port

pytestmark = pytest.mark.long

SUITE = [
    "tests/frontier/test_queue.py",
    "tests/frontier/test_settle.py",
    "tests/frontier/test_peers.py",
]
PASSWORD = "correct-horse"


def debian_redis() -> Path:
    found = shutil.which("redis-server")
    if found is None:
        if os.environ.get("CI"):
            raise RuntimeError("CI must install redis-server; see .ci/run")
        pytest.skip("needs Debian's redis-server")
    return Path(found)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(binary: Path, folder: Path, options: list[str], port: int) -> Iterator[None]:
    """`binary` with `options`, until the block ends. `port`: where it will answer."""
    with (folder / "server.log").open("wb") as log:
        words = [str(binary), "--dir", str(folder), "--save", "", "--appendonly", "no", *options]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 180
        while not (answers(port) if port else (folder / "redis.sock").exists()):
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield
    finally:
        process.kill()
        process.wait()


def run_suite(url: str, suite: Sequence[str]) -> None:
    environment = {**os.environ, "PEERCRAWL_TEST_REDIS": url}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *suite]
    done = subprocess.run(words, check=False, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


NODES = 3
SLOTS = 16_384


def tls_options(folder: Path) -> list[str]:
    """A server's certificate from an authority of its own, `folder`/ca.pem."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    options = ["--tls-cert-file", str(folder / "server.pem"), "--tls-key-file", str(folder / "server.pem")]
    return [*options, "--tls-ca-cert-file", str(folder / "ca.pem"), "--tls-auth-clients", "no"]


@contextmanager
def running_cluster(binary: Path, folder: Path, port_option: str, options: list[str], **access: Any) -> Iterator[int]:
    """A cluster of three masters that share the slots; yields the port of one. `access`: of redis-py."""
    with ExitStack() as nodes:
        ports = [free_port() for _ in range(NODES)]
        for port in ports:
            data = folder / str(port)
            data.mkdir()
            words = [*options, port_option, str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
            words += ["--cluster-port", str(free_port())]
            nodes.enter_context(running(binary, data, words, port))
        clients = [nodes.enter_context(redis.Redis(port=port, **access)) for port in ports]
        bounds = [SLOTS * number // NODES for number in range(NODES + 1)]
        first_bus = clients[0].config_get("cluster-port")["cluster-port"]
        for client, start, end in zip(clients, bounds, bounds[1:], strict=False):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", start, end - 1)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0], first_bus)
        deadline = time.monotonic() + 180
        while not all(client.cluster("INFO")["cluster_state"] == "ok" for client in clients):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield ports[0]


@pytest.mark.e2e
class TestServers:
    def test_on_a_cluster_of_three_masters(self, tmp_path: Path) -> None:
        """Every script finds all its keys in one slot, and batches are cut by node."""
        with running_cluster(server_binary(), tmp_path, "--port", []) as port:
            run_suite(f"redis+cluster://127.0.0.1:{port}", SUITE)

    def test_on_a_cluster_over_tls_with_a_user(self, tmp_path: Path) -> None:
        options = ["--port", "0", "--tls-cluster", "yes", *tls_options(tmp_path), "--masterauth", PASSWORD]
        options += ["--user", "default", "off", "--user", "crawler", "on", f">{PASSWORD}", "~*", "&*", "+@all"]
        access = {"ssl": True, "ssl_cert_reqs": "none", "username": "crawler", "password": PASSWORD}
        with running_cluster(debian_redis(), tmp_path, "--tls-port", options, **access) as port:
            url = f"rediss+cluster://crawler:{PASSWORD}@127.0.0.1:{port}?ssl_ca_certs={tmp_path / 'ca.pem'}"
            run_suite(url, SUITE[:1])

    @pytest.mark.parametrize("find", [server_binary, debian_redis], ids=["valkey", "redis"])
    def test_over_tcp_with_a_password(self, find: Callable[[], Path], tmp_path: Path) -> None:
        port = free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--requirepass", PASSWORD]
        with running(find(), tmp_path, options, port):
            run_suite(f"redis://:{PASSWORD}@127.0.0.1:{port}/0", SUITE[:1])

    def test_redis_over_tls_with_a_password(self, tmp_path: Path) -> None:
        port = free_port()
        options = ["--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--requirepass", PASSWORD]
        options += tls_options(tmp_path)
        with running(debian_redis(), tmp_path, options, port):
            run_suite(f"rediss://:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}", SUITE[:1])

    def test_redis_on_a_unix_socket(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = tmp_path_factory.mktemp("r", numbered=True)
        options = ["--port", "0", "--unixsocket", str(folder / "redis.sock")]
        with running(debian_redis(), folder, options, port=0):
            run_suite(f"unix://{folder / 'redis.sock'}", SUITE[:1])
