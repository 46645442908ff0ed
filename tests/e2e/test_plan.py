"""`crawler plan --from-crawl` on a crawl that has run."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from crawler.plan.arithmetic import Constants
from frontier.domains import domain_of, host_of
from tests.e2e.harness import EVEN, Web, bench, wait_until
from tests.sinks import readers
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e


def test_a_plan_takes_its_constants_from_a_crawl(tmp_path: Path) -> None:
    """The plan is for the same crawl again. The output folder tells the pages, and Redis the URLs. Redis used too little
    memory to measure, and after the end no replica tells its CPU: both are named, and keep their constants.
    """
    with (
        ValkeyProcess(tmp_path, persistent=False) as valkey,
        Web(tmp_path, domains=6, pages=240, features=EVEN) as web,
        bench(tmp_path, web, valkey.url, {"politeness": {"delay": 0.01}}) as commands,
    ):
        commands.seed()
        running = commands.start("run")
        wait_until(lambda: commands.status()["done"] > 100, "pages")
        wait_until(lambda: [one["cpu_s"] > 0 for one in commands.status()["replicas"]] == [True], "its CPU time")
        wait_until(lambda: commands.status()["open"] == 0, "the end")
        running.send(2)
        running.wait()
        status = commands.status()
        words = ["plan", "--pages", str(status["done"]), "--days", "1", "--domains", str(status["domains"])]
        words += ["--from-crawl", "crawl", "--json"]
        done = commands.run(*words, "--out", str(commands.out))
        without = commands.run(*words, "--out", str(tmp_path / "elsewhere"))
    assert (done.code, done.err) == (0, "")
    found, blind = json.loads(done.out), json.loads(without.out)
    lines = [line for line in readers.lines(commands.out) if line["outcome"] == "done"]
    assert found["workload"]["page_bytes"] == pytest.approx(fmean(line["decoded_size"] or 0 for line in lines))
    assert found["workload"]["links_per_page"] == pytest.approx(fmean(line["link_count"] for line in lines))
    linked = [len({domain_of(host_of(url)) for url in line["links"]}) for line in lines]
    assert found["workload"]["linked_domains"] == pytest.approx(fmean(linked))
    assert fmean(linked) > 1
    assert found["workload"]["delay_s"] == 0.01
    assert found["workload"]["tls"] == 0
    assert found["workload"]["urls"] == pytest.approx(status["seen"])
    files = sum(path.stat().st_size for path in commands.out.iterdir() if path.suffix != ".toml")  # its settings
    disk = next(one["value"] for one in found["figures"] if one["name"] == "disk")
    assert disk == pytest.approx(files, rel=0.001)
    notes = "\n".join(found["notes"])
    assert f"read {len(lines)} pages of the output folder" in notes
    assert "CPU of replicas: no replica runs" in notes
    assert "memory of Redis: too little to measure" in notes
    assert found["constants"]["cpu_page"] == Constants().cpu_page
    assert "no lines in the output folder" in blind["notes"][0]
    assert blind["workload"]["page_bytes"] == 40_000
