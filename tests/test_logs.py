"""What the log writes, what it holds back, and what it never writes."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from crawler import logs
from crawler.events import GroupCommitted, PageSettled, SinkBlocked
from crawler.logs import BURST, WINDOW_S, LogListener, Repeats, without_secrets
from crawler.page import Outcome, Page

SECRET = "s3cr3t-w0rd"


@pytest.fixture(params=["console", "json"])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What is logged from here on, in either form."""
    text = io.StringIO()
    logs.configure(request.param, "info", text)
    yield text
    for name in ("crawler", "asyncio"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


@pytest.mark.parametrize(
    "text",
    [
        f"redis://user:{SECRET}@host:6379/0 cannot",
        f"error at rediss+cluster://:{SECRET}@host",
        f"unix:///run/valkey.sock?db=0&password={SECRET}&x=1",
        f"redis+sentinel://host/name?sentinel_password={SECRET}",
        f"'rediss://host?db=1&ssl_password={SECRET}'",
        f"unix:///run/s?pass%77ord={SECRET}&pasword={SECRET}",
        f"postgresql://host/db?sslpassword={SECRET}",
        f"fetch of http://me:{SECRET}@site.test/path failed",
    ],
)
def test_credentials_in_urls_are_not_written(written: io.StringIO, text: str) -> None:
    logs.log(logging.ERROR, "redis_away", error=OSError(text))
    assert SECRET not in written.getvalue()
    assert SECRET not in without_secrets(text)
    assert "***" in written.getvalue()


def test_a_command_to_copy_stays_as_it_is() -> None:
    url = "rediss+sentinel://USER:PASSWORD@host/name?db=1&sentinel_password=PASSWORD&ssl_ca_certs=/ca.pem"
    text = f"start one with `crawler run --redis '{url}'`, or {url}; see http://a.test/?db=secret"
    assert without_secrets(text) == text


def test_a_plain_url_stays_as_it_is() -> None:
    assert without_secrets("http://a.test/x@y?z=1") == "http://a.test/x@y?z=1"


def test_a_seed_that_failed_and_the_end_of_a_full_disk_are_written(written: io.StringIO) -> None:
    listener = LogListener("r1")
    for depth, outcome in ((0, Outcome.DEAD), (1, Outcome.DEAD), (0, Outcome.DONE)):
        url = f"http://{outcome}-{depth}.test/"
        listener.observe(PageSettled(Page(url, "a.test", depth, outcome, "no_such_host", 1.0)))
    committed = GroupCommitted(1, 1, 0.0, 0.0, 0.0, 0, 0.0)
    for event in (committed, SinkBlocked("full"), committed, committed):
        listener.observe(event)
    lines = written.getvalue()
    assert (lines.count("seed_failed"), lines.count("http://dead-0.test/")) == (1, 1)
    assert lines.count("sink_back") == 1


def test_a_failure_is_written_with_its_traceback(written: io.StringIO) -> None:
    try:
        raise ValueError(f"http://u:{SECRET}@h/")
    except ValueError as error:
        logs.logger.error("replica_failed", exc_info=error, extra={"fields": {"replica": "r1"}})
    text = written.getvalue()
    assert "test_a_failure_is_written_with_its_traceback" in text
    assert SECRET not in text
    if text.startswith("{"):
        assert json.loads(text)["event"] == "replica_failed"


def record(event: str, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("crawler", level, "", 0, event, (), None)


def test_a_repeating_warning_is_held_back_and_counted() -> None:
    now = 0.0
    repeats = Repeats(lambda: now)
    assert [repeats.filter(record("a")) for _ in range(BURST + 3)] == [True] * BURST + [False] * 3
    assert repeats.filter(record("b"))
    assert all(repeats.filter(record("c", logging.INFO)) for _ in range(99))
    now = WINDOW_S
    after = record("a")
    assert repeats.filter(after)
    assert after.fields == {"held_back": 3}  # type: ignore[attr-defined]
    now = 2 * WINDOW_S
    quiet = record("a")
    assert repeats.filter(quiet)
    assert not hasattr(quiet, "fields")


def test_asyncio_does_not_flood_the_log(written: io.StringIO) -> None:
    """Without a file descriptor, it reports each connection that it cannot accept."""
    for number in range(100):
        error = OSError(24, "Too many open files")
        logging.getLogger("asyncio").error(
            f"socket.accept() out of system resource\nsocket: <{number}>", exc_info=(OSError, error, None)
        )
    assert written.getvalue().count("out of system resource") == BURST


def test_what_is_still_held_back_at_the_end_is_reported_once(written: io.StringIO) -> None:
    for name, number in (("items_rejected", BURST + 4), ("other", BURST)):
        for _ in range(number):
            logs.log(logging.WARNING, name)
    logs.log_held_back()
    logs.log_held_back()
    lines = written.getvalue().splitlines()
    assert len(lines) == 2 * BURST + 1
    assert "held_back" in lines[-1]
    assert re.search('items_rejected"?[=:]4', lines[-1])
