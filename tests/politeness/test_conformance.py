"""The score on Google's robots.txt suite; `tests/conformance/robots.py` names each exception."""

from __future__ import annotations

import pytest

from tests.conformance.robots import CONTRADICTING, score


def test_meets_all_of_googles_suite_but_what_contradicts_rfc_9309() -> None:
    result = score()
    if result is None:
        pytest.skip("robots.json, the published suite, is not beside the project")
    print(f"robots: {result.passed} of {result.cases}", *result.exceptions, sep="\n  ")
    assert result.failures == []
    assert result.cases == 146
    assert len(result.exceptions) == len(CONTRADICTING)
    assert result.passed == result.cases - len(CONTRADICTING)
