"""The forms of a Redis URL, and what of it is shown."""

from __future__ import annotations

import pytest

from frontier.errors import BadInput
from frontier.redis_url import Address, check_url, display_url, read_url, url_to_copy


def test_a_cluster_has_several_seed_hosts() -> None:
    read = read_url("redis+cluster://user:se%2Ccret@10.0.0.1:7000,[::1]:7001,host")
    assert (read.kind, read.hosts) == (
        "cluster",
        (Address("10.0.0.1", 7000), Address("::1", 7001), Address("host", 6379)),
    )
    assert (read.access.username, read.access.password) == ("user", "se,cret")


def test_sentinels_name_a_master_and_have_their_own_password() -> None:
    read = read_url("redis+sentinel://:secret@one,two:26380/mymaster/2?sentinel_password=other")
    assert (read.kind, read.hosts) == ("sentinel", (Address("one", 26379), Address("two", 26380)))
    assert (read.master, read.access.database, read.access.password) == ("mymaster", 2, "secret")
    assert (read.sentinel_access.password, read.sentinel_access.database) == ("other", 0)
    assert read_url("redis+sentinel://one/mymaster").access.database == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:secret@host?timeot=3", "there is no option 'timeot'"),
        ("redis+cluster://:secret@host/3", "a cluster has no database 3"),
    ],
)
def test_a_mistake_after_the_host_is_named(url: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        read_url(url)
    assert "secret" not in str(refused.value)


def test_addresses_can_be_mapped() -> None:
    read = read_url("redis+cluster://proxy:7000?address_map=10.0.0.1:6379=proxy:7000,10.0.0.2:6379=proxy:7001")
    assert read.reachable == {"10.0.0.1:6379": Address("proxy", 7000), "10.0.0.2:6379": Address("proxy", 7001)}


def test_limits_and_options_are_those_of_redis_py() -> None:
    read = read_url("rediss://host/3?socket_timeout=2.5&socket_connect_timeout=1&client_name=crawl&ssl_cert_reqs=none")
    assert (read.timeout_s, read.connect_timeout_s) == (2.5, 1.0)
    assert (read.access.database, read.access.client_name) == (3, "crawl")
    assert read.access.tls is not None
    assert (read_url("redis://host").timeout_s, read_url("redis://host").access.tls) == (None, None)


@pytest.mark.parametrize(
    "url",
    [
        *("redis://one,two", "redis+sentinel://one", "redis+sentinel://one/", "redis+sentinel://user:1/secret@host"),
        *("redis+cluster://one,", "redis+cluster://one:0", "redis+cluster://a:secret@one:x,two", "redis+raft://one"),
    ],
)
def test_a_url_of_no_known_form_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("mapped", ["10.0.0.1", "10.0.0.1:1=", "=proxy:1", "a:1=b:secret"])
def test_an_address_map_that_is_none_is_refused(mapped: str) -> None:
    with pytest.raises(BadInput):
        read_url(f"redis+cluster://one?address_map={mapped}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis+cluster://user:secret@one:1,[::1]:2,three?address_map=a:1=b:2", "redis+cluster://one:1,[::1]:2,three"),
        ("rediss+sentinel://:secret@one,two:3/name/0?sentinel_password=secret", "rediss+sentinel://one,two:3/name/0"),
    ],
)
def test_all_hosts_are_shown(url: str, shown: str) -> None:
    assert display_url(url) == shown


@pytest.mark.parametrize(
    ("url", "copied"),
    [
        ("redis://host:1/2", "redis://host:1/2"),
        ("rediss://me:secret@host?ssl_ca_certs=/ca.pem&db=2", "rediss://USER:PASSWORD@host?ssl_ca_certs=/ca.pem&db=2"),
        (
            "redis+sentinel://:secret@one,two/name?sentinel_password=secret&sentinel_username=secret&socket_timeout=2",
            "redis+sentinel://USER:PASSWORD@one,two/name?sentinel_password=PASSWORD&sentinel_username=USER&socket_timeout=2",
        ),
        ("rediss://host?ssl_keyfile=/k&ssl_password=secret", "rediss://host?ssl_keyfile=/k&ssl_password=PASSWORD"),
        ("unix:///run/s?pass%77ord=secret&pasword=secret&secret", "unix:///run/s?password=PASSWORD"),
        ("redis://me:sec/ret@host", "(malformed URL)"),
    ],
)
def test_a_url_to_copy_has_all_options_but_no_secret(url: str, copied: str) -> None:
    assert url_to_copy(url) == copied
