"""A real PostgreSQL server, and the export of a data set to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import PASSWORD, PostgresProcess
from tests.sinks.postgres.exports import Export
from tests.typed import Finished, Typed


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    with PostgresProcess() as server:
        yield server


@pytest.fixture
def export(typed: Typed, server: PostgresProcess) -> Iterator[Export]:
    """Exports the data set `shop` of the folder `out` to the table `shop`, with the key `url`."""

    def run(*words: str, to: str = "", keys: tuple[str, ...] = ("--key", "url")) -> Finished:
        given = ("export", "out", "--items", "shop", "--to", to or server.url, *keys, *words)
        return typed(*given, environment={"PGPASSWORD": PASSWORD})

    server.query("DROP TABLE IF EXISTS shop, crawler_positions")
    yield run
    server.query("DROP TABLE IF EXISTS shop, crawler_positions")
