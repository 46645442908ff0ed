"""The plans in docs/explanation/capacity.md are those that the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.typed import Typed

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "capacity.md"


def test_the_plans_in_the_page_are_those_of_the_command(typed: Typed) -> None:
    plans = re.findall(r"```sh\n(crawler plan .*)\n```\n\n((?:    .*\n|\n)+)", PAGE.read_text())
    assert len(plans) == 2
    for command, shown in plans:
        printed = typed(*shlex.split(command)[1:], environment={"COLUMNS": "150"}).out
        assert [line.rstrip() for line in printed.splitlines()] == [line[4:] for line in shown.rstrip().splitlines()]
