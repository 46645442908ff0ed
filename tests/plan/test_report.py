"""The plan: its figures, its formulas and the limiting factor."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from crawler.plan.arithmetic import Constants, Workload
from crawler.plan.report import Machines, Plan, make_plan
from tests.plan.test_arithmetic import EASY, WORK
from tests.typed import Typed

BILLION = Workload(pages=1e9, days=10, domains=5e6, urls=1e10)


def figures(plan: Plan) -> dict[str, float]:
    return {line.name: line.value for line in plan.lines}


def test_the_figures_of_a_small_plan() -> None:
    found = figures(make_plan(WORK, EASY, Machines(price=2, replicas_per_core=4), largest=86_400))
    assert found["pages"] == 10
    assert found["CPU per page"] == pytest.approx(1_454)
    assert found["cores"] == pytest.approx(0.02908)
    assert (found["replicas"], found["shards"], found["Redis nodes"], found["machines"]) == (1, 1_024, 1, 1)
    assert found["Redis cores"] == pytest.approx(49.8528 / 86_400 / 0.5)
    assert found["Redis memory"] == pytest.approx(131_624_000 * EASY.headroom)
    assert found["bandwidth"] == pytest.approx(10 * 5_500 * 8)
    assert found["politeness bound"] == pytest.approx(8_640 / 1.2)
    assert found["shortest time"] == pytest.approx(864_000 / 7_200 / 86_400)
    assert found["largest domain possible"] == pytest.approx(72_000)
    assert found["time of the largest domain"] == pytest.approx(1.2)
    assert found["price"] == 48


@pytest.mark.parametrize(
    ("work", "largest", "limit", "is_possible"),
    [
        (replace(BILLION, domains=100), 0, "politeness: not possible in 10 d, these domains take", False),
        (BILLION, 1e6, "politeness: not possible in 10 d, the largest domain takes 13.9 d", False),
        (BILLION, 0, "memory of Redis", True),
        (replace(BILLION, urls=1e9, page_bytes=240_000), 0, "CPU of the replicas", True),
        (replace(BILLION, urls=3e10, queued=0, delay_s=0, page_bytes=1, links_per_page=0, tls=0), 0, "memory of", True),
    ],
)
def test_the_limiting_factor_is_named(work: Workload, largest: float, limit: str, is_possible: bool) -> None:
    plan = make_plan(work, Constants(), Machines(), largest)
    assert plan.limit.startswith(limit)
    assert plan.is_possible == is_possible


def test_formulas_contain_the_numbers() -> None:
    lines = {line.name: line for line in make_plan(BILLION, Constants(), Machines()).lines}
    assert lines["pages"].formula == "1G pages / (10 d x 86,400 s)"
    assert lines["pages"].text == "1,160 pages/s"
    assert " us + 5 pushed domains x " in lines["Redis cores"].formula
    assert "9G queued x 12.9 B" in lines["Redis memory"].formula
    assert lines["politeness bound"].formula == "5M domains x 1 / (1 s delay + 0.2 s response)"
    assert "5M domains x 336 B + 5M fetched x 700 B + 1,024 shards" in lines["Redis memory"].formula
    several = make_plan(replace(BILLION, delay_s=0, parallel=4), Constants(), Machines(), largest=3e6).lines
    assert any(line.formula == "3M pages x (0 s delay + 0.2 s response) / 4 / 86,400" for line in several)
    assert "x 4 / (0 s delay + 0.2 s response)" in next(
        one.formula for one in several if one.name == "politeness bound"
    )


def test_formulas_give_the_figures_of_domains_without_a_page_and_of_replicas_that_share_a_core() -> None:
    few = {one.name: one for one in make_plan(Workload(pages=1e6, days=1, domains=1e6), Constants(), Machines()).lines}
    assert few["disk"].formula.endswith(" + 632k fetched x 1,380 B")
    assert "1M domains x 336 B + 632k fetched x 700 B" in few["Redis memory"].formula
    machines = Machines(replicas_per_core=2)
    shared = {one.name: one for one in make_plan(replace(BILLION, days=1), Constants(), machines).lines}
    assert shared["shards"].value == 32 * shared["replicas"].value > 1_024
    assert f"{shared['shards'].value:,.0f} shards x" in shared["Redis memory"].formula


PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "capacity.md"


def test_the_plans_in_the_page_are_those_of_the_command(typed: Typed) -> None:
    plans = re.findall(r"```sh\n(crawler plan .*)\n```\n\n((?:    .*\n|\n)+)", PAGE.read_text())
    assert plans
    for command, shown in plans:
        printed = typed(*shlex.split(command)[1:], environment={"COLUMNS": "150"}).out
        assert [line.rstrip() for line in printed.splitlines()] == [line[4:] for line in shown.rstrip().splitlines()]
