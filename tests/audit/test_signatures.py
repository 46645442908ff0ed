"""The audit verifies the signatures of a crawl that signs, from its archive alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from crawler.audit.check import Report, Rules, audit
from crawler.audit.records import read_archive
from crawler.identity.keys import read_keys
from crawler.identity.published import KEY_SET_FIELD
from crawler.identity.web_bot_auth import RequestSigner, key_set
from crawler.page import Exchange
from politeness.delay import DelayPolicy
from tests.identity.signed_requests import DIRECTORY, key_in
from tests.sinks.values import NOON, archived, exchange, page

RULES = Rules(DelayPolicy(min_delay_s=0.0), None, "peercrawl", parallel=10)


def signed(signer: RequestSigner, number: int, at: float | None = None) -> Exchange:
    """A request for page `number`, signed at `at`, in seconds since it was sent."""
    plain = exchange(f"{number}", b"text")
    lines = signer("GET", "site.test", f"/{number}", NOON + number + (at or 0.0))
    return structs.replace(plain, request_head=plain.request_head[:-2] + lines + b"\r\n", started_at=NOON + number)


async def report(folder: Path, exchanges: list[Exchange], *fields: tuple[str, str], replica: str = "a") -> Report:
    await archived(
        folder,
        [page(one) for one in exchanges],
        replica=replica,
        about=(("http-header-user-agent", "peercrawl/1"), *fields),
    )
    return audit(read_archive(folder), RULES)


@pytest.fixture
def signer(tmp_path: Path) -> RequestSigner:
    return RequestSigner(key_in(tmp_path, "one.pem"), DIRECTORY, 60)


def published(folder: Path, *names: str) -> tuple[str, str]:
    return KEY_SET_FIELD, key_set(read_keys([folder / name for name in names])).decode()


async def test_valid_signatures_pass(tmp_path: Path, signer: RequestSigner) -> None:
    key_in(tmp_path, "two.pem")
    found = await report(
        tmp_path / "out", [signed(signer, number) for number in range(3)], published(tmp_path, "two.pem", "one.pem")
    )
    assert (found.ok, found.signed, found.counts["signature"]) == (True, 3, 0), found.breaches


async def test_a_crawl_without_an_identity_is_not_asked_for_signatures(tmp_path: Path) -> None:
    found = await report(tmp_path, [exchange("1", b"text")])
    assert (found.ok, found.signed) == (True, 0)


async def test_only_the_requests_of_replicas_that_sign_are_checked(tmp_path: Path, signer: RequestSigner) -> None:
    """Given replicas with and without an identity in one folder, then each file is judged by its own keys."""
    await report(tmp_path / "out", [signed(signer, 0)], published(tmp_path, "one.pem"), replica="a")
    found = await report(tmp_path / "out", [exchange("1", b"text")], replica="b")
    assert (found.ok, found.requests, found.signed) == (True, 2, 1), found.breaches


def _tampered(one: Exchange) -> Exchange:
    return structs.replace(one, request_head=one.request_head.replace(b"GET /1 ", b"GET /2 "))


def _unsigned(one: Exchange) -> Exchange:
    return structs.replace(one, request_head=exchange("1", b"").request_head)


@pytest.mark.parametrize(
    ("doctor", "said"),
    [
        (_tampered, "does not fit"),
        (_unsigned, "not signed"),
        (lambda one: structs.replace(one, started_at=one.started_at + 61), "expired"),
        (lambda one: structs.replace(one, started_at=one.started_at - 30), "in the future"),
    ],
    ids=["tampered", "unsigned", "expired", "from the future"],
)
async def test_a_signature_that_was_not_valid_at_its_time_is_a_breach(
    tmp_path: Path, signer: RequestSigner, doctor: Callable[[Exchange], Exchange], said: str
) -> None:
    found = await report(
        tmp_path / "out", [signed(signer, 0), doctor(signed(signer, 1))], published(tmp_path, "one.pem")
    )
    (breach,) = found.breaches
    assert (breach.rule, breach.url, found.signed) == ("signature", "https://site.test/1", 2)
    assert said in breach.detail


async def test_a_request_of_a_replica_without_keys_is_a_breach_once_the_crawl_signs(
    tmp_path: Path, signer: RequestSigner
) -> None:
    """Given requests before the operator made a key, and one by a replica that joined without it."""
    out, earlier, later = tmp_path / "out", exchange("1", b"text"), exchange("9", b"text")
    await report(out, [structs.replace(earlier, started_at=NOON + 1)], replica="a")
    await report(out, [structs.replace(later, started_at=NOON + 9)], replica="b")
    assert audit(read_archive(out), RULES).ok
    found = await report(out, [signed(signer, 5)], published(tmp_path, "one.pem"), replica="c")
    assert [(breach.rule, breach.at, breach.detail) for breach in found.breaches] == [
        ("signature", NOON + 9, "not signed, although the crawl signed its requests before")
    ]
    assert found.signed == 1


async def test_a_signature_that_was_sent_twice_is_a_breach(tmp_path: Path, signer: RequestSigner) -> None:
    one = signed(signer, 0)
    again = structs.replace(one, started_at=one.started_at + 5)
    found = await report(tmp_path / "out", [one, again], published(tmp_path, "one.pem"))
    assert [(breach.rule, breach.detail) for breach in found.breaches] == [
        ("signature", "another request has the same nonce")
    ]


async def test_a_key_that_the_replica_did_not_have_is_a_breach(tmp_path: Path, signer: RequestSigner) -> None:
    key_in(tmp_path, "two.pem")
    found = await report(tmp_path / "out", [signed(signer, 0)], published(tmp_path, "two.pem"))
    assert ["is not in the key set in the warcinfo record" in breach.detail for breach in found.breaches] == [True]


@pytest.mark.parametrize("key_set_of_the_file", ["{", "[" * 30_000, '{"keys":1}'])
async def test_a_key_set_that_cannot_be_read_fails_the_requests_of_its_file_alone(
    tmp_path: Path, signer: RequestSigner, key_set_of_the_file: str
) -> None:
    await report(tmp_path / "out", [signed(signer, 0)], (KEY_SET_FIELD, key_set_of_the_file), replica="a")
    found = await report(tmp_path / "out", [signed(signer, 1)], published(tmp_path, "one.pem"), replica="b")
    (breach,) = found.breaches
    assert (breach.url, found.requests, found.signed) == ("https://site.test/0", 2, 2)
    assert breach.detail.startswith("the key set in the warcinfo record ")
