"""Texts become values of a type exactly, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.parse.extraction import NotOfType, converted
from crawler.scope.extract_rules import FieldType

BASE = "https://shop.test/a/"


@pytest.mark.parametrize(
    ("value", "wanted", "result"),
    [
        ("12", "int", 12),
        ("1,234 reviews", "int", 1234),
        ("In stock (22 available)", "int", 22),
        ("-7", "int", -7),
        ("SKU-5", "int", 5),
        (7.0, "int", 7),
        ("£51.77", "decimal", 51.77),
        ("EUR 1,234.50", "decimal", 1234.5),
        ("1 234.50", "decimal", 1234.5),
        ("\u22123.5 °C", "decimal", -3.5),
        ("1e3", "decimal", 1000.0),
        (3, "decimal", 3.0),
        ("1.234,50 €", "decimal_comma", 1234.5),
        ("51,77", "decimal_comma", 51.77),
        ("Yes", "bool", True),
        (False, "bool", False),
        ("../img/1.png?utm_source=x#top", "url", "https://shop.test/img/1.png?utm_source=x"),
        ("2026-03-04", "date", "2026-03-04"),
        ("2026-03-04T10:00:00Z", "date", "2026-03-04T10:00:00+00:00"),
        ("Wed, 04 Mar 2026 10:00:00 GMT", "date", "2026-03-04T10:00:00+00:00"),
        ("March 4, 2026", "date", "2026-03-04"),
        ("4 Mar 2026", "date", "2026-03-04"),
        (True, "text", "true"),
        (5, "text", "5"),
    ],
)
def test_a_text_with_one_meaning_is_converted(value: Any, wanted: FieldType, result: Any) -> None:
    found = converted(value, wanted, BASE)
    assert (found, type(found)) == (result, type(result))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1.234", "int"),
        ("10-20", "int"),
        ("1,23", "decimal"),
        ("1.234.567", "decimal"),
        ("1,234.50", "decimal_comma"),
        ("from 5 to 6", "decimal"),
        ("free", "decimal"),
        ("1" * 50, "decimal"),
        ("1" * 50, "int"),
        ("9" * 10_000, "int"),
        ("٣", "bool"),
        (True, "int"),
        (1 << 70, "int"),
        (10**400, "decimal"),
        (float("-inf"), "decimal"),
        (float("nan"), "decimal"),
        ("maybe", "bool"),
        ("javascript:alert(1)", "url"),
        (5, "url"),
        ("03/04/2026", "date"),
        ("yesterday", "date"),
        ("1" * 1_000, "date"),
        ({"a": 1}, "text"),
        ([1], "decimal"),
    ],
)
def test_a_text_with_two_meanings_or_none_is_refused(value: Any, wanted: FieldType) -> None:
    with pytest.raises(NotOfType):
        converted(value, wanted, BASE)
