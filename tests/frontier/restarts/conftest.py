"""A server that can lose its last writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.frontier.restarts.server import Server


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    with server.process:
        yield server


@pytest.fixture
async def server(process: Server) -> AsyncIterator[Server]:
    yield process
    await process.close()
