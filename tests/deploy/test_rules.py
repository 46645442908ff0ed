"""The configuration of Prometheus and Grafana is well-formed and agrees with the code and the runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric

from crawler.observe.metrics import Metrics
from tests.metrics_list import families

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARDS = DEPLOY / "grafana" / "dashboards"
OF_PROMETHEUS = ("step", "titleFormat", "textFormat")
"""Keys of an annotation that Grafana's plugin for Prometheus reads (packages/grafana-prometheus/src/annotations.ts)."""

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's prometheus")


def promtool(*words: str, input: bytes = b"") -> None:
    done = subprocess.run(
        ["promtool", *words], cwd=DEPLOY / "prometheus", input=input, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [("check", "rules", "rules.yml"), ("check", "config", "prometheus.yml"), ("test", "rules", "rules.test.yml")],
    ids=" ".join,
)
def test_promtool_finds_nothing(words: tuple[str, ...]) -> None:
    promtool(*words)


@needs_promtool
def test_the_names_of_metrics_follow_prometheus() -> None:
    promtool("check", "metrics", input=Metrics().render())


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_has_its_section_in_the_runbook() -> None:
    runbook = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
    for rule in rules():
        if "alert" in rule:
            assert f"\n### {rule['alert']}\n" in runbook, rule["alert"]
            assert rule["annotations"]["runbook"] == f"docs/how-to/runbook.md#{rule['alert'].lower()}"


def test_every_alert_is_tested() -> None:
    tested = (DEPLOY / "prometheus" / "rules.test.yml").read_text()
    assert [rule["alert"] for rule in rules() if "alert" in rule and f"alertname: {rule['alert']}" not in tested] == []


def test_rules_and_dashboards_name_only_metrics_that_exist() -> None:
    exposed = {sample for family in families() for sample in exposed_names(family)}
    text = (DEPLOY / "prometheus" / "rules.yml").read_text()
    text += "".join(file.read_text() for file in DASHBOARDS.glob("*.json"))
    named = set(re.findall(r"(?<![:\w])peercrawl_\w+", text))
    assert named <= exposed, named - exposed


def exposed_names(family: Metric) -> list[str]:
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
    return [family.name + suffix for suffix in suffixes]


def test_the_dashboards_are_up_to_date() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import build; print([str(f) for f, text in build.files().items() if f.read_text() != text])",
        ],
        cwd=DEPLOY / "grafana",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]", "run python deploy/grafana/build.py"


@pytest.mark.parametrize("file", sorted(DASHBOARDS.glob("*.json")), ids=lambda file: file.stem)
def test_grafana_knows_every_key_of_a_dashboard(file: Path) -> None:
    """The classes of the SDK are generated from Grafana's schemas. A key that they do not know is lost in a round trip."""
    sdk = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins.register_default_plugins()
    board = json.loads(file.read_text())
    through = json.loads(json.dumps(sdk.Dashboard.from_json(board), cls=encoder.JSONEncoder))
    assert lost(board, through) == [f"/annotations/list/{at}/{key}" for at in range(3) for key in OF_PROMETHEUS]
    board["panels"][1]["targets"][0]["exprr"] = "up"
    through = json.loads(json.dumps(sdk.Dashboard.from_json(board), cls=encoder.JSONEncoder))
    assert lost(board, through)[-1] == "/panels/1/targets/0/exprr"


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """The paths at which `after` lacks or changes a value of `before`."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [(key, after.get(key, ...)) for key in before]
        return [place for key, value in keys for place in lost(before[key], value, f"{path}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [place for at, (old, new) in pairs for place in lost(old, new, f"{path}/{at}")]
    return [] if before == after else [path]
