"""`[[requests]]`: what is refused at startup, in one line that names the setting and never repeats a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.app.program import Crawl
from crawler.app.requests import request_rules, request_setup
from crawler.cli import doctor
from crawler.errors import UserError
from crawler.settings.guarded import accepted
from crawler.settings.load import CrawlSettings, load
from crawler.settings.tables import RequestsTable

SITE = "https://shop.example.com"


def refusal(table: dict[str, Any], **environment: str) -> str:
    """The error of a start with one rule. It has one line, and no value of the environment."""
    with pytest.raises(UserError) as refused:
        request_rules(load(None, {"requests": [table]}).requests, environment)  # type: ignore[dict-item]
    said = str(refused.value)
    assert "\n" not in said
    assert not any(value and value in said for value in environment.values())
    return said


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "connection",
        "Content-Length",
        "Transfer-Encoding",
        "If-None-Match",
        "Signature-Input",
        "Proxy-Authorization",
    ],
)
def test_fields_that_the_client_sets_are_refused(name: str) -> None:
    assert f"{name} is set by the crawler itself" in refusal({"headers": [f"{name}: 1"]})
    assert f"{name} is set by the crawler itself" in refusal({"origin": SITE, "headers_env": [f"{name}: KEY"]}, KEY="1")


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("Authorization: Basic c2VzYW1l", "basic_env"),
        ("Cookie: id=sesame", "cookies = true"),
        ("User-Agent: sesame", "fetch.user_agent"),
        ("Accept-Language: sesame", "accept_language"),
        ("no colon sesame", "NAME: VALUE"),
        ("X Y: sesame", "NAME: VALUE"),
        ("X: a\r\nHost: sesame", "line break"),
        ("X: sésame", "ASCII"),
    ],
)
def test_fields_that_belong_elsewhere_or_are_malformed_are_refused(field: str, hint: str) -> None:
    said = refusal({"headers": [field]})
    assert hint in said
    assert "sesame" not in said


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ({"basic_env": "LOGIN"}, "secrets need `origin`"),
        ({"host": "shop.example.com", "headers_env": ["X-Key: LOGIN"]}, "secrets need `origin`"),
        ({"origin": "http://shop.example.com", "bearer_env": "LOGIN"}, "over_http = true"),
        ({"origin": f"{SITE}/shop", "bearer_env": "LOGIN"}, "scheme, host and port alone"),
        ({"origin": "https://a:b@shop.example.com", "bearer_env": "LOGIN"}, "scheme, host and port alone"),
        ({"origin": SITE, "basic_env": "LOGIN", "bearer_env": "LOGIN"}, "either `basic_env` or `bearer_env`"),
        ({"origin": SITE, "headers_env": ["authorization: LOGIN"], "basic_env": "LOGIN"}, "give one of them"),
        ({"origin": SITE, "basic_env": "me:sesame"}, "the name of an environment variable"),
        ({"proxy": "http://me:sesame@proxy:3128"}, "name that in proxy_env"),
        ({"proxy": "ftp://sesame:21"}, "not the URL of a proxy"),
        ({"proxy": "http://sesame:99999"}, "not the URL of a proxy"),
        ({"match": "("}, "not a regular expression"),
    ],
)
def test_rules_that_would_send_a_secret_elsewhere_are_refused(table: dict[str, Any], hint: str) -> None:
    said = refusal(table, LOGIN="me:word")
    assert hint in said
    assert said.startswith("requests.0")
    assert "sesame" not in said


@pytest.mark.parametrize(
    ("table", "value", "hint"),
    [
        ({"origin": SITE, "basic_env": "LOGIN"}, "", "requests.0.basic_env: the environment variable LOGIN is not set"),
        ({"origin": SITE, "basic_env": "LOGIN"}, "no-colon", "USER:PASSWORD"),
        ({"origin": SITE, "basic_env": "LOGIN"}, "me:word\n", "line break"),
        ({"origin": SITE, "bearer_env": "LOGIN"}, "to ken", "bearer token"),
        ({"origin": SITE, "headers_env": ["X-Key: LOGIN"]}, "word\r\nX-Other: 1", "line break"),
        ({"proxy_env": "LOGIN"}, "http://me:word@", "not the URL of a proxy"),
        ({"proxy_env": "LOGIN"}, "http://me:wo\nrd@proxy:1/secret", "not the URL of a proxy"),
    ],
)
def test_a_replica_without_a_usable_variable_does_not_start(table: dict[str, Any], value: str, hint: str) -> None:
    assert hint in refusal(table, **({"LOGIN": value} if value else {}))


def test_rules_are_those_of_the_machine_and_not_of_the_crawl(tmp_path: Path) -> None:
    """Whoever can write to Redis can neither see them nor add one."""
    file = tmp_path / "crawler.toml"
    file.write_text(f'[[requests]]\norigin = "{SITE}"\nbearer_env = "TOKEN"\n')
    settings = load(file)
    assert "requests" not in msgspec.json.decode(settings.crawl.to_json())
    assert settings.name_none_of_a_crawl
    assert not any("requests" in entry for entry in accepted(settings))
    with pytest.raises(UserError, match="requests"):
        CrawlSettings.of({"requests": [{"proxy": "http://proxy:1"}]})
    assert request_setup(settings, {"TOKEN": "word"}).rules[0].origin == SITE
    with pytest.raises(UserError, match="TOKEN is not set on this machine"):
        request_setup(settings, {})


def test_an_origin_is_compared_in_its_canonical_form() -> None:
    tables = [RequestsTable(origin=text) for text in ("HTTPS://Shop.Example.com:443/", f"{SITE}:8443", "https://[::1]")]
    assert [rule.origin for rule in request_rules(tables, {})] == [SITE, f"{SITE}:8443", "https://[::1]"]


def test_a_program_gives_rules_as_a_list_of_tables() -> None:
    Crawl([SITE], settings={"requests": [{"accept_language": "de"}]})
    with pytest.raises(UserError, match="over_http"):
        Crawl([SITE], settings={"requests": [{"origin": "http://a.test", "bearer_env": "TOKEN"}]})


def test_doctor_says_whether_this_machine_has_the_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(None, {"requests": [{"origin": SITE, "bearer_env": "PEERCRAWL_TEST_TOKEN"}]})  # type: ignore[dict-item]
    monkeypatch.delenv("PEERCRAWL_TEST_TOKEN", raising=False)
    assert (doctor.rules(settings).result, doctor.rules(load()).found) == (
        "bad",
        "all requests are the same",
    )
    monkeypatch.setenv("PEERCRAWL_TEST_TOKEN", "word")
    assert (doctor.rules(settings).result, doctor.rules(settings).found) == ("good", "1 rule")
