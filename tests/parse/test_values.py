"""Conversion of texts to the types of fields."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.parse.values import NotOfType, converted, number
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
        ("1’234.50 CHF", "decimal", 1234.5),
        ("1’234,50", "decimal_comma", 1234.5),
        ("₹1,23,456.00", "decimal", 123456.0),
        ("12,34,567", "int", 1234567),
        ("120 m²", "int", 120),
        ("12 m", "int", 12),
        ("5 ml", "int", 5),
        ("価格 20 円", "int", 20),
        ("March 4, 2026 3:30 PM", "date", "2026-03-04T15:30:00"),
        ("Mar 4, 2026 12:05 AM", "date", "2026-03-04T00:05:00"),
        ("4-Mar-2026 12:05 p.m.", "date", "2026-03-04T12:05:00"),
        ("2026-03-04 3 pm", "date", "2026-03-04T15:00:00"),
        ("4 Mar 2026 15:30 EST", "date", "2026-03-04T15:30:00-05:00"),
        ("4 March 2026 at 10:30 UTC", "date", "2026-03-04T10:30:00+00:00"),
        ("Wed, 04 Mar 2026 10:00:00 -0330", "date", "2026-03-04T10:00:00-03:30"),
        ("2026-03-04 10:00:00 +01:00", "date", "2026-03-04T10:00:00+01:00"),
        ("Wednesday, March 4th, 2026", "date", "2026-03-04"),
        ("Sept 4, 2026", "date", "2026-09-04"),
        ("2026/03/04", "date", "2026-03-04"),
        ("Wed Mar  4 10:00:00 2026", "date", "2026-03-04T10:00:00"),
        ("1\xa0234.50", "decimal", 1234.5),
        ("1\u202f234 km", "int", 1234),
        ("Rs.1,499", "int", 1499),
        ("kr.5,50", "decimal_comma", 5.5),
        ("S/.20", "int", 20),
        ("5 millimetres", "int", 5),
        ("5 руб.", "int", 5),
        ("-$5.00", "decimal", -5.0),
        ("Total: -US$ 5", "int", -5),
        ("\u2212€5", "decimal", -5.0),
        ("-EUR 5,00", "decimal_comma", -5.0),
        ("$-5", "decimal", -5.0),
        ("(1,234)", "int", 1234),
        ("(4.5)", "decimal", 4.5),
        ("Sale ($5.00)", "decimal", 5.0),
        ("5,-", "decimal_comma", 5.0),
        ("Rs. 500/-", "decimal", 500.0),
        ("5-inch", "int", 5),
        ("Pack of 6 - in stock", "int", 6),
        ("5 mm", "int", 5),
        ("5 TB", "int", 5),
        ("5 kB", "int", 5),
        ("3 tries", "int", 3),
        ("5 T-shirts", "int", 5),
        ("EUR 1 299", "int", 1299),
        ("Price: 1 299 €", "int", 1299),
        ("ab 1 299,00 €", "decimal_comma", 1299.0),
        ("Stock 1\u202f299", "int", 1299),
        ("Stock\n1 299", "int", 1299),
        ("2026-03-04T10-05", "date", "2026-03-04T10:00:00-05:00"),
        ("2026-03-04 09:00-05:00", "date", "2026-03-04T09:00:00-05:00"),
        ("2026-03-04T03:00-05:00", "date", "2026-03-04T03:00:00-05:00"),
        ("20260304T100000Z", "date", "2026-03-04T10:00:00+00:00"),
        ("2026-W10-3", "date", "2026-03-04"),
        ("04.03.2026", "date", "2026-03-04"),
        ("4. 3. 2026, 10:30", "date", "2026-03-04T10:30:00"),
        ("2026年3月4日", "date", "2026-03-04"),
        (True, "text", "true"),
        (5, "text", "5"),
    ],
)
def test_a_text_with_one_meaning_is_converted(value: Any, wanted: FieldType, result: Any) -> None:
    found = converted(value, wanted, BASE)
    assert (found, type(found)) == (result, type(result))


NO_DATES = (
    *("2026-03-04+01:00", "2026-03-04Z", "2026-03-04/05", "2026-03-04/10", "2024-06-10–14", "2026-03-04-10"),
    *("1712011231545", "20260304123", "2026-03-04x0930", "2026-03-04 12", "2026-03-04 1430", "2026-W10"),
    *("2026-03-04 10:00-12:00", "4 March 2026, 9:00-11:00", "2026-03-04T10:00:00+18:00", "2026-03-04T18:00-20:00"),
)
MAYBE_NEGATIVE = (
    *("- 5.00 €", "- $5.00", "–5 °C", "—5", "–$5.00", "‐5", "‑5", "﹣5", "－5", "5.00-", "5.00 -", "5.00-€", "5−"),
    *("($5.00)", "(1,234.50)", "(USD 5)", "$(5.00)", "-kr. 5", "- zł 5", "EUR-5.00", "minus 5 °C", "Discount - $5"),
)
MAYBE_TWO_NUMBERS = ("iPhone 5 128 GB", "iPhone 12 128.00 €", "Model A 1 234", "iPhone: 5 128 GB", "Menge: 2 500 g")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1.234", "int"),
        ("10-20", "int"),
        ("1,23", "decimal"),
        ("1.234.567", "decimal"),
        ("1,234.50", "decimal_comma"),
        ("0,500 kg", "decimal"),
        ("SGD-5.00", "decimal"),
        ("5 tusind", "decimal"),
        ("5 millió", "int"),
        ("Mon Mar 02 12:00:00 2027", "date"),
        ("€ 0,999", "int"),
        ("0 500", "int"),
        ("0.999 €", "decimal_comma"),
        ("00,12,345", "decimal"),
        ("4 March 2026 20:00-02:00", "date"),
        ("from 5 to 6", "decimal"),
        ("4 out of 5", "decimal"),
        ("5 + 6", "decimal"),
        ("+49 30 1234", "decimal"),
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
        ("2026-03", "date"),
        ("4. Dezember 2026", "date"),
        ("4 Mar 2026 or 5 Mar 2026", "date"),
        ("1½", "decimal"),
        ("1 1/2", "decimal"),
        ("19⁹⁹", "decimal"),
        ("12K reviews", "int"),
        ("1.2M followers", "decimal"),
        ("3,5 Mio. €", "decimal_comma"),
        ("2 million", "int"),
        ("5万", "int"),
        ("3.5 lakh", "decimal"),
        ("EUR.50", "decimal"),
        ("v.1.2", "decimal"),
        ("1,23,45", "decimal"),
        ("5\n10115", "int"),
        ("12\n345", "decimal"),
        ("4 Mar 2026 15:30 CET", "date"),
        ("4 Mar 2026 15:30 PM", "date"),
        ("4 Mar 2026 25:30", "date"),
        ("4 Mar 2026 10", "date"),
        ("Tuesday, March 4, 2026", "date"),
        ("4 Foo 2026", "date"),
        ("4 Mar 26", "date"),
        ("2026/03-04", "date"),
        *((text, "date") for text in NO_DATES),
        *((text, "decimal") for text in (*MAYBE_NEGATIVE, *MAYBE_TWO_NUMBERS)),
        ("1" * 1_000, "date"),
        ({"a": 1}, "text"),
        ([1], "decimal"),
    ],
)
def test_a_text_with_two_meanings_or_none_is_refused(value: Any, wanted: FieldType) -> None:
    with pytest.raises(NotOfType):
        converted(value, wanted, BASE)


@pytest.mark.parametrize(
    "unit",
    [
        *("millones", "milhões", "milioni", "miljoen", "millioner", "milionów", "milyon", "milioane", "mila", "mille"),
        *("tausend", "tisíc", "ezer", "tuhatta", "duizend", "bin TL", "ribu", "triệu", "billones", "mdr."),
        *("тыс. руб.", "млн", "миллиардов", "тисяч", "χιλ.", "εκατομμύρια", "ألف", "مليون", "هزار", "אלף"),
        *("ล้านบาท", "हज़ार", "करोड़", "千円"),
        *("MM", "tn", "trn", "Mds", "MEUR", "kEUR", "TEUR", "T€", "k$", "MSEK", "tkr", "mill", "mill kr", "dozen"),
        *("thousands", "hundreds", "Dutzend", "douzaines", "quadrillion", "+ million", "-million"),
    ],
)
def test_thousands_and_millions_in_other_languages_are_no_small_numbers(unit: str) -> None:
    with pytest.raises(NotOfType):
        converted(f"5 {unit}", "decimal", BASE)


@pytest.mark.parametrize(
    ("value", "result"),
    [("€ 4,500.00", 4500.0), (19, 19.0), ("19 or 20", None), ("sold", None), (None, None), ([1], None)],
)
def test_handlers_get_a_number_or_none(value: object, result: float | None) -> None:
    assert number(value) == result
    assert number("1.234,50 €", comma=True) == 1234.5
