"""Each politeness and safety setting reaches the part that applies it."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.app.requests import fetch_settings
from crawler.errors import UserError
from crawler.fetch.address_policy import WEB_PORTS, judge_address
from crawler.settings.load import CrawlSettings, load
from crawler.settings.policies import politeness_policy, rate_limit_policy, url_rules
from crawler.settings.reference import all_settings
from crawler.settings.tables import UPLOAD_SCHEMES
from crawler.sinks.upload import SCHEMES
from crawler.worker.verdict import NO_SUCH_HOST_TRIES
from frontier.urls import canonicalize
from politeness.backoff import BackoffPolicy
from politeness.delay import delay_ms


def crawl(**tables: dict[str, Any]) -> CrawlSettings:
    return load(None, tables).crawl


def test_descriptions_name_the_limits_that_no_setting_has() -> None:
    meanings = {one.name: one.meaning for one in all_settings()}
    assert f"After {BackoffPolicy().give_up_after} failures in a row" in meanings["politeness.backoff_base"]
    assert f"the limit is {NO_SUCH_HOST_TRIES}." in meanings["politeness.tries"]


def test_a_delay_of_zero_turns_off_the_share_of_the_response_time() -> None:
    own = politeness_policy(crawl(politeness={"delay": 0, "response_share": 2}))
    assert delay_ms(own.throttle.delay, None, None, 20.0) == 0


def test_a_cap_of_zero_ignores_the_crawl_delay() -> None:
    policy = politeness_policy(crawl(politeness={"crawl_delay_cap": 0}))
    assert delay_ms(policy.throttle.delay, 20.0, None, 0.0) == 1_000


def test_an_address_gets_the_rate_of_ten_domains_by_default() -> None:
    rate_limit = rate_limit_policy(crawl())
    assert rate_limit is not None
    assert (rate_limit.rate_per_s, rate_limit.burst, rate_limit.shared) == (10.0, 5, True)
    slow = rate_limit_policy(crawl(politeness={"delay": 5}))
    assert slow is not None
    assert slow.rate_per_s == 2.0


@pytest.mark.parametrize(
    ("polite", "expected"),
    [
        ({"address_rate_limit": "off"}, None),
        ({"delay": 0}, None),
        ({"delay": 0, "address_rate": 3}, (3.0, True)),
        ({"address_rate_limit": "replica", "address_rate": 3}, (3.0, False)),
    ],
)
def test_the_address_rate_limit_can_be_set(polite: dict[str, Any], expected: tuple[float, bool] | None) -> None:
    rate_limit = rate_limit_policy(crawl(politeness=polite))
    assert (rate_limit and (rate_limit.rate_per_s, rate_limit.shared)) == expected


def test_networks_and_ports_are_allowed_by_name() -> None:
    policy = fetch_settings(crawl(fetch={"allow": ["10.1.0.0/16"], "ports": [80, 8123]}), 9).addresses
    assert judge_address("10.1.2.3", policy) is None
    assert judge_address("10.2.0.1", policy) == "private"
    assert policy.ports == {80, 8123}
    assert fetch_settings(crawl(), 9).addresses.ports == WEB_PORTS
    with pytest.raises(UserError):
        fetch_settings(crawl(fetch={"allow": ["everything"]}), 9)


def test_parameters_are_removed_by_the_lists_in_the_settings() -> None:
    url = "https://a.test/?utm_source=x&visit=1&id=2"
    assert canonicalize(url, None, url_rules(crawl())).href == "https://a.test/?visit=1&id=2"
    rules = url_rules(crawl(scope={"strip_params": ["visit"]}))
    assert canonicalize(url, None, rules).href == "https://a.test/?utm_source=x&id=2"


@pytest.mark.parametrize("name", ["my bot", "bot/1.0", "bot2", ""])
def test_a_user_agent_that_robots_txt_cannot_name_stops_the_start(name: str) -> None:
    with pytest.raises(UserError, match=r"fetch\.user_agent.*letters, - and _ only"):
        crawl(fetch={"user_agent": name})


def test_the_schemes_for_uploads_are_those_that_can_be_opened() -> None:
    assert UPLOAD_SCHEMES == SCHEMES


@pytest.mark.parametrize(
    ("purpose", "mode", "reads"),
    [
        ((), "auto", False),
        (("search",), "auto", False),
        (("search", "train-ai"), "auto", True),
        (("ai-use",), "auto", True),
        (("ai-use",), "never", False),
        ((), "always", True),
    ],
)
def test_tdmrep_json_is_read_by_those_who_mine(purpose: tuple[str, ...], mode: str, reads: bool) -> None:
    policy = politeness_policy(crawl(politeness={"purpose": purpose, "tdmrep": mode})).usage
    assert (policy.purpose, policy.reads_tdmrep) == (set(purpose), reads)
