"""Writes the dashboards in `dashboards/` from `about_*.py`: python deploy/grafana/build.py"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from about_cluster import CLUSTER, REDIS, REPLICA
from about_crawl import FRONTIER, OVERVIEW, POLITENESS
from model import ANNOTATIONS, Annotation, Dashboard, Panel, Row

ALL = (OVERVIEW, FRONTIER, POLITENESS, CLUSTER, REDIS, REPLICA)
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
FOLDER = Path(__file__).parent / "dashboards"
WIDTH, HEIGHT, STAT_HEIGHT, ROW_HEIGHT = 24, 8, 4, 1


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
        "annotations": {"list": [_annotation(one) for one in ANNOTATIONS]},
        "panels": _placed(dashboard.rows),
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
    if dashboard.by_replica:
        wanted.append(("replica", "Replica", 'label_values(peercrawl_replicas{crawl="$crawl"}, replica)', True))
    for name, label, query, several in wanted:
        named.append(
            {
                "name": name,
                "label": label,
                "type": "query",
                "query": {"query": query, "refId": name},
                "datasource": SOURCE,
                "refresh": 2,
                "sort": 1,
                "multi": several,
                "includeAll": several,
                "current": {},
                "hide": 0,
            }
        )
    return named


def _annotation(annotation: Annotation) -> dict[str, Any]:
    """`expr`, `step`, `titleFormat` and `textFormat` are keys of the Prometheus data source."""
    return {
        "name": annotation.name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": annotation.colour,
        "expr": annotation.query,
        "step": "10s",
        "titleFormat": annotation.name,
        "textFormat": annotation.text,
    }


def _placed(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows from top to bottom, each with its panels from left to right."""
    placed: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        placed.append(_heading(len(placed) + 1, row.title, y))
        x, y = 0, y + ROW_HEIGHT
        for panel in row.panels:
            height = STAT_HEIGHT if panel.kind == "stat" else HEIGHT
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            placed.append(_panel(len(placed) + 1, panel, {"x": x, "y": y, "w": panel.width, "h": height}))
            x += panel.width
        y += height
    return placed


def _heading(number: int, title: str, y: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": WIDTH, "h": ROW_HEIGHT}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
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
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(65 + at), "expr": expr, "legendFormat": legend or "__auto", "datasource": SOURCE}
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
