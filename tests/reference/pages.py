"""The texts of docs/settings.md, docs/cli.md and docs/metrics.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer.main

from crawler.cli.main import EXIT_CODES, app
from crawler.observe.collectors import Own, own_families
from crawler.observe.metric_types import Counter, Histogram
from crawler.observe.metrics import Metrics
from crawler.settings import reference
from crawler.settings.reference import PRESETS, Setting
from crawler.settings.tables import Table
from tests.metrics_list import families

DOCS = Path(__file__).parents[2] / "docs"
_MADE = "<!-- Made from the code by `python -m tests.reference`; a test compares. -->"


def settings_page() -> str:
    """Every setting."""
    lines = [
        "# Settings",
        "",
        _MADE,
        "",
        "A setting comes from, in rising order of precedence: its default, the TOML file (`--settings FILE`), the",
        "environment (`CRAWLER_<TABLE>__<KEY>`), the command line. Unknown or malformed keys stop the start, and the",
        "message names them. `crawler init` writes a file in which each is explained, `crawler config check FILE` looks",
        "one over, `crawler config explain NAME` tells what stands here.",
        "",
        "All tables but `[replica]` belong to the crawl: they are stored in Redis when the crawl is created, so that all",
        "replicas obey the same ones. `crawler config apply FILE` replaces them, as a new revision that running replicas",
        "follow within two seconds, in all that they do from then on: what is queued stays queued, and a rest that has",
        "begun ends as it was. Where the column *live* says no, a replica takes the change up when it is started again;",
        "until then `crawler status` names it.",
        "",
        "A `crawl`, `seed` or `run` whose settings differ from those of the crawl shows the difference and stops, unless",
        "`--keep-settings` or `--apply-settings` is given; [operations](operations.md) tells what is compared.",
        "",
        "## Presets",
        "",
        "`crawler init --preset NAME`:",
        "",
        "| preset | for | sets |",
        "|---|---|---|",
    ]
    for name, (meaning, values) in PRESETS.items():
        told = ", ".join(f"`{key} = {reference.as_toml(value)}`" for key, value in values.items()) or "nothing"
        lines.append(f"| `{name}` | {meaning} | {told} |")
    for table, model in {**reference.tables(), **reference.repeated()}.items():
        brackets = f"[[{table}]]" if table in reference.repeated() else f"[{table}]"
        lines += ["", f"## `{brackets}`", "", _about(model), ""]
        lines += ["| setting | type | default | live | meaning |", "|---|---|---|---|---|"]
        lines += [_setting_row(one) for one in reference.all_settings() if one.table == table]
    return "\n".join(lines) + "\n"


def _setting_row(one: Setting) -> str:
    default = "unset" if one.default is None else f"`{reference.as_toml(one.default)}`"
    fixed = " Fixed when the crawl is created." if one.name in reference.FIXED else ""
    shared = {**reference.tables(), **reference.repeated()}[one.table].restart
    live = "yes" if not one.because else "no" if one.because == shared else f"no: {one.because}"
    return f"| `{one.key}` | {_cell(one.kind)} | {_cell(default)} | {_cell(live)} | {_cell(one.meaning + fixed)} |"


def _about(model: type[Table]) -> str:
    """What a table is for, and why its settings wait for a restart where they all have one reason."""
    meaning = " ".join((model.__doc__ or "").split())
    return f"{meaning} No change is live: {model.restart}." if model.restart else meaning


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def cli_page() -> str:
    """Every command and option."""
    lines = [
        "# Command line",
        "",
        _MADE,
        "",
        "`crawler COMMAND --help` shows the same. `crawler --install-completion` teaches the shell to complete.",
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()),
    ]
    for path, command in commands(typer.main.get_command(app)):
        lines += ["", f"## `{path}`", "", *_described(command)]
        lines += _parameters([one for one in command.params if one.name != "help"])
    return "\n".join(lines) + "\n"


def commands(group: Any, path: str = "crawler") -> Iterator[tuple[str, Any]]:
    """(full name, command) of every command that does something by itself."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _described(command: Any) -> list[str]:
    """The help text with its examples as a shell block."""
    text, _, examples = re.sub(r"\[bold\](Examples?)\[/bold\]", r"@@\1", command.help or "").partition("@@")
    lines = [re.sub(r"\[/?bold\]", "", line.strip()) for line in text.strip().splitlines()]
    found = [line.strip() for line in examples.splitlines() if line.strip().startswith("crawler ")]
    return [*lines, "", *(["```sh", *found, "```", ""] if found else [])]


def _parameters(parameters: Iterable[Any]) -> list[str]:
    rows = []
    for one in parameters:
        names = (
            ", ".join(f"`{name}`" for name in one.opts) if one.param_type_name == "option" else f"`{one.name.upper()}`"
        )
        rows.append(f"| {names} | {_cell(_told(one))} |")
    return ["| | |", "|---|---|", *rows] if rows else []


def _told(one: Any) -> str:
    default = one.default
    shown = getattr(one, "show_default", True) is not False and default not in (None, False, (), [])
    return f"{one.help or ''}{f' Default `{default}`.' if shown and not callable(default) else ''}".strip()


def metrics_page() -> str:
    """Every metric."""
    metrics = Metrics()
    labels = {of.name: of.label_names for of in vars(metrics).values() if isinstance(of, Counter | Histogram)}
    lines = [
        "# Metrics",
        "",
        _MADE,
        "",
        "Each replica serves them at `/metrics`; `/sd` of any replica tells Prometheus where all of them are. Prometheus",
        "adds `instance`, and service discovery `crawl` and `replica`. No label takes its values from the web: reasons are",
        "words of closed lists, statuses are classes. The Python client has classic histograms only; Prometheus 3 keeps",
        "them in native form with `convert_classic_histograms_to_nhcb: true` in the scrape configuration.",
        "",
        "Figures of the whole crawl (marked *crawl*) are exported by one replica at a time, the one with index 1, from a",
        "survey of the books that takes about 50 us of its CPU a shard: use `max by (crawl)`, and never `sum`. All others",
        "are a replica's own. `process_*` metrics are the client library's.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    own = {family.name for family in metrics.registry.collect()} | _own_readings()
    for family in families():
        name = family.name + ("_total" if family.type == "counter" else "")
        found = labels.get(family.name) or sorted(
            {label for sample in family.samples for label in sample.labels} - {"le"}
        )
        scope = "" if family.name in own else "*crawl*: "
        told = ", ".join(f"`{label}`" for label in found)
        lines.append(f"| `{name}` | {family.type} | {told} | {scope}{family.documentation} |")
    return "\n".join(lines) + "\n"


def _own_readings() -> set[str]:
    return {family.name for family in own_families(Own(0, 0, 0, 0, paused=False, sink_bytes=0, settings_revision=1))}


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
}
