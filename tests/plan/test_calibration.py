"""The constants of a crawl replace the built-in ones, and what cannot be read is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crawler.plan.arithmetic import Constants, CrawlFigures, Estimate, FileFigures, Workload, calibrate, own_workload

FILES = FileFigures(
    pages=50_000,
    page_bytes=20_000,
    received_bytes=5_000,
    links=30,
    linked_domains=2,
    response_s=0.4,
    url_bytes=33,
    disk_bytes=6e8,
    tls=0,
)
FOUND = CrawlFigures(
    pages=100_000,
    urls=300_000,
    queued=190_000,
    domains=2_000,
    shards=64,
    crawled_s=1_000,
    redis_bytes=3e7,
    redis_cpu_s=7,
    replica_pages=40_000,
    replica_cpu_s=80,
)


def test_the_crawl_itself_would_use_what_it_has_used() -> None:
    made = calibrate(Constants(), FOUND, FILES, delay_s=2)
    used = Estimate(replace(own_workload(FOUND, FILES, 2), compression=made.given["compression"]), made.constants).usage
    assert used.redis_bytes == pytest.approx(FOUND.redis_bytes)
    assert used.redis_cpu_s == pytest.approx(FOUND.redis_cpu_s)
    assert used.cpu_s == pytest.approx(FOUND.replica_cpu_s * 100_000 / 40_000)
    assert used.disk_bytes == pytest.approx(FILES.disk_bytes * 2)  # the folder has half of the pages
    assert made.given | {"compression": 0} == {
        "delay_s": 2,
        "urls_per_page": 3,
        "queued_per_page": 1.9,
        "page_bytes": 20_000,
        "links_per_page": 30,
        "linked_domains": 2,
        "url_bytes": 33,
        "response_s": 0.4,
        "transfer": 0.25,
        "tls": 0,
        "compression": 0,
    }


@pytest.mark.parametrize("tls", [0, 0.3, 1])
def test_the_plan_of_a_crawl_over_tls_is_what_the_crawl_has_used(tls: float) -> None:
    files = replace(FILES, tls=tls)
    work = Workload(
        FOUND.pages,
        days=1,
        domains=FOUND.domains,
        page_bytes=20_000,
        links_per_page=30,
        linked_domains=2,
        urls=FOUND.urls,
        delay_s=2,
        transfer=0.25,
        tls=tls,
    )
    used = Estimate(work, Constants()).usage.cpu_s
    made = calibrate(Constants(), replace(FOUND, replica_pages=FOUND.pages, replica_cpu_s=used), files, delay_s=2)
    assert "CPU of replicas: 1.00 times what the built-in constants say; they are scaled" in made.notes
    known = {name: value for name, value in made.given.items() if name not in ("urls_per_page", "queued_per_page")}
    planned = Workload(FOUND.pages, days=1, domains=FOUND.domains, urls=FOUND.urls, **known)
    assert Estimate(planned, made.constants).usage.cpu_s == pytest.approx(used)


def test_what_cannot_be_read_keeps_its_constant_and_is_named() -> None:
    made = calibrate(Constants(), replace(FOUND, replica_cpu_s=0, replica_pages=0, redis_bytes=9_000), None, delay_s=1)
    assert made.constants.cpu_page == Constants().cpu_page
    assert made.constants.memory_seen == Constants().memory_seen
    assert made.constants.redis_us_page != Constants().redis_us_page
    assert made.given == {"delay_s": 1, "urls_per_page": 3, "queued_per_page": 1.9}
    notes = "\n".join(made.notes)
    assert "no lines in the output folder" in notes
    assert "CPU of replicas: no replica runs" in notes
    assert "memory of Redis: too little to measure" in notes
    assert "CPU of Redis: " in notes


@pytest.mark.parametrize("used_s", [0.7, 700])
def test_what_no_crawl_uses_is_left_out(used_s: float) -> None:
    """A reshard, other users, or a server that mostly waits."""
    made = calibrate(Constants(), replace(FOUND, redis_cpu_s=used_s), FILES, delay_s=1)
    assert made.constants.redis_us_page == Constants().redis_us_page
    (note,) = [note for note in made.notes if note.startswith("CPU of Redis: ")]
    assert "not of the crawl alone" in note


def test_a_crawl_of_few_pages_measures_nothing() -> None:
    made = calibrate(Constants(), replace(FOUND, pages=99), FILES, delay_s=1)
    assert (made.constants, made.given) == (Constants(), {})
    assert made.notes == ("the crawl has 99 pages, too few to measure: all constants are the built-in ones",)
