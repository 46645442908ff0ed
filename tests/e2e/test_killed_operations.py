"""Programs that are killed before, during and after each thing that a handler or a program may ask for. Then the next run
goes on: no request is lost, no page has two lines, no item comes twice, and what must not be repeated is sent once.

What may happen again is what handlers do at once: requests in a handler, downloads, and counters, since the handler of a
page that is not settled is called again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import ROOT, Running
from tests.site import Reply, Request, Site

pytestmark = [pytest.mark.e2e, pytest.mark.long]

HOSTS = ("a.test", "b.test", "c.test", "d.test")
PAGES = 12

PROGRAM = """
import asyncio, json, os, signal, sys
from crawler import Crawl, Handle, ParsedPage, Retry, Router
from crawler.handlers.values import SharedValues
from frontier.queue import Frontier

operation, hosts, host_map = json.loads(sys.argv[1])
router = Router()


def die(when):
    try:
        open(f"killed-{when}", "x").close()
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def is_settling(settlements, *rest):
    return any("/op" in settled.entry.url for settlement in settlements for settled in settlement.urls)


def dies_around(owner, name, is_meant, before, after):
    call = getattr(owner, name)

    async def watched(self, *arguments):
        is_it = is_meant(*arguments)
        if is_it and before:
            die(before)
        answer = await call(self, *arguments)
        if is_it and after:
            die(after)
        return answer

    setattr(owner, name, watched)


if operation in ("enqueue", "Retry", "on_failure", "stop"):
    dies_around(Frontier, "settle", is_settling, "during", "after")
elif operation in ("set", "increment"):
    dies_around(SharedValues, "_call", lambda verb, *rest: verb == operation, "", "during")
    dies_around(Frontier, "settle", is_settling, "after", "")
elif operation == "add":
    dies_around(Frontier, "push", lambda entries: "added" in str(entries), "", "during")


@router.handler("/op")
async def handle(page: ParsedPage, crawl: Handle) -> None:
    die("before")
    options = {"headers": {"X-Pid": str(os.getpid())}}
    if operation == "enqueue":
        for number in range(3):
            await crawl.enqueue(f"/post/{number}", data={"n": number}, unique_key=str(number))
    elif operation == "fetch":
        await crawl.fetch("/api", **options)
    elif operation == "fetch elsewhere":
        await asyncio.gather(*(crawl.fetch(f"http://{host}/api", **options) for host in hosts[1:]))
    elif operation == "download":
        file = await crawl.download("/api", **options)
        assert open(f"crawl-out/{file.path}").read() == "answer"
    elif operation == "Retry" and not page.tries:
        raise Retry("again", after=0.2)
    elif operation == "set":
        await crawl.store.set("value", "kept")
        assert await crawl.store.get("value") == "kept"
    elif operation == "increment":
        assert await crawl.store.increment("value") >= 1
    elif operation == "stop":
        crawl.stop("enough")
    if "fetch" in operation or operation == "download":
        die("after")
    await crawl.push("items", {"url": page.url})


@router.handler()
@router.on_failure(kind=404)
async def other(page: ParsedPage, crawl: Handle) -> None:
    if operation == "on_failure" and "/op" in page.url:
        die("before")
    await crawl.push("items", {"url": page.url})


async def main():
    settings = {
        "fetch": {"host_map": host_map},
        "politeness": {"delay": 0.05, "backoff_base": 0.1},
        "frontier": {"lease": 1.5},
        "handlers": {"timeout": 10},
        "scope": {"guess_sitemaps": False},
    }
    async with Crawl([f"http://{host}/" for host in hosts], handlers=router, settings=settings) as crawl:
        if operation == "add":
            die("before")
            await crawl.add("http://a.test/added")
            die("after")
        await crawl.finish()
    if operation == "export":
        die("before")
        sys.addaudithook(lambda event, arguments: event == "os.rename" and "items" in str(arguments[1]) and die("during"))
        crawl.export("items", "items.jsonl")
        die("after")


asyncio.run(main())
"""


class KillingSite(Site):
    """Kills who requests /api before it answers, once. `sent`: how often each request came."""

    def __init__(self, folder: Path, op_status: int) -> None:
        super().__init__()
        self.folder, self.op_status, self.sent = folder, op_status, Counter[tuple[str, str, str, bytes]]()

    def respond(self, request: Request) -> Reply | str | None:
        self.sent[request.method, request.host, request.path, request.body] += 1
        if request.path == "/":
            links = "".join(f"<a href=/p/{number}>" for number in range(PAGES))
            return f"<a href=/op>{links}" if request.host == "a.test" else links
        if request.path == "/api":
            with contextlib.suppress(FileExistsError):
                (self.folder / "killed-during").touch(exist_ok=False)
                os.kill(int(request.headers["X-Pid"]), signal.SIGKILL)
                time.sleep(0.2)
            return Reply("answer", headers={"Content-Type": "text/plain"})
        if request.path == "/op":
            return Reply("<title>Op</title>", self.op_status)
        return None if request.path == "/robots.txt" else f"<title>{request.path}</title>"


def settled(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in folder.glob("crawl-out/*.pages.jsonl")]
    return [line for text in texts for line in map(json.loads, text.splitlines()) if line["outcome"] != "retry"]


OPERATIONS = (
    *("enqueue", "fetch", "fetch elsewhere", "download", "Retry", "on_failure", "set", "increment"),
    *("stop", "add", "export"),
)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_before_during_or_after_it_loses_nothing_and_repeats_no_more_than_it_may(
    tmp_path: Path, operation: str
) -> None:
    expected = {
        f"http://{host}{path}" for host in HOSTS for path in ("/", *(f"/p/{number}" for number in range(PAGES)))
    }
    posts = {f"http://a.test/post/{number}#{number}" for number in range(3)} if operation == "enqueue" else set[str]()
    expected |= {"http://a.test/op"} | posts | ({"http://a.test/added"} if operation == "add" else set())
    (tmp_path / "program.py").write_text(PROGRAM)
    started = count()
    with KillingSite(tmp_path, 404 if operation == "on_failure" else 200) as site:
        arguments = json.dumps([operation, HOSTS, site.host_map(*HOSTS)])
        words, environment = [sys.executable, "program.py", arguments], {"PYTHONPATH": str(ROOT)}

        def start() -> Running:
            return Running(words, tmp_path, f"program-{next(started)}", environment)

        running, killed = [start() for _ in range(2 if operation == "fetch elsewhere" else 1)], 0
        while running:
            done = running.pop().wait()
            assert done.code in (0, -signal.SIGKILL), done.err
            killed += done.code != 0
            if done.code or (operation == "stop" and len(settled(tmp_path)) < len(expected)):
                running.append(start())
    assert killed == 3, sorted(path.name for path in tmp_path.glob("killed-*"))
    lines = settled(tmp_path)
    assert Counter(line["url"] for line in lines) == Counter(expected)
    lost = {line["url"] for line in lines if line["reason"] == "maybe_sent"}
    assert lost <= posts
    assert all(line["outcome"] == "done" for line in lines if line["url"] not in lost)
    items = Counter(item["url"] for line in lines for item in (line["items"] or {}).get("items", ()))
    assert items == Counter(url.partition("#")[0] for url in expected - lost)
    if operation == "export":
        exported = [json.loads(line)["url"] for line in (tmp_path / "items.jsonl").read_text().splitlines()]
        assert Counter(exported) == Counter(expected)
    assert all(times == 1 for (method, *_), times in site.sent.items() if method == "POST"), site.sent
    assert sum(method == "POST" for method, *_ in site.sent) >= len(posts - lost)
