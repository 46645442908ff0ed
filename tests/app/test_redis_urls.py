"""The password of Redis, wherever it is in the URL, appears in no output, log or page, whether Redis answers or not."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Running, wait_until
from tests.ports import free_port
from tests.typed import Typed
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

PASSWORD, WRONG = "s3cr3t%2Fpw", "s3cr3t-too"
URLS = (
    "redis://:{password}@127.0.0.1:{port}",
    "redis://default:{password}@127.0.0.1:{port}/0",
    "redis://127.0.0.1:{port}?password={password}",
    "redis://127.0.0.1:{port}/0?username=default&password={password}",
    "unix://default:{password}@{socket}",
    "unix://{socket}?password={password}",
)
PAGES = ("/", "/snapshot", "/sd", "/why?url=http://a.test/", "/domain?name=a.test", "/readyz", "/healthz", "/metrics")
COMMANDS = (("status",), ("why", "http://a.test/"), ("crawl", "-q"), ("config", "check", "crawler.toml"), ("doctor",))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ValkeyProcess, int]]:
    port = free_port()
    options = ("--requirepass", PASSWORD.replace("%2F", "/"), "--port", str(port))
    with ValkeyProcess(tmp_path_factory.mktemp("valkey"), persistent=False, options=options) as valkey:
        yield valkey, port


@pytest.mark.parametrize("form", URLS)
def test_no_output_has_the_password(
    form: str, server: tuple[ValkeyProcess, int], tmp_path: Path, typed: Typed, crawl_name: str
) -> None:
    valkey, port = server
    url = form.format(password=PASSWORD, port=port, socket=valkey.socket)
    environment = {"CRAWLER_REPLICA__REDIS": url, "CRAWLER_REPLICA__INTERVAL": "0.5"}
    (tmp_path / "crawler.toml").write_text("")
    seeded = typed("seed", "http://a.invalid/", "--crawl", crawl_name, environment=environment)
    replica = Running([sys.executable, "-m", "crawler", "run", "--crawl", crawl_name], tmp_path, "run", environment)

    def shown() -> list[str]:
        done = [typed(*words, environment=environment) for words in COMMANDS]
        return [text for one in done for text in (one.out, one.err)] + [page(found[1], path) for path in PAGES]

    try:
        found = wait_until(lambda: re.search(r"replica_started .*address=(\S+)", replica.err), "a replica to start")
        texts = [seeded.out, *shown()]
        refused = typed("status", environment={"CRAWLER_REPLICA__REDIS": url.replace(PASSWORD, WRONG)})
        valkey.kill()
        wait_until(lambda: "redis_away" in replica.err, "the replica to notice")
        texts += shown()
    finally:
        replica.kill()
        if not valkey.socket.exists():
            valkey.start()
    assert seeded.code == 0
    assert "refused the credentials" in refused.err
    assert sum("cannot serve now" in text for text in texts) >= 4
    assert [text for text in (*texts, refused.err, replica.out, replica.err) if "s3cr3t" in text] == []


def page(address: str, path: str) -> str:
    """The page, also of an error."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
