"""What the processes that read strangers' documents inherit."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.parse.content_coding import DEFAULT_LIMIT
from crawler.parse.document import Document, ParseLimits
from crawler.parse.html import ExtractPolicy
from crawler.parse.subprocess_client import OffloadProcess
from crawler.sinks.content import content_of
from crawler.sinks.content_process import Job, TextProcess
from tests.sinks.test_content import HTML
from tests.sinks.test_content_process import document

SECRETS = {
    "CRAWLER_REPLICA__REDIS": "redis://:s3cret@queue:6379/0",
    "REDIS_URL": "redis://:s3cret@queue:6379/0",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "ANY_TOKEN": "s3cret",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def assert_confined(pid: int) -> None:
    assert b"s3cret" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert "NoNewPrivs:\t1\n" in Path(f"/proc/{pid}/status").read_text()


async def test_the_process_that_parses_documents_is_confined() -> None:
    process = OffloadProcess()
    link = Document(b"<a href=x>x</a>", "https://a.test/", content_type="text/html")
    try:
        found = await process.read(link, ParseLimits(ExtractPolicy(), DEFAULT_LIMIT))
        assert found is not None
        assert [one.url for one in found.found.links] == ["https://a.test/x"]
        assert process.pid is not None
        assert_confined(process.pid)
    finally:
        await process.stop()


def test_the_process_that_finds_texts_is_confined() -> None:
    process, before = TextProcess(), children()
    try:
        job = Job(document(HTML), "text", structured=True)
        assert process.content_of(job) == content_of(*job)
        (pid,) = children() - before
        assert_confined(pid)
    finally:
        process.stop()


def children() -> set[int]:
    """The ids of the processes that this thread has started."""
    return {int(pid) for pid in Path("/proc/thread-self/children").read_text().split()}
