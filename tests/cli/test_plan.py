"""`crawler plan`, as it is typed."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import pytest

from crawler.cli.plan import NUMBERS
from crawler.plan.arithmetic import Workload, number
from crawler.plan.report import Machines
from tests.typed import Typed

BILLION = ("plan", "--pages", "1e9", "--days", "10", "--domains", "5M")


def test_the_json_has_the_figures_the_workload_and_the_constants(typed: Typed) -> None:
    found = json.loads(typed(*BILLION, "--delay", "2", "--json").out)
    figures = {one["name"]: one for one in found["figures"]}
    assert figures["pages"]["value"] == pytest.approx(1157.4, abs=0.1)
    assert found["workload"]["delay_s"] == 2
    assert found["constants"]["memory_seen"] == 8.8
    assert found["is_possible"]


def test_every_option_changes_the_plan(typed: Typed) -> None:
    base = json.loads(typed(*BILLION, "--json").out)["figures"]
    for words in (
        *(
            ("--page-bytes", "80k"),
            ("--links-per-page", "70"),
            ("--linked-domains", "2"),
            ("--urls", "2G"),
            ("--url-bytes", "90"),
            ("--delay", "0"),
        ),
        *(("--response", "3"), ("--connections", ".1"), ("--tls", "0"), ("--transfer", "1"), ("--compression", "1")),
        *(("--no-archive",), ("--largest-domain", "10k"), ("--replicas-per-core", "2"), ("--machine-cores", "1")),
        *(("--machine-memory", "32G"), ("--machine-price", "1.51"), ("--redis-memory", "16G")),
    ):
        done = typed(*BILLION, *words, "--json")
        assert json.loads(done.out)["figures"] != base, words
    together = [typed(*BILLION, "--delay", "0", "--parallel", number, "--json").out for number in ("1", "4")]
    assert together[0] != together[1]


def test_the_help_names_the_defaults() -> None:
    fields = asdict(Workload(1, 1, 1)) | asdict(Machines())
    named = {name: re.search(r" Default ([\d.]+[kG]?)\.$", option.meaning) for name, option in NUMBERS.items()}
    found = {name: number(name, match[1]) for name, match in named.items() if match}
    assert found == {name: fields[NUMBERS[name].field or name] for name in found}
    assert len(found) == 14


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--pages", "many"), "--pages: 'many' is not a number; write it like 1000000, 1e6, 1M or 10k"),
        (("--days", "0"), "--days: '0' must be more than 0, such as 1"),
        (("--days", "-1"), "--days: '-1' must be more than 0, such as 1"),
        (("--pages", "0"), "--pages: '0' must be at least 1, and at most 1e+18"),
        (("--tls", "2"), "--tls: '2' must be from 0 to 1"),
        (("--pages", "10", "--days", "1"), "give --domains, for example: crawler plan"),
        (
            ("--pages", "10", "--days", "1", "--domains", "20"),
            "--domains: 20 are more than the --pages; give at most 10",
        ),
        (
            (*BILLION[1:], "--urls", "1M"),
            "--urls: 1M are fewer than the --pages; give at least 1G, because each page has",
        ),
        (
            (*BILLION[1:], "--largest-domain", "2e9"),
            "--largest-domain: 2G are more than the --pages; give at most 1G",
        ),
        (("--parallel", "400"), "--parallel: '400' must be from 1 to 64"),
        (("--redis-memory", "1k"), "--redis-memory: '1k' must be at least"),
        ((*BILLION[1:], "--parallel", "4"), "--parallel: requests to a domain are parallel only without a delay"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(typed: Typed, words: tuple[str, ...], told: str) -> None:
    done = typed("plan", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert told in done.err
    assert done.err.count("\n") == 1


def test_the_plan_of_a_few_sites_is_limited_by_politeness(typed: Typed) -> None:
    """Although the memory of one machine is used more than its CPU."""
    wide = {"COLUMNS": "200"}
    told = typed("plan", "--pages", "1M", "--days", "2", "--domains", "10", environment=wide).out
    assert "limited by politeness: these domains take 1.39 d of 2 d" in told
    told = typed("plan", "--pages", "1k", "--days", "2", "--domains", "1", environment=wide).out
    assert "1 domain " in told
    assert " 1 domains" not in told
    assert "one machine has enough of it" in told
