"""Scores `politeness.robots_match.Rules` against Google's robots.txt specification suite.

    python -m tests.conformance.robots

The expectations marked as Google's own count, too. Where the suite contradicts RFC 9309 the RFC is followed; each such
case is named in `CONTRADICTING`, and is a failure again when the suite or the code changes so that it agrees.

Last result: 142 of 146, the other 4 contradict RFC 9309.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from politeness.robots_match import Rules

DATA = Path(__file__).parents[3] / "shared" / "conformance" / "robots.json"

ENCODE_FIRST = "2.2.2: bytes outside ASCII in the URI must be percent-encoded prior to comparison, so the Allow matches"
DECODE_FIRST = "2.2.2: percent-encoded unreserved bytes must be decoded prior to comparison, so the Allow matches"
MOST_SPECIFIC = "2.2.2: the path /allowed-slash/ is matched by Disallow: / alone; index.html has no meaning of its own"

CONTRADICTING = {
    ("non-ascii-paths.textproto", "/foo/bar/ツ", b"Allow: /foo/bar/\xe3\x83\x84"): ENCODE_FIRST,
    ("non-ascii-paths.textproto", "/foo/bar/ツ", b"Allow: /foo/bar/%E3%83%84"): ENCODE_FIRST,
    ("non-ascii-paths.textproto", "/foo/bar/baz", b"Allow: /foo/bar/%62%61%7A"): DECODE_FIRST,
    ("index-page.textproto", "/allowed-slash/", b"Allow: /allowed-slash/index.html"): MOST_SPECIFIC,
}
"""(source, path of the URL, a line of the file) -> the clause of RFC 9309 that the expectation contradicts."""


@dataclass
class Score:
    """`exceptions`: cases not met because they contradict the RFC, with the clause. `failures`: all other deviations."""

    cases: int = 0
    passed: int = 0
    exceptions: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def score(path: Path = DATA) -> Score | None:
    """The score, or None when the data is not here."""
    if not path.exists():
        return None
    result = Score()
    for file in json.loads(path.read_text(encoding="utf-8")):
        body = base64.b64decode(file["robotstxt_base64"])
        for case in file["expect"]:
            _judge(file["source"], body, case, result)
    return result


def _judge(source: str, body: bytes, case: dict[str, Any], result: Score) -> None:
    result.cases += 1
    decision = Rules.parse(body, case["useragent"]).decide(case["url"])
    met = decision.allowed == case["allowed"]
    reason = _contradiction(source, body, case["url"])
    result.passed += met
    named = f"{source}: {case['url']!a} for {case['useragent']!a}, expected {_word(case['allowed'])}"
    if reason and not met:
        result.exceptions.append(f"{named}; RFC 9309 {reason}")
    elif reason or not met:
        result.failures.append(f"{named}, got {decision}" + (f", though {reason}" if reason else ""))


def _contradiction(source: str, body: bytes, url: str) -> str | None:
    for (its_source, path, line), reason in CONTRADICTING.items():
        if source == its_source and url.endswith(path) and line in body:
            return reason
    return None


def _word(allowed: bool) -> str:
    return "allowed" if allowed else "denied"


def main() -> int:
    result = score()
    if result is None:
        print(f"robots: skipped, {DATA.name} is not here")
        return 0
    print(f"robots: {result.passed} of {result.cases} expectations met")
    for line in result.exceptions:
        print(f"  by RFC 9309 otherwise: {line}")
    for line in result.failures:
        print(f"  FAILED: {line}")
    return 1 if result.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
