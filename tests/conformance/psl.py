"""Scores `frontier.domains.registrable_domain` against the test cases of the Public Suffix List.

python -m tests.conformance.psl
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from frontier.domains import registrable_domain

DATA = Path(__file__).parents[3] / "shared" / "conformance" / "psl.txt"

_CASE = re.compile(r"^checkPublicSuffix\((?:null|'(?P<host>[^']*)'), (?:null|'(?P<domain>[^']*)')\);", re.MULTILINE)


@dataclass
class Score:
    cases: int = 0
    passed: int = 0
    failures: list[str] = field(default_factory=list)


def score(path: Path = DATA) -> Score | None:
    """The score, or None when the data is not here. The null host has no counterpart here: it counts as empty."""
    if not path.exists():
        return None
    result = Score()
    for case in _CASE.finditer(path.read_text(encoding="utf-8")):
        result.cases += 1
        got = registrable_domain(case["host"] or "")
        if got == case["domain"]:
            result.passed += 1
        else:
            result.failures.append(f"{case['host']}: {got}, not {case['domain']}")
    return result


def main() -> None:
    result = score()
    if result is None:
        print(f"no data: {DATA} is not here")
        return
    print(f"Public Suffix List: {result.passed} of {result.cases}")
    print(f"failures: {len(result.failures)}", *result.failures, sep="\n  ")


if __name__ == "__main__":
    main()
