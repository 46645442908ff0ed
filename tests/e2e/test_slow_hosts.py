"""Hosts that are slow to answer hold up no others."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.harness import Running, wait_until
from tests.site import Request, Site

pytestmark = pytest.mark.e2e

SLOW = [f"slow{number}.test" for number in range(15)]
GOOD = [f"good{number}.test" for number in range(4)]
PAGES = 5


def respond(request: Request) -> str:
    if request.host.startswith("slow"):
        time.sleep(25)
    return "".join(f'<a href="/{number}">' for number in range(1, PAGES))


def test_hosts_that_answer_are_crawled_beside_more_slow_ones_than_requests_may_be_in_flight(tmp_path: Path) -> None:
    with Site(respond) as site:
        seeds = [f"http://{host}/" for host in (*SLOW, *GOOD)]
        reach = [word for host in (*SLOW, *GOOD) for word in ("--host-map", f"{host}=127.0.0.1:{site.port}")]
        command = [sys.executable, "-m", "crawler", "crawl", *seeds, *reach, "--concurrency", "4", "--delay", "0.1"]
        running = Running(command, tmp_path, "crawl", {})
        pages = len(GOOD) * (PAGES + 1)  # and a robots.txt
        try:
            wait_until(lambda: sum(one.host in GOOD for one, _ in site.answered) == pages, "the pages", 15)
        finally:
            for _ in range(2):  # the second one does not wait for the slow ones
                running.send(signal.SIGINT)
                time.sleep(0.5)
            running.wait()
