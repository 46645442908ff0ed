"""A domain or reason that a crawl does not know is often a typing error: a note says so, and what may have been meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Hand
from tests.e2e.harness import Finished
from tests.typed import Typed

Steer = Callable[..., Finished]


@pytest.fixture
def steer(hand: Hand, typed: Typed) -> Steer:
    """Types a command about a crawl with URLs in the domains a.test, b.test and c.test."""

    def type_it(*words: str) -> Finished:
        done = typed(*words, "--crawl", hand.crawl, "--redis", hand.url)
        assert done.code == 0, done.err
        return done

    return type_it


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("block", "c.tset"), "c.tset is not known to this crawl (did you mean c.test?); blocked anyway"),
        (("block", "zzz"), "zzz is not known to this crawl; blocked anyway"),
        (
            ("delay", "c.tset", "5"),
            "c.tset is not known to this crawl (did you mean c.test?); its delay is set anyway",
        ),
        (("unblock", "zzz"), "zzz was not blocked"),
        (("unblock", "b.tset"), "b.tset was not blocked (did you mean b.test?)"),
        (("delay", "zzz"), "zzz had no delay of its own"),
        (("dead", "list", "--domain", "c.tset"), "c.tset is not known to this crawl (did you mean c.test?)"),
        (("dead", "requeue", "--domain", "c.tset"), "c.tset is not known to this crawl (did you mean c.test?)"),
        (("dead", "list", "--reason", "blokced"), "no URL has the reason 'blokced' (did you mean blocked?)"),
        (("dead", "requeue", "--reason", "blokced"), "no URL has the reason 'blokced' (did you mean blocked?)"),
        (("retry", "c.tset"), "c.tset is not known to this crawl (did you mean c.test?)"),
        (("retry", "c.test"), "no replica runs"),
        (("block", "www.c.test"), ""),
        (("delay", "https://a.test/1", "5"), ""),
        (("unblock", "b.test"), ""),
        (("dead", "list", "--domain", "c.test"), ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_crawl_does_not_know_gets_a_note(steer: Steer, words: tuple[str, ...], note: str) -> None:
    steer("block", "b.test")
    done = steer(*words)
    assert done.err == (f"note: {note}\n" if note else "")


def test_a_requeue_of_nothing_says_so(steer: Steer, hand: Hand) -> None:
    done = steer("dead", "requeue", "--all")
    assert "nothing to queue again: `crawler dead list` has no such URL" in " ".join(done.out.split())
    assert hand.json("dead", "requeue", "--all")["requeued"] == 0


def test_a_retry_of_nothing_says_what_else_may_help(steer: Steer, hand: Hand) -> None:
    told = " ".join(steer("retry", "c.tset").out.split())
    assert "has nothing of c.tset that waits; URLs that were given up: `crawler dead requeue --domain c.tset`" in told
    assert hand.json("retry", "c.tset") == {"crawl": hand.crawl, "domain": "c.tset", "ready": 0, "is_held": False}


def test_a_domain_that_is_only_half_forgotten_is_not_called_forgotten(
    hand: Hand, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("frontier.forget.Forgetting.purge", interrupted)
    told = typed("forget", "a.test", "--crawl", hand.crawl, "--redis", hand.url)
    assert told.code == 130
    assert "interrupted; to complete it, repeat the same command" in told.err
    said = "its domain is being forgotten; if that was interrupted, repeat `crawler forget`"
    assert said in " ".join(hand.type("why", "https://a.test/1").split())
    monkeypatch.undo()
    hand.type("forget", "a.test")
    assert "its domain was forgotten" in " ".join(hand.type("why", "https://a.test/1").split())


def test_a_folder_without_output_of_the_crawl_is_refused(hand: Hand, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "other-1.pages.jsonl").write_text("")
    (tmp_path / f"{hand.crawl}.settings.toml").write_text("")
    place = ("--crawl", hand.crawl, "--redis", hand.url)
    told = typed("forget", "a.test", str(tmp_path), str(tmp_path / "r1"), *place)
    assert told.code == 2
    assert f"no output of crawl '{hand.crawl}' in r1/: nothing was changed" in told.err
    assert "forgotten" not in hand.type("why", "https://a.test/1")
