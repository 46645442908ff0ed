"""What the tests of this package share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """A `crawler.Crawl` configures the log of its process, which later tests read."""
    loggers = [logging.getLogger(name) for name in ("crawler", "asyncio")]
    before = [(one.handlers[:], one.propagate, one.level) for one in loggers]
    yield
    for one, (handlers, propagate, level) in zip(loggers, before, strict=True):
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)
