"""The formulas, by examples computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from crawler.plan.arithmetic import (
    MOST_SHARDS,
    PUSHED_TOGETHER,
    Constants,
    Estimate,
    Workload,
    shards_for,
)
from frontier import keys as redis_keys

EASY = Constants(
    cpu_page=100,
    cpu_kilobyte=1,
    cpu_link=2,
    cpu_new_url=3,
    cpu_archive_page=50,
    cpu_archive_kilobyte=4,
    cpu_connection=200,
    cpu_tls=1_000,
    cpu_tls_kilobyte=5,
    cpu_domain=300,
    redis_us_page=30,
    redis_us_url=10,
    redis_us_page_grouped=8,
    redis_us_domain=20,
    redis_us_push=5,
    memory_seen=10,
    memory_queued=80,
    memory_queued_compact=20,
    memory_queued_packed=0.5,
    memory_domain=300,
    memory_robots=700,
    memory_shard=1_000,
    memory_server=1_000_000,
    disk_page=1_000,
    disk_link=50,
    disk_domain=600,
    header_bytes=500,
    used_share=0.5,
)
"""Constants that are easy to compute with."""

WORK = Workload(
    pages=864_000,
    days=1,
    domains=8_640,
    page_bytes=10_000,
    links_per_page=10,
    linked_domains=1.5,
    urls=1_728_000,
    url_bytes=40,
    transfer=0.5,
    compression=0.2,
)
"""Ten pages per second: per page 10 kB, 5 of which are received, 10 links to 1.5 domains, 2 URLs, a connection and 0.01
domains."""


def test_no_crawl_gets_more_shards_than_it_may_have() -> None:
    assert MOST_SHARDS == redis_keys.MOST_SHARDS
    assert [shards_for(replicas) for replicas in (1, 100, 10_000)] == [1_024, 3_200, MOST_SHARDS]


def test_the_cpu_of_a_page() -> None:
    # 100 + 10 kB x 1 + 10 links x 2 + 2 URLs x 3 + 5 kB x 5 of TLS + 50 + 10 kB x 4 + connection 1,200 + 0.01 x 300
    assert Estimate(WORK, EASY).cpu_page_us == pytest.approx(100 + 10 + 20 + 6 + 25 + 50 + 40 + 1_200 + 3)
    plain = replace(WORK, archive=False, tls=0, delay_s=0)
    # without TLS and archive, with one connection per domain
    assert Estimate(plain, EASY).cpu_page_us == pytest.approx(100 + 10 + 20 + 6 + 2 + 3)


def test_new_urls_are_pushed_to_each_domain_that_a_page_links_to() -> None:
    """Each of two new URLs may have a domain of its own. In few domains, they are pushed with the URLs of other pages."""
    assert Estimate(WORK, EASY).pushed_domains == 1.5
    assert Estimate(replace(WORK, linked_domains=9), EASY).pushed_domains == 2
    assert Estimate(replace(WORK, domains=50), EASY).pushed_domains == 50 / PUSHED_TOGETHER


def test_a_crawl_may_know_more_domains_than_it_fetches_from() -> None:
    assert Estimate(WORK, EASY).fetched_domains == pytest.approx(8_640)
    assert Estimate(replace(WORK, domains=WORK.pages), EASY).fetched_domains == pytest.approx(
        (1 - 1 / math.e) * WORK.pages
    )
    assert Estimate(replace(WORK, domains=1e12), EASY).fetched_domains == pytest.approx(WORK.pages, rel=1e-3)
    assert Estimate(replace(WORK, fetched=5_000), EASY).fetched_domains == 5_000
    assert Estimate(replace(WORK, fetched=1e9), EASY).fetched_domains == 8_640
    half = Estimate(replace(WORK, fetched=4_320), EASY).usage
    assert Estimate(WORK, EASY).usage.cpu_s - half.cpu_s == pytest.approx(4_320 * 300 / 1e6)
    assert Estimate(WORK, EASY).usage.redis_cpu_s - half.redis_cpu_s == pytest.approx(4_320 * 20 / 1e6)


def test_cores_are_busy_for_the_planned_share() -> None:
    assert Estimate(WORK, EASY).cores == pytest.approx(10 * 1_454e-6 / 0.5)


def test_what_redis_uses() -> None:
    used = Estimate(WORK, EASY).usage
    assert used.redis_cpu_s == pytest.approx((864_000 * (30 + 1.5 * 5) + 1_728_000 * 10 + 8_640 * 20) / 1e6)
    queued = 864_000 * (40 + 80)  # 100 URLs per domain: more than 64, so not compact
    assert used.redis_bytes == pytest.approx(1_728_000 * 10 + queued + 8_640 * 1_000 + 1_024 * 1_000 + 1_000_000)
    grouped = Estimate(replace(WORK, delay_s=0), EASY).usage
    assert grouped.redis_cpu_s == pytest.approx((864_000 * (8 + 1.5 * 5) + 1_728_000 * 10 + 8_640 * 20) / 1e6)


def test_traffic_and_files() -> None:
    used = Estimate(WORK, EASY).usage
    assert used.received_bytes == pytest.approx(864_000 * (5_000 + 500))
    assert used.disk_bytes == pytest.approx(864_000 * (2_000 + 1_000 + 10 * 50) + 8_640 * 600)
    assert Estimate(replace(WORK, archive=False), EASY).usage.disk_bytes == 0


def test_short_queues_are_compact() -> None:
    assert Estimate(WORK, EASY).queued_bytes == 40 + 80
    assert Estimate(replace(WORK, domains=20_000), EASY).queued_bytes == 40 + 20


def test_long_queues_are_packed() -> None:
    assert Estimate(replace(WORK, queued=1_000 * WORK.domains), EASY).queued_bytes == 40 + 80
    assert Estimate(replace(WORK, queued=1_001 * WORK.domains), EASY).queued_bytes == 20


def test_urls_come_from_the_links_unless_they_are_given() -> None:
    work = Workload(pages=1e6, days=1, domains=1_000, links_per_page=50)
    assert Estimate(work, Constants()).seen_urls == 5e6
    assert Estimate(replace(work, links_per_page=3), Constants()).seen_urls == 1e6  # every page is a URL
    assert Estimate(replace(work, urls=7e6), Constants()).seen_urls == 7e6
    assert Estimate(replace(work, urls=5), Constants()).seen_urls == 1e6


def test_the_politeness_bound() -> None:
    work = Workload(pages=1e6, days=1, domains=1_000, delay_s=1.5, response_s=0.5, parallel=4)
    assert Estimate(work, EASY).polite_pages_per_s == 500  # parallel requests need a delay of 0
    assert Estimate(replace(work, delay_s=0), EASY).polite_pages_per_s == 8_000


def test_shards_are_enough_for_the_replicas() -> None:
    assert Estimate(WORK, EASY).shards == 1_024
    assert Estimate(replace(WORK, pages=WORK.pages * 2_000, urls=None), EASY).shards > 32 * 29
    assert Estimate(replace(WORK, shards=64), EASY).shards == 64
