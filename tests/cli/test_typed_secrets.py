"""A Redis URL that was typed in a wrong place is not shown with its password."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.typed import Typed

PASSWORD = "pa/ss@w0rd"
URL = f"redis://:{PASSWORD}@127.0.0.1:1/0"
FOR_REDIS = "use --redis for a Redis URL"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("status", URL), FOR_REDIS),
        ((URL,), FOR_REDIS),
        (("crawl", URL), FOR_REDIS),
        (("seed", URL), FOR_REDIS),
        (("why", URL), ""),
        (("block", URL), FOR_REDIS),
        (("crawl", URL.replace("redis", "rediss")), FOR_REDIS),
        (("crawl", URL.replace("redis", "redis+cluster")), FOR_REDIS),
        (("status", URL.replace("redis", "redis+sentinel")), FOR_REDIS),
        (("crawl", f"unix://user:{PASSWORD}@/run/valkey.sock"), FOR_REDIS),
        (("crawl", "redis://:" + 90 * "x" + URL[9:]), FOR_REDIS),
        (("status", "--crawl", URL), ""),
        (("seed", "-f", URL), ""),
        (("crawl", "-f", URL), ""),
        (("status", "--settings", URL), ""),
        (("status", "--data-dir", URL), ""),
        (("config", "check", URL), ""),
        (("config", "explain", URL), ""),
        (("crawl", "a.test", "--delay", URL), ""),
        (("crawl", "a.test", "--allow", URL), ""),
        (("crawl", "a.test", f"--{URL}"), ""),
        (("run", "--listen", URL), ""),
        (("audit", URL), ""),
        (("finish", URL), ""),
        (("export", URL), ""),
        (("delay", "a.test", URL), ""),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else "",
)
def test_an_argument(typed: Typed, words: tuple[str, ...], told: str) -> None:
    done = typed(*words)
    assert done.code != 0
    shown = done.out + done.err
    assert PASSWORD not in shown
    assert "w0rd" not in shown
    assert "xxx" not in shown
    assert told in shown


@pytest.mark.parametrize("name", ["CRAWLER_REPLICA__LISTEN", "CRAWLER_REPLICA__ACCEPT", "CRAWLER_FETCH__ALLOW"])
def test_an_environment_variable(typed: Typed, name: str) -> None:
    done = typed("crawl", "http://127.0.0.1:1/", environment={name: URL})
    assert done.code == 2
    assert "w0rd" not in done.out + done.err


def test_a_line_of_a_seed_file(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_text(f"{URL}\n")
    done = typed("seed", "-f", "seeds.txt")
    assert done.err.splitlines()[0] == f"seeds.txt:1: 'redis://***@127.0.0.1:1/0': {FOR_REDIS}"
    assert "w0rd" not in done.out + done.err
