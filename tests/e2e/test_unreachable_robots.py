"""Commands say that a domain waits for its robots.txt, and when it is asked again."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import Running, wait_until
from tests.e2e.test_requeue import BrokenSite, folder, site  # noqa: F401 - fixtures
from tests.e2e.test_start_settings import Folder
from tests.ports import free_port

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("reason", ["http_503", "refused"])
def test_a_domain_that_waits_for_its_robots_txt_is_shown(
    site: BrokenSite,  # noqa: F811
    folder: Folder,  # noqa: F811
    tmp_path: Path,
    reason: str,
) -> None:
    site.robots = 503
    port = site.port if reason == "http_503" else free_port()
    tables = {"politeness": {"tries": 5, "backoff_base": 600.0}, "fetch": {"allow_private": True, "ports": [port]}}
    folder.write(tables)
    url = f"http://127.0.0.1:{port}/1"
    assert folder.type("seed", url, "-s", "crawler.toml").code == 0
    replica = Running([sys.executable, "-m", "crawler", "run"], tmp_path, "replica", {})
    try:
        wait_until(lambda: "next try in" in folder.type("why", url).out, "the file to be unreachable")
        assert re.search(
            rf"(queued|tried again): robots.txt unreachable \({reason}\), next try in \d\d\d s",
            folder.type("why", url).out,
        )

        def shown() -> bool:
            return f"robots.txt unreachable ({reason})" in " ".join(folder.type("domains").out.split())

        wait_until(shown, "the next summary")
        (line,) = json.loads(folder.type("domains", "--json").out)["resting"]
        assert (line["domain"], line["queued"], line["robots"]) == ("127.0.0.1", 1, reason)
    finally:
        replica.send(signal.SIGTERM)
        replica.wait()
