"""`crawler doctor`: checks whether everything is ready for a crawl."""

from __future__ import annotations

import typer
from rich.text import Text

from crawler.app.signals import run_until_signal
from crawler.cli.shared_options import AsJson, DataDir, Redis, SettingsFile, flags
from crawler.cli.tables import TextTable
from crawler.cli.terminal import emit
from crawler.settings.load import load

_MARKS = {
    "good": Text("good", style="green"),
    "doubtful": Text("doubtful", style="yellow"),
    "bad": Text("bad", style="red"),
}


def doctor(
    redis: Redis = None,
    data_dir: DataDir = None,
    settings: SettingsFile = None,
    json: AsJson = False,
) -> None:
    """Check this machine and Redis: version, memory, persistence, clock, file limits, DNS, disk, identity and secrets.

    On a cluster, all nodes are compared. They should have the same version, settings, time and number of replicas.

    Exit code 1 if anything is bad.

    [bold]Example[/bold]

        crawler doctor --redis redis://queue:6379/0
    """
    from crawler.cli.readiness_checks import examine  # noqa: PLC0415 - imports the client of the DNS, which the help does not need

    findings = run_until_signal(examine(load(settings, flags(replica={"redis": redis, "data_dir": data_dir}))))
    shown = TextTable("check", "", "found", keeps="check", wraps="found")
    for one in findings:
        found = Text(one.found)
        if one.remedy:
            found.append(f"\n-> {one.remedy}", style="yellow")
        shown.add_row(one.check, _MARKS[one.result], found)
    emit(findings, json, shown)
    if any(one.result == "bad" for one in findings):
        raise typer.Exit(1)
