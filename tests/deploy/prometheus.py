"""A real Prometheus under a test's control, with the project's configuration and much shorter intervals."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.e2e.harness import wait_until
from tests.ports import free_port

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def hurried(text: str) -> str:
    """The rules with times divided by sixty, and ranges that still contain a few scrapes."""

    def seconds(match: re.Match[str]) -> int:
        return int(match[1]) * _SECONDS[match[2]]

    text = re.sub(r"\[(\d+)([smh])\]", lambda match: f"[{max(8, seconds(match) // 30)}s]", text)
    return re.sub(r"for: (\d+)([smh])", lambda match: f"for: {max(1, seconds(match) // 60)}s", text)


class Prometheus:
    """Scrapes the replicas that `any_replica` (address:port) lists, every second."""

    def __init__(self, folder: Path, any_replica: str) -> None:
        self._folder = folder
        config = (FOLDER / "prometheus.yml").read_text().replace("crawler:9410", any_replica)
        config = re.sub(r"(_interval: )\d+s", r"\g<1>1s", config)
        (folder / "prometheus.yml").write_text(config)
        (folder / "rules.yml").write_text(hurried((FOLDER / "rules.yml").read_text()))
        self._port = free_port()

    def __enter__(self) -> Prometheus:
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(self._is_ready, "Prometheus")
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder / "tsdb", ignore_errors=True)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **arguments: str) -> Any:
        """The data of a response of the HTTP API."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The samples of an instant query."""
        return [(one["metric"], float(one["value"][1])) for one in self.ask("query", query=expression)["result"]]

    def marks(self, expression: str) -> list[dict[str, str]]:
        """The labels of all series that an expression had in the last minutes."""
        now = time.time()
        found = self.ask("query_range", query=expression, start=str(now - 300), end=str(now), step="1")
        return [one["metric"] for one in found["result"]]

    def value(self, expression: str) -> float | None:
        """The single value of an expression, or None if it has none or several."""
        samples = self.query(expression)
        return samples[0][1] if len(samples) == 1 else None

    def alerts(self, name: str) -> set[str]:
        """The states of an alert: pending, firing, both or none."""
        return {alert["state"] for alert in self.ask("alerts")["alerts"] if alert["labels"]["alertname"] == name}

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
