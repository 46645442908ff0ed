"""The server that simulated clusters run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.wire import Wire
from tests.valkey import ValkeyProcess


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """A server of its own: each run begins by emptying it."""
    with ValkeyProcess(tmp_path_factory.mktemp("simulation"), persistent=False) as server:
        wire = Wire(server.socket)
        yield wire
        wire.close()
