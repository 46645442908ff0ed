"""Scores `frontier.urls.canonicalize` against the URL suite of web-platform-tests.

    python -m tests.conformance.urls

Counted are the cases that a crawler can meet: the base is absent or http(s), and the result is an http(s) URL or a
failure. The expected URL is the suite's, put into canonical form by string operations of this file alone: no
fragment, no user information, no final dot of the host, no empty query, unreserved characters decoded. A case whose
host DNS cannot carry must be refused, whatever the suite says; each of those is named.

Last result: 440 of 443 as the standard says, 3 refused on purpose, no failures.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize

DATA = Path(__file__).parents[3] / "shared" / "conformance" / "urltestdata.json"


@dataclass
class Score:
    """`stricter`: cases that the standard accepts and that we refuse on purpose, with the reason."""

    cases: int = 0
    passed: int = 0
    stricter: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def score(path: Path = DATA) -> Score | None:
    """The score, or None when the data is not here."""
    if not path.exists():
        return None
    result = Score()
    for case in json.loads(path.read_text(encoding="utf-8")):
        if isinstance(case, dict) and _concerns_a_crawler(case):
            _judge(case, result)
    return result


def _concerns_a_crawler(case: dict[str, Any]) -> bool:
    base = case["base"]
    if base is not None and not base.startswith(("http://", "https://")):
        return bool(re.match("https?:", case.get("href", "")))
    if case.get("failure"):
        return base is not None or bool(re.match(r"\s*https?:", case["input"], re.IGNORECASE))
    return bool(re.match("https?:", case["href"]))


def _judge(case: dict[str, Any], result: Score) -> None:
    result.cases += 1
    expected = None if case.get("failure") else _canonical(case)
    try:
        got = canonicalize(case["input"], case["base"], UrlRules((), (), max_length=100_000)).href
    except BadUrl:
        got = None
    if got == expected:
        result.passed += 1
    elif got is None and expected is not None and _impossible(case["hostname"]):
        result.stricter.append(f"{case['input']!a}: DNS cannot carry this host")
    else:
        result.failures.append(f"{case['input']!a} with base {case['base']!a}: {got!a}, not {expected!a}")


def _canonical(case: dict[str, Any]) -> str:
    host = case["host"]
    if not host.endswith("]"):
        host = re.sub(r"\.(?=:|$)", "", host)
    tail = case["pathname"] + (case["search"] if case["search"] != "?" else "")
    if not re.search("%(?![0-9A-Fa-f]{2})", tail):
        tail = re.sub("%[0-9A-Fa-f]{2}", _decoded, tail)
    return f"{case['protocol']}//{host}{tail}"


def _decoded(match: re.Match[str]) -> str:
    char = chr(int(match[0][1:], 16))
    return char if re.fullmatch(r"[A-Za-z0-9._~-]", char) else match[0].upper()


def _impossible(host: str) -> bool:
    labels = host.removesuffix(".").split(".")
    return len(host) > 253 or any(not 1 <= len(label) <= 63 for label in labels)


def main() -> None:
    result = score()
    if result is None:
        print(f"no data: {DATA} is not here")
        return
    print(f"WHATWG URL, http(s) cases: {result.passed} of {result.cases} as the standard says")
    print(f"refused on purpose: {len(result.stricter)}", *result.stricter, sep="\n  ")
    print(f"failures: {len(result.failures)}", *result.failures, sep="\n  ")


if __name__ == "__main__":
    main()
