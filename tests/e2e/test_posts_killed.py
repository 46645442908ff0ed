"""Requests that must not be repeated, and replicas that are killed between their send and their settlement."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Lock

import pytest

from tests.e2e.harness import ROOT, Running, wait_until
from tests.site import Reply, Request, Site

pytestmark = pytest.mark.e2e

HOSTS = ("a.test", "b.test", "c.test", "d.test")
POSTS = 20
KILLS = 6

PROGRAM = """
import json, os
from crawler import Crawl, Handle, ParsedPage, Router

router = Router()

@router.handler("/$")
async def root(page: ParsedPage, crawl: Handle) -> None:
    for number in range({posts}):
        for retry in (False, True):
            await crawl.enqueue(f"/post/{{number}}", data={{"n": number, "retry": retry}}, retry=retry)

@router.handler("/post/")
async def posted(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("answers", {{"sent": page.text}})

settings = {{
    "fetch": {{"host_map": json.loads(os.environ["HOSTS"])}},
    "politeness": {{"delay": 0, "backoff_base": 0.1}},
    "frontier": {{"lease": 1.5}},
}}
Crawl([f"http://{{host}}/" for host in {hosts}], handlers=router, settings=settings).run()
"""


class SlowSite(Site):
    """Takes some time to answer a POST. `sent`: how often each came, by host and body; `under_way`: of how many it has the
    request and has not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = Counter[tuple[str, bytes]]()
        self.under_way = 0
        self._lock = Lock()

    def respond(self, request: Request) -> Reply | str | None:
        if request.method != "POST":
            return "<title>Root</title>" if request.path == "/" else None
        with self._lock:
            self.sent[request.host, request.body] += 1
            self.under_way += 1
        time.sleep(0.08)
        with self._lock:
            self.under_way -= 1
        return Reply(request.body, headers={"Content-Type": "text/plain"})


@pytest.fixture
def site() -> Iterator[SlowSite]:
    with SlowSite() as site:
        yield site


@pytest.mark.parametrize("replicas", [1, pytest.param(3, marks=pytest.mark.long)])
def test_no_post_is_lost_and_none_is_sent_twice_unless_it_may_be(site: SlowSite, tmp_path: Path, replicas: int) -> None:
    """Those that were on their way are dead letters. Of several replicas, the others go on."""
    chance = random.Random(1)
    (tmp_path / "program.py").write_text(PROGRAM.format(posts=POSTS, hosts=HOSTS))
    environment = {"HOSTS": json.dumps(site.host_map(*HOSTS)), "PYTHONPATH": str(ROOT)}
    started = count()

    def start() -> Running:
        return Running([sys.executable, "program.py"], tmp_path, f"program-{next(started)}", environment)

    programs = [start() for _ in range(replicas)]
    for _ in range(KILLS):
        before = site.sent.total()
        wait_until(lambda seen=before: site.sent.total() > seen and site.under_way, "a POST")  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.3))
        program = programs.pop(chance.randrange(replicas))
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        if replicas == 1:
            wait_until(lambda: not site.under_way, "the site to be done")
        programs.append(start())
    assert [program.wait().code for program in programs] == [0] * replicas

    lines = [
        json.loads(line) for file in tmp_path.glob("crawl-out/*.pages.jsonl") for line in file.read_text().splitlines()
    ]
    ends = {line["url"]: (line["outcome"], line["reason"]) for line in lines if "/post/" in line["url"]}
    assert len(ends) == len(HOSTS) * POSTS * 2
    reasons = Counter(ends.values())
    assert set(reasons) == {("done", "ok"), ("dead", "maybe_sent")}
    assert 1 <= reasons["dead", "maybe_sent"] <= KILLS * len(HOSTS)
    answers = Counter(item["sent"] for line in lines for item in (line["items"] or {}).get("answers", ()))
    for (host, body), times in site.sent.items():
        assert times == 1 or b"retry=True" in body, (host, body, times)
    for number in range(POSTS):
        assert answers[f"n={number}&retry=True"] == len(HOSTS)  # each item exactly once
        assert answers[f"n={number}&retry=False"] <= len(HOSTS)
    assert sum(answers.values()) == len(ends) - reasons["dead", "maybe_sent"]
    print(f"{reasons=} sent twice: {sum(times > 1 for times in site.sent.values())}")
