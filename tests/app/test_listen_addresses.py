"""Several replicas on one machine listen at consecutive ports."""

from __future__ import annotations

import re
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from crawler.app.supervisor import check_free, count_up
from crawler.errors import UserError
from tests.e2e.harness import Running, wait_until
from tests.ports import free_port
from tests.typed import Typed

CRAWLER = [sys.executable, "-m", "crawler"]


@pytest.mark.parametrize(
    ("address", "second"),
    [
        ("9410", "9411"),
        ("127.0.0.1:9410", "127.0.0.1:9411"),
        ("[::1]:9410", "[::1]:9411"),
        (":9410", ":9411"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("", ""),
        ("10.0.0.7", "10.0.0.7"),
        ("fd00::1:7", "fd00::1:7"),
        ("crawl.example:80", "crawl.example:81"),
    ],
)
def test_ports_count_up(address: str, second: str) -> None:
    assert count_up(address, 2) == [address, second]


def test_there_must_be_enough_ports() -> None:
    with pytest.raises(UserError, match="the last of 3 replicas needs port 65537"):
        count_up("127.0.0.1:65535", 3)
    with pytest.raises(UserError, match="the last port is 65535"):
        check_free(["127.0.0.1:70000"])


def test_a_port_in_use_stops_the_command_before_anything_is_created(typed: Typed, tmp_path: Path) -> None:
    with socket.socket() as taken:
        port = free_port() + 1
        taken.bind(("127.0.0.1", port))
        taken.listen()
        done = typed("crawl", "http://a.test/", "--replicas", "2", "--listen", str(port - 1))
    assert done.code == 2
    assert f"cannot listen at {port}" in done.err
    assert "choose another --listen" in done.err
    assert not (tmp_path / ".crawler").exists()


@pytest.mark.e2e
def test_each_replica_of_run_serves_its_page_at_a_port_of_its_own(typed: Typed, tmp_path: Path) -> None:
    typed("seed", "http://a.test/")
    typed("pause")
    port = free_port()
    words = [*CRAWLER, "run", "--replicas", "2", "--listen", f"127.0.0.1:{port}"]
    running = Running(words, tmp_path, "run", {})
    try:
        for one in (port, port + 1):
            wait_until(lambda one=one: f"address=127.0.0.1:{one}" in running.err, f"port {one}")  # type: ignore[misc]
            with urllib.request.urlopen(f"http://127.0.0.1:{one}/healthz", timeout=20) as answer:
                assert answer.status == 200
    finally:
        typed("stop")
    assert running.wait().code == 0


@pytest.mark.e2e
def test_crawl_prints_the_addresses_that_it_was_given(tmp_path: Path) -> None:
    port = free_port()
    seed = ["http://127.0.0.1:1/", "--allow", "127.0.0.1", "--port", "1"]
    words = [*CRAWLER, "crawl", *seed, "--replicas", "2", "--listen", str(port), "--quiet"]
    done = Running(words, tmp_path, "crawl", {"CRAWLER_POLITENESS__TRIES": "1"})
    wait_until(lambda: len(re.findall(r"live page: http://127.0.0.1:(\d+)/", done.err)) == 2, "two addresses")
    assert [int(one) for one in re.findall(r"live page: http://127.0.0.1:(\d+)/", done.err)] == [port, port + 1]
    done.send(signal.SIGTERM)
    done.wait()
