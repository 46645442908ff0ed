"""All scores on published test data, with every exception named. Ends with 1 if a case fails without a reason.

python -m tests.conformance
"""

from __future__ import annotations

import sys

from tests.conformance import psl, robots, urls


def main() -> int:
    failed = 0
    rows = (_robots(), _urls(), _psl())
    if None in rows:
        print(f"skipped: {rows.count(None)} sets of test data are not here")
    for told, cases, passed, exceptions, failures in filter(None, rows):
        print(f"{told}: {passed} of {cases}", end="")
        print(f", {len(exceptions)} otherwise for a reason, {len(failures)} failures")
        for line in exceptions:
            print(f"    otherwise: {line}")
        for line in failures:
            print(f"    FAILED: {line}")
        failed += len(failures)
    return 1 if failed else 0


_Row = tuple[str, int, int, list[str], list[str]]


def _robots() -> _Row | None:
    score = robots.score()
    if score is None:
        return None
    return "robots.txt (Google's suite, by RFC 9309)", score.cases, score.passed, score.exceptions, score.failures


def _urls() -> _Row | None:
    score = urls.score()
    if score is None:
        return None
    return "URLs (web-platform-tests, http and https)", score.cases, score.passed, score.stricter, score.failures


def _psl() -> _Row | None:
    score = psl.score()
    if score is None:
        return None
    return "domains (Public Suffix List)", score.cases, score.passed, [], score.failures


if __name__ == "__main__":
    sys.exit(main())
