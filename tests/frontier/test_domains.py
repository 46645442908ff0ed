"""Maps hosts to domains, and domains to shards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.domains import domain_of, registrable_domain, shard_of, site_of
from tests.conformance import psl as conformance


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.com", "example.com"),
        ("WWW.Example.CO.UK", "example.co.uk"),
        ("alice.github.io", "alice.github.io"),  # private suffix: other people's sites are other domains
        ("github.io", "github.io"),
        ("co.uk", "co.uk"),
        ("com", "com"),
        ("localhost", "localhost"),
        ("d1.test", "d1.test"),
        ("www.d1.test", "d1.test"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
    ],
)
def test_hosts_belong_to_domains(host: str, domain: str) -> None:
    assert domain_of(host) == domain
    assert domain_of(domain) == domain


def test_a_site_is_named_without_user_information_and_final_dot() -> None:
    assert site_of("http://u:p@www.example.com.:81") == ("example.com", "http://www.example.com:81")
    assert site_of("https://[::1]") == ("[::1]", "https://[::1]")
    assert site_of("http://[::1]:81") == ("[::1]", "http://[::1]:81")
    assert site_of("http://a..b") is None
    assert site_of("http://" + "a" * 400) is None


@pytest.mark.parametrize(
    ("domain", "shard"), [("example.com", 883), ("d1.test", 73), ("[::1]", 540), ("xn--bcher-kva.example", 166)]
)
def test_shards_never_move(domain: str, shard: int) -> None:
    """Golden values: a crawl that an older release stored must find its queues."""
    assert shard_of(domain, 1024) == shard


@given(st.text(max_size=20), st.integers(1, 16_384))
def test_a_shard_is_in_range(domain: str, shards: int) -> None:
    domain = domain.encode("utf-8", "replace").decode()
    assert 0 <= shard_of(domain, shards) < shards


def test_the_public_suffix_cases_are_met() -> None:
    score = conformance.score()
    if score is None:
        pytest.skip("the conformance data is not here (../shared/conformance/psl.txt)")
    assert score.failures == []
    assert score.cases >= 70


def test_what_has_no_registrable_domain() -> None:
    assert [registrable_domain(host) for host in ("com", ".com", "192.0.2.1", "[::1]", "")] == [None] * 5
