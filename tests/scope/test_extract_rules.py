"""The types of the fields of items: which values fit, and which types the settings declare."""

from __future__ import annotations

import pytest

from crawler.errors import UserError
from crawler.scope.extract_rules import ExtractRule, FieldRule, Misfit, Schema, declared


def test_types_of_fields() -> None:
    schema = Schema()
    assert [schema.add(one) for one in ({"a": None}, {"a": 1, "b": True}, {"a": 1.5}, {"a": 2})] == [""] * 4
    assert schema.kinds == {"a": "float", "b": "bool"}
    assert "too large" in schema.add({"b": "x", "c": 1 << 63, "new": 1})
    assert schema.kinds == {"a": "float", "b": "bool"}
    assert schema.add({"a": None, "b": 1, "new": [1]}) == ""
    assert schema.kinds == {"a": "float", "b": "text", "new": "list"}
    assert schema.as_written({"a": 1, "b": 1, "new": [1], "other": 1}) == {"a": 1, "b": "1", "new": [1], "other": 1}
    assert schema.as_written({"b": None}) == {"b": None} and schema.as_written({"b": "x"}) == {"b": "x"}


@pytest.mark.parametrize(
    ("known", "value", "found"),
    [
        (None, 1, {"a": "int"}),
        (None, None, {"a": None}),
        ("int", None, {}),
        ("int", 2, {}),
        ("int", 2.0, {"a": "float"}),
        ("float", 2, {}),
        ("text", None, {}),
        ("list", [1], {}),
        ("bool", 1, {"a": "text"}),
        ("int", True, {"a": "text"}),
        ("text", 1, {}),
        ("float", "1.5", {"a": "text"}),
        ("object", [], {"a": "text"}),
        ("text", 1 << 63, "misfit"),
    ],
)
def test_what_a_value_changes(known: str | None, value: object, found: object) -> None:
    result = Schema(known={"a": known} if known else {}).found_in({"a": value})  # type: ignore[dict-item]
    assert ("misfit" if isinstance(result, Misfit) else result) == found


def test_a_declared_type_does_not_change() -> None:
    schema = Schema({"n": "int"}, {"m": "int"})
    assert all(isinstance(schema.found_in({"n": value}), Misfit) for value in (1.5, "1", True, [1]))
    assert 'n: text ("1"), where the column has int' in schema.add({"n": "1"})
    assert schema.found_in({"m": 1.5, "n": 1}) == {"m": "float"}


def rule(name: str, *fields: FieldRule) -> ExtractRule:
    return ExtractRule(name, fields)


def test_what_tables_declare() -> None:
    fields = (
        FieldRule("title", css="h1"),
        FieldRule("price", css="p", type="decimal_comma"),
        FieldRule("stock", css="p", type="int"),
        FieldRule("new", css="p", type="bool"),
        FieldRule("made", css="p", type="date"),
        FieldRule("tags", css="p", type="int", list=True),
    )
    price = FieldRule("price", css="b", type="int")
    kinds = {"title": "text", "price": "float", "stock": "int", "new": "bool", "made": "text", "tags": "list"}
    assert declared([rule("shop", *fields), rule("shop", price), rule("other", price)]) == {
        "shop": kinds,
        "other": {"price": "int"},
    }
    with pytest.raises(UserError, match="shop has a field price that is int in one table and text in another"):
        declared([rule("shop", price), rule("shop", FieldRule("price", css="b"))])
