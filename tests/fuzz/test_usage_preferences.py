"""Statements about the use of pages are read as a naive parser reads them."""

from __future__ import annotations

import pytest

from tests.fuzz import usage_preferences


def test_random_files_and_headers_are_read_as_a_naive_parser_reads_them() -> None:
    assert usage_preferences.differences(2_000, seed=2) == []


def test_a_difference_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_preferences, "CATEGORIES", ("train-ai", "search"))
    assert usage_preferences.differences(500, seed=2) != []
