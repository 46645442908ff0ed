"""Tables in a terminal of 80 columns: names and numbers are shown whole, whatever they are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from crawler.cli import screens
from crawler.cli.screens import ShardLine
from crawler.observe.health import Failure, HealthRecord
from crawler.observe.summary import DomainLine
from tests.cli.conftest import Hand
from tests.typed import Typed

COLUMNS = 80
REPLICAS = ("node-1.example.internal-1a2b3c4d", "node-2.example.internal-5e6f7a8b", "node-3.example.internal-9c0d1e2f")
NOW_MS = 1_800_000_000_000


def shown(renderable: RenderableType) -> list[str]:
    console = Console(width=COLUMNS, file=io.StringIO(), record=True)
    console.print(renderable)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= COLUMNS
    return lines


def shards() -> RenderableType:
    lines = [
        ShardLine(name, list(range(one, 1024, 3)), NOW_MS - 90_000, NOW_MS - 50_000)
        for one, name in enumerate(REPLICAS)
    ]
    return screens.shards([*lines, ShardLine("", [7, 9], 0, 0)], 1024, NOW_MS)


def replicas() -> RenderableType:
    return screens.replicas(
        [
            HealthRecord(name, "example.internal:29410", 9, 123, 1024, 64, 123_456_789, 1, 1234.5, 4096.0, False, 64)
            for name in REPLICAS
        ]
    )


def domains() -> RenderableType:
    lines = [
        DomainLine(f"{one}-{'long-' * 10}x.test", one, "due", NOW_MS + 99_000, 123_456, None, 7, "connect_timeout")
        for one in range(3)
    ]
    return screens.domains(lines, NOW_MS)


@pytest.mark.parametrize(
    ("held", "facts", "why"),
    [
        ("leased", {"delay_ms": 5_000}, "5.0 s delay"),
        ("due", {"delay_ms": 5_000, "failures": 2, "reason": "http_503"}, "2 x http_503, 5.0 s delay"),
        ("waiting", {"delay_ms": 5_000}, "retry"),
        ("waiting", {"robots": "refused"}, "robots.txt unreachable (refused)"),
    ],
)
def test_why_a_domain_waits(held: str, facts: dict[str, object], why: str) -> None:
    """A changed delay is shown for a domain that has failed, too."""
    known: dict[str, object] = {"delay_ms": None, "failures": 0, "reason": "", **facts}
    assert screens.why(DomainLine("a.test", 1, held, 0, 9, **known)) == why  # type: ignore[arg-type]


def failures() -> RenderableType:
    url = "https://example.org/" + "long/" * 60
    failure = Failure(NOW_MS, url, "dead", "robots_unreachable")
    record = HealthRecord("r", "a:1", 9, 1, 2, 1, 10, 99, 2.5, 50.0, False, recent_failures=[failure])
    return screens.failures([record], 3)


SHARDS = [
    ("node-1", "1a2b3c4d", "342", "33.4 %", "50 s or more", "0, 3, 6"),
    ("node-2", "5e6f7a8b", "341", "33.3 %", "50 s or more", "1, 4, 7"),
]


@pytest.mark.parametrize(
    ("made", "rows"),
    [
        (shards, [*SHARDS, ("unowned, with work", "2", "7, 9")]),
        (replicas, [("123", one[-8:], "1024", "64", "123,456,789", "1,234.5", "4096") for one in REPLICAS]),
        (domains, [(f"{one}-long-", "x.test", "123,456", "in 2 min", "7 x connect") for one in range(3)]),
        (failures, [("robots_unreachable", "given up", "https://example.org/long/")]),
    ],
)
def test_a_row_shows_its_name_and_all_its_numbers(
    made: Callable[[], RenderableType], rows: list[tuple[str, ...]]
) -> None:
    text = "\n".join(shown(made()))
    assert [part for row in rows for part in row if part not in text] == [], text


def test_the_shards_of_three_replicas_are_a_few_lines() -> None:
    lines = shown(shards())
    assert len(lines) <= 1 + 3 * 3 + 1
    assert lines[0].split() == ["replica", "shards", "share", "held", "for", "which"]


def test_changed_settings_are_named_however_long_their_values_are(hand: Hand, typed: Typed, tmp_path: Path) -> None:
    many = [f"https://example.org/{'long/' * 9}{number}" for number in range(20)]
    (tmp_path / "c.toml").write_text(
        f"[scope]\nexclude = {json.dumps(many)}\n[politeness]\nresponse_share = 2\n[fetch]\nuser_agent = 'abc'\n"
    )
    words = ("config", "apply", "c.toml", "--crawl", hand.crawl, "--redis", hand.url)
    done = typed(*words, environment={"COLUMNS": str(COLUMNS)})
    assert done.code == 0, done.err
    names = ("scope.exclude", "politeness.response_share", "fetch.user_agent")
    rows = [line for line in done.out.splitlines() if line.startswith(names)]
    assert {row.split()[0] for row in rows} == {*names}
    assert all(len(line) <= COLUMNS for line in done.out.splitlines() if not line.startswith("fetch.user_agent waits"))
