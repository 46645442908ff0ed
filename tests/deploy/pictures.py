"""Draws the dashboards of Grafana for the documentation: python -m tests.deploy.pictures [SECONDS]

A crawl of a synthetic web runs, and a real Prometheus scrapes it; meanwhile replicas join, one is killed, and the settings
change. Then `dashboards.html` draws each panel where the JSON of the dashboard places it, with the results of its queries,
in Chromium. No packaged Grafana was available; its own drawings differ in details.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.deploy.prometheus import Prometheus
from tests.e2e.harness import Bench, Tables, Web, bench, wait_until
from tests.observe.web.browser import Browser
from tests.valkey import ValkeyProcess

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
PAGE = Path(__file__).with_name("dashboards.html")
STEP_S, WIDTH = 2, 1400
TABLES: Tables = {
    "politeness": {"delay": 1.0, "backoff_base": 2.0},
    "replica": {"listen": "127.0.0.1:0", "interval": 1.0},
    "frontier": {"shards": 256},
    "recrawl": {"rules": ["adaptive min=10s max=5m start=30s gain=1s"]},
}


def crawl(commands: Bench, prometheus_folder: Path, seconds: float) -> dict[str, Any]:
    """Let something happen for `seconds`. Returns the data for the page of each dashboard, by name."""
    commands.seed()
    replicas = [commands.start("run")]
    found = wait_until(lambda: re.search(r"replica_started .*address=(\S+)", replicas[0].err), "a replica")
    with Prometheus(prometheus_folder, str(found[1])) as prometheus:
        start_s = time.time()

        def wait(share: float) -> None:
            time.sleep(max(0.0, start_s + share * seconds - time.time()))

        wait(0.2)
        replicas += [commands.start("run"), commands.start("run")]
        wait(0.5)
        commands.apply({"politeness": {"delay": 0.5}})
        wait(0.75)
        replicas[1].send(signal.SIGKILL)
        wait(1.0)
        span = (time.time() - seconds + 5, time.time())
        return {file.stem: _data(json.loads(file.read_text()), prometheus, span) for file in DASHBOARDS.glob("*.json")}


def _data(board: dict[str, Any], prometheus: Prometheus, span: tuple[float, float]) -> dict[str, Any]:
    def ask(expression: str) -> list[dict[str, Any]]:
        for name, value in {"crawl": "crawl", "replica": ".*", "__rate_interval": "12s", "__range": "5m"}.items():
            expression = expression.replace(f"${name}", value)
        return prometheus.series(expression, *span, STEP_S)

    for panel in board["panels"]:
        panel["series"] = [
            {"legend": _legend(target["legendFormat"], series["metric"]), "values": series["values"]}
            for target in panel.get("targets", ())
            for series in ask(target["expr"])
        ]
    marks = [
        {"at": at, "colour": one["iconColor"]}
        for one in board["annotations"]["list"]
        for series in ask(one["expr"])
        for at in _starts([at for at, _ in series["values"]])
    ]
    return {"board": board, "marks": marks, "from": span[0], "to": span[1], "step": STEP_S}


def _starts(times: list[float]) -> list[float]:
    """The first time of each run of consecutive steps."""
    return [at for before, at in zip([0.0, *times], times, strict=False) if at - before > STEP_S]


def _legend(template: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template)


async def draw(boards: dict[str, Any], pages: Path, images: Path) -> None:
    """Write a picture of each dashboard."""
    async with Browser() as browser:
        for name, data in boards.items():
            page = pages / f"{name}.html"
            text = json.dumps(data).replace("</", "<\\/")
            page.write_text(PAGE.read_text().replace("/*DATA*/null", text))
            await browser.look(WIDTH, 900)
            await browser.open(page.as_uri())
            await browser.wait_for("document.body && document.body.dataset.height > 0")
            await browser.look(WIDTH, int(await browser.value("document.body.dataset.height")))
            (images / f"dashboard-{name}.png").write_bytes(await browser.screenshot())
            assert browser.errors == [], browser.errors


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            ValkeyProcess(folder, persistent=False) as valkey,
            Web(folder, domains=60, pages=20_000) as web,
            bench(folder, web, valkey.url, TABLES) as commands,
        ):
            boards = crawl(commands, folder, seconds)
        asyncio.run(draw(boards, folder, ROOT / "docs" / "img"))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 300.0)
