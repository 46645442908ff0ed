"""Converts texts from pages to the types of fields: exactly, or not at all. Pure.

A text that could mean two things is refused, because a wrong value is worse than none. So 1,234 is not read as 1.234,
and 03/04/2026 is not a date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from crawler.scope.extract_rules import FieldType
from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize

LARGEST = 1 << 63
"""Whole numbers from here on cannot be exported."""

DIGITS = 15
"""Digits that a decimal number keeps exactly."""

LONGEST_NUMBER = 60
"""Characters of a text with a number."""

_BOOLEANS = {**dict.fromkeys(("true", "yes", "1", "on"), True), **dict.fromkeys(("false", "no", "0", "off"), False)}

_NUMBER = r"""(?<![\d.,])(?P<sign>(?<!\w)[-+\u2212])?(?P<whole>\d{1,3}(?P<group>[GROUP' ])\d{3}(?:(?P=group)\d{3})*|\d+)
    (?:[MARK](?P<rest>\d+))?(?!\d)"""
_POINT, _COMMA = (
    re.compile("".join(_NUMBER.split("\n    ")).replace("GROUP", group).replace("MARK", mark))
    for group, mark in ((",", "."), (".", ","))
)
_SCIENTIFIC = re.compile(r"[-+]?\d+(?:\.\d+)?[eE][-+]?\d{1,3}")

_WRITTEN_DATES = ("%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y")
_LONGEST_DATE = 60

_KEEP_ALL = UrlRules((), ())


class NotOfType(Exception):
    """Raised when a value is not of the type of its field."""


def converted(value: Any, wanted: FieldType, base: str) -> Any:
    """`value`, a text or another plain value of JSON, as the type `wanted`. `base`: the URL to which URLs are relative.
    Raises NotOfType."""
    return _CONVERTERS[wanted](value, base)


def _text(value: Any, _: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        raise NotOfType
    return str(value)


def _int(value: Any, _: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        value = int(_number(value, _POINT, is_whole=True))
    if not isinstance(value, int) or isinstance(value, bool) or not -LARGEST <= value < LARGEST:
        raise NotOfType
    return value


def _decimal(value: Any, _: str) -> int | float:
    return _as_decimal(value, _POINT)


def _decimal_comma(value: Any, _: str) -> int | float:
    return _as_decimal(value, _COMMA)


def _as_decimal(value: Any, numbers: re.Pattern[str]) -> int | float:
    if isinstance(value, str):
        plain = value.strip()
        text = plain if _SCIENTIFIC.fullmatch(plain) else _number(value, numbers)
        if len(text.partition("e")[0].strip("-0.").replace(".", "")) > DIGITS:
            raise NotOfType
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -LARGEST < value < LARGEST:
        raise NotOfType  # also for infinity and NaN
    return float(value)


def _number(text: str, numbers: re.Pattern[str], is_whole: bool = False) -> str:
    """The only number in `text`, as Python writes it."""
    if len(text) > LONGEST_NUMBER or (found := numbers.search(text)) is None:
        raise NotOfType
    outside = text[: found.start()] + text[found.end() :]
    if any(one.isdigit() for one in outside) or (is_whole and found["rest"]):
        raise NotOfType
    whole = re.sub(r"\D", "", found["whole"])
    return ("-" if found["sign"] in ("-", "\u2212") else "") + whole + (f".{found['rest']}" if found["rest"] else "")


def _bool(value: Any, _: str) -> bool:
    known = _BOOLEANS.get(_text(value, "").strip().lower())
    return _raise() if known is None else known


def _url(value: Any, base: str) -> str:
    if not isinstance(value, str):
        raise NotOfType
    try:
        return canonicalize(value.strip(), base, _KEEP_ALL).href
    except BadUrl:
        raise NotOfType from None


def _date(value: Any, _: str) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_DATE:
        raise NotOfType
    text = " ".join(value.split())
    for read in (_iso, *_WRITTEN, _sent):
        try:
            return read(text).isoformat()
        except (ValueError, OverflowError, TypeError):
            continue
    raise NotOfType


def _iso(text: str) -> date:
    if not text[:4].isdigit():
        raise ValueError(text)
    return date.fromisoformat(text) if len(text) <= 10 else datetime.fromisoformat(text)


def _sent(text: str) -> datetime:
    """As in the Date field of a mail (RFC 5322 3.3)."""
    if ":" not in text:
        raise ValueError(text)
    return parsedate_to_datetime(text)


def _written(form: str) -> Callable[[str], date]:
    return lambda text: datetime.strptime(text, form).date()


_WRITTEN = tuple(map(_written, _WRITTEN_DATES))


def _raise() -> Any:
    raise NotOfType


_CONVERTERS: Mapping[FieldType, Callable[[Any, str], Any]] = {
    "text": _text,
    "int": _int,
    "decimal": _decimal,
    "decimal_comma": _decimal_comma,
    "bool": _bool,
    "url": _url,
    "date": _date,
}
