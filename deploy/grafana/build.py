"""Writes the dashboards in `dashboards/` from `panels.py`: python deploy/grafana/build.py"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panels import ALL, Dashboard, Panel

FOLDER = Path(__file__).parent / "dashboards"
WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4


def rendered(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana's JSON model."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.answers,
        "tags": ["peercrawl"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "links": [
            {
                "type": "dashboards",
                "tags": ["peercrawl"],
                "title": "peercrawl",
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": _variables(dashboard)},
        "annotations": {"list": []},
        "panels": _placed(dashboard.panels),
    }


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    named = [
        {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
            "hide": 0,
        }
    ]
    wanted = [("crawl", "Crawl", "label_values(peercrawl_replicas, crawl)", False)]
    if dashboard.by_instance:
        wanted.append(("instance", "Replica", 'label_values(peercrawl_replicas{crawl="$crawl"}, instance)', True))
    for name, label, query, several in wanted:
        named.append(
            {
                "name": name,
                "label": label,
                "type": "query",
                "query": {"query": query, "refId": name},
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "refresh": 2,
                "sort": 1,
                "multi": several,
                "includeAll": several,
                "current": {},
                "hide": 0,
            }
        )
    return named


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The panels from left to right and from top to bottom."""
    placed, x, y, row_height = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        height = STAT_HEIGHT if panel.kind == "stat" else HEIGHT
        if x + panel.width > WIDTH or (row_height and height != row_height):
            x, y = 0, y + row_height
        row_height = height
        placed.append(_panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height}))
        x += panel.width
    return placed


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if panel.kind == "stat":
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "colorMode": "value" if panel.red_from is not None else "none",
            "graphMode": "area",
        }
    else:
        stacking = {"mode": "normal" if panel.stack else "none", "group": "A"}
        defaults["custom"] = {
            "fillOpacity": 25 if panel.stack else 8,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": stacking,
        }
    return {
        "id": number,
        "title": panel.title,
        "description": panel.help,
        "type": panel.kind,
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(65 + at), "expr": expr, "legendFormat": legend or "__auto", "datasource": source}
            for at, (expr, legend) in enumerate(panel.queries.items())
        ],
    }


def files() -> dict[Path, str]:
    """The file of each dashboard -> its content."""
    return {
        FOLDER / f"{dashboard.uid.removeprefix('peercrawl-')}.json": json.dumps(rendered(dashboard), indent=1) + "\n"
        for dashboard in ALL
    }


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text)
