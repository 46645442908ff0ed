"""Converts texts of pages to the types of fields: numbers, dates, URLs. Pure.

A wrong value is worse than none, so a text that may mean two values is refused: `12K`, `1½`, `03/04/2026`. Libraries that
guess (price-parser, dateparser) read more and take 12, 1 and the 4th of March for these.
"""

from __future__ import annotations

import re
from calendar import month_name
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

from crawler.arguments import checked
from crawler.scope.extract_rules import LARGEST, FieldType
from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize

DIGITS = 15
"""Digits that a decimal number keeps exactly."""

LONGEST_NUMBER = 60
"""Characters of a text with a number."""

_BOOLEANS = {**dict.fromkeys(("true", "yes", "1", "on"), True), **dict.fromkeys(("false", "no", "0", "off"), False)}

_NUMBER = r"""(?:(?<![\d.,])|(?<=\b[RrKkFf][rs]\.)|(?<=S/\.))(?P<sign>(?<!\w)[-+\u2212])?
    (?P<whole>[1-9]\d{0,2}(?P<group>[GROUP'\u2019 ])\d{3}(?:(?P=group)\d{3})*|INDIAN\d+)(?:[MARK](?P<rest>\d+))?(?!\d)"""
_POINT, _COMMA = (
    re.compile(_NUMBER.replace("GROUP", group).replace("MARK", mark).replace("INDIAN", indian), re.VERBOSE)
    for group, mark, indian in ((",", ".", r"[1-9]\d?(?:,\d{2})+,\d{3}|"), (".", ",", ""))
)
_SCIENTIFIC = re.compile(r"[-+]?\d+(?:\.\d+)?[eE][-+]?\d{1,3}")

_MAGNITUDES = r"""
k mi[ol] mln mn milj mill?\. mill mil+[ijhy]?(?:[oó]n|oen|oan|ão|ões|ard|ar)\w* mrd mld mdr mds? bn bln trn? tn
bil+[ih]?(?:[oó]n|ões|ão)\w* tril+[ih]?(?:[oó]n|ões|ão)\w* tsd tys tis thousands? tausend duizend tusen tisíce? tisíců
tuhat\w* ezer mila mille mii bin hundreds? hundert honderd lakhs? lacs? crores? cr ribu rb juta jt nghìn ngàn triệu t[ỷỉ]
tusind\w* tyš tūkst\w* millió\w* milijon\w* milijun\w* miljoon\w* tisuć\w*
dozens? doz dz dutzend douzaines? docenas? dozzin[ae] dúzias? dozijn dussin дюжин\w* quadrillions?
тыс тысяч\w* тыщ\w* тисяч\w* хиляд\w* хил млн млрд трлн миллион\w* миллиард\w* мільйон\w* мільярд\w*
χιλ χιλιάδ\w* εκατ εκατομμύρι\w* δισ δισεκατομμύρι\w* हज़ार हज़ार हजार लाख करोड़ करोड़
ألف آلاف مليون ملايين مليار هزار میلیون میلیارد אלף אלפים מיליון מיליארד
"""
_CODES = (
    "eur|usd|gbp|chf|sek|nok|dkk|kr|pln|czk|huf|jpy|cny|inr|rub|cad|aud|brl|try|sgd|mxn|aed|hkd|nzd|zar|krw|thb|ils|ron|bgn|"
    "uah|sar|egp|clp|cop|ars|pen|php|myr|idr|vnd|twd|isk|rsd|kzt|pkr|qar|kwd|ngn|kes|mad"
)
_CURRENCY = rf"(?:[$€£¥₹₽₩₺₴]|(?i:{_CODES})(?![^\W\d])|(?:R|Rs|Rp|Kč|zł|Ft)\b)"
_MAGNITUDE = re.compile(
    rf"[kmb](?!\w)|\s?[+-]?\s?(?:(?:[KMB]|MM|T(?!-))(?!\w)|(?i:[kmbt]|md|mn|bn|tn){_CURRENCY}"
    rf"|(?i:{'|'.join(_MAGNITUDES.split())})(?!\w)|[十百千万億亿萬兆만억천]|พัน|หมื่น|แสน|ล้าน)"
)
"""What multiplies the number before it. A single `m` after a space is more often a metre."""

_DASH = "[-\u2010-\u2015\u2212\ufe58\ufe63\uff0d]"
_AMOUNT = rf"(?:[A-Z]{{0,3}}{_CURRENCY}|[A-Z]{{3}}\ )\ ?"
_MINUS = re.compile(rf"(?<!\w)[-\u2212]{_AMOUNT}$")
"""A minus sign before a currency and a number."""

_MAYBE_MINUS = re.compile(
    rf"(?:(?<!\w){_DASH}|{_DASH}(?=\ ?{_CURRENCY})|(?<!\w)(?:{_CURRENCY}){_DASH}"
    rf"|\b(?i:minus|negative|moins|menos|meno|минус|мінус))\s*(?:{_AMOUNT})?$"
    rf"|(?:^{_DASH}\s?|(?<!\w){_DASH})[^\d\s]{{1,4}}\s?$"
)
_MAYBE_MINUS_AFTER = re.compile(rf"{_DASH}(?!\w)|{_DASH}\ ?{_CURRENCY}|\ {_DASH}\ ?$")
_LOSS = re.compile(rf"(?:{_AMOUNT})?\([^()]*(?:{_CURRENCY}|\d[.,]\d\d(?!\d))[^()]*\)\ ?(?:{_AMOUNT})?")
"""An amount in parentheses, which may be a loss."""

_FROM = r"(?:from|only|ab|nur|ca\.?|preis|à partir de|dès|prix|od|jen|cena|fra|fr\.|från|pris|от|до|цена)"
_BEFORE_GROUPS = re.compile(rf"(?s:.*)[:=(~\n]\ ?(?:{_AMOUNT})?|[^\w]*(?:{_AMOUNT})?[^\w]*|(?i:{_FROM}) (?:{_AMOUNT})?")
"""What may be before a number whose groups are separated by plain spaces: no word that the first group may belong to."""

_LABEL = re.compile(r"[:=(~\n] ?$")
_UNIT = re.compile(rf"\ ?(?!{_CURRENCY})[^\W\d_]")
"""After a label and `2 500`, these may be two pieces of 500 g."""

_POWER = re.compile(r"(?<=[a-z])[²³]")
_NARROW_SPACES = str.maketrans(dict.fromkeys("\xa0\u2007\u2009\u202f", " "))

_ISO = re.compile(r"(?:\d{4}-?\d\d-?\d\d|\d{4}-?W\d\d-?\d)(?:[Tt]\d\d.*|\ \d\d:\d\d.*)?", re.ASCII)
"""What date.fromisoformat or datetime.fromisoformat reads: the latter takes any character before a time."""

_ZONE_OR_END = re.compile(r"[ ,](\d\d?):?(\d\d) ?[-\u2212](\d\d)(:?)(\d\d)$", re.ASCII)
"""A time with a negative offset, or two times: `10:00-12:00`, `20:00-02:00`."""

_FARTHEST_ZONES = timedelta(hours=-12), timedelta(hours=14)

_ZONES = {"z": 0, "utc": 0, "gmt": 0} | {
    f"{name}{kind}t": hours + (kind == "d")
    for name, hours in zip("ecmp", (-5, -6, -7, -8), strict=True)
    for kind in "sd"
}
"""The names of zones that RFC 5322 4.3 defines, in hours."""

_MONTHS = {"sept": 9} | {
    name: number for number, month in enumerate(month_name) for name in (month.lower(), month[:3].lower()) if name
}
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WRITTEN = re.compile(
    r"""(?:(?P<weekday>mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,?\ )?
    (?:(?P<iso>\d{4}(?P<mark>[-/.])\d\d(?P=mark)\d\d)
    |(?P<day>\d{1,2})(?:st|nd|rd|th)?[\ -](?P<month>[a-z]{3,9})\.?,?[\ -](?P<year>\d{4})
    |(?P<month2>[a-z]{3,9})\.?\ (?P<day2>\d{1,2})(?:st|nd|rd|th)?,?\ (?P<year2>\d{4})
    |(?P<day3>\d{1,2})\.\ ?(?P<month3>\d{1,2})\.\ ?(?P<year3>\d{4})
    |(?P<year4>\d{4})[年년]\ ?(?P<month4>\d{1,2})[月월]\ ?(?P<day4>\d{1,2})[日일])
    (?:,?(?:\ at)?\ (?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::(?P<second>\d\d))?)?\ ?(?:(?P<half>[ap])\.?m\.?)?
    \ ?(?P<zone>z|utc|gmt|[ecmp][sd]t|[+-]\d\d:?\d\d)?)?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_ASCTIME = "%a %b %d %H:%M:%S %Y"
_LONGEST_DATE = 60

_KEEP_ALL = UrlRules((), ())


class NotOfType(Exception):
    """Raised when a value is not of the type of its field."""


def converted(value: Any, wanted: FieldType, base: str) -> Any:
    """`value`, a text or another plain value of JSON, as the type `wanted`. `base`: the URL to which URLs are relative.
    Numbers in several lines of a text are several numbers. Raises NotOfType."""
    match wanted:
        case "text":
            return _text(value)
        case "int":
            return _int(value)
        case "decimal":
            return _decimal(value, _POINT)
        case "decimal_comma":
            return _decimal(value, _COMMA)
        case "bool":
            if (known := _BOOLEANS.get(_text(value).strip().lower())) is None:
                raise NotOfType
            return known
        case "url":
            return _url(value, base)
        case "date":
            return _date(value)


@checked
def number(value: Any, comma: bool = False) -> float | None:
    """The number that `value` has, a text or a number; None if it has none, or several. It is read as `[[extract]]` reads a
    `decimal`, and with `comma` as a `decimal_comma`."""
    try:
        return _decimal(value, _COMMA if comma else _POINT)
    except NotOfType:
        return None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        raise NotOfType
    return str(value)


def _int(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        value = int(_number(value, _POINT, is_whole=True))
    if not isinstance(value, int) or isinstance(value, bool) or not -LARGEST <= value < LARGEST:
        raise NotOfType
    return value


def _decimal(value: Any, numbers: re.Pattern[str]) -> float:
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
    text = _POWER.sub("", text.strip())  # the power of a unit, such as m²
    spaced, text = text, text.translate(_NARROW_SPACES)
    if len(text) > LONGEST_NUMBER or (found := numbers.search(text)) is None or _MAGNITUDE.match(text, found.end()):
        raise NotOfType
    before, after = text[: found.start()], text[found.end() :]
    if any(one.isnumeric() and not one.isalpha() for one in before + after) or (is_whole and found["rest"]):
        raise NotOfType
    is_spaced = found["group"] == " " and " " in spaced[found.start() : found.end()]
    if is_spaced and (not _BEFORE_GROUPS.fullmatch(before) or (_LABEL.search(before) and _UNIT.match(after))):
        raise NotOfType  # two numbers, as in `iPhone 5 128 GB`
    is_negative = found["sign"] in ("-", "\u2212") or bool(_MINUS.search(before))
    if _MAYBE_MINUS_AFTER.match(after) or _LOSS.fullmatch(text) or (not is_negative and _MAYBE_MINUS.search(before)):
        raise NotOfType
    whole = re.sub(r"\D", "", found["whole"])
    return ("-" if is_negative else "") + whole + (f".{found['rest']}" if found["rest"] else "")


def _url(value: Any, base: str) -> str:
    if not isinstance(value, str):
        raise NotOfType
    try:
        return canonicalize(value.strip(), base, _KEEP_ALL).href
    except BadUrl:
        raise NotOfType from None


def _date(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_DATE:
        raise NotOfType
    text = " ".join(value.split())
    is_iso = bool(_ISO.fullmatch(text))
    if (times := _ZONE_OR_END.search(text)) and (
        (times[3], times[5]) >= (times[1].zfill(2), times[2]) or (times[4] and not is_iso)
    ):
        raise NotOfType
    with suppress(ValueError, OverflowError, TypeError):
        if is_iso:
            return date.fromisoformat(text).isoformat() if len(text) <= 10 else _in_iso(datetime.fromisoformat(text))
    with suppress(ValueError, OverflowError, KeyError):
        if found := _WRITTEN.fullmatch(text):
            return _written(found)
    with suppress(ValueError):
        at = datetime.strptime(text, _ASCTIME)
        if _DAYS[at.weekday()] == text[:3].lower():
            return at.isoformat()
    raise NotOfType


def _written(found: re.Match[str]) -> str:
    """The date, and the time if there is one. Raises ValueError and KeyError."""
    if found["iso"]:
        day = date.fromisoformat(re.sub("[/.]", "-", found["iso"]))
    elif name := found["month"] or found["month2"]:
        day = date(int(found["year"] or found["year2"]), _MONTHS[name.lower()], int(found["day"] or found["day2"]))
    else:  # with points, the day is first in every language
        numbers = (found[name + "3"] or found[name + "4"] for name in ("year", "month", "day"))
        day = date(*map(int, numbers))
    if found["weekday"] and _DAYS[day.weekday()] != found["weekday"][:3].lower():
        raise ValueError("another day of the week")
    if not found["hour"]:
        return day.isoformat()
    hour = int(found["hour"])
    if found["half"]:
        if not 1 <= hour <= 12:
            raise ValueError("not an hour of half a day")
        hour = hour % 12 + 12 * (found["half"].lower() == "p")
    elif not found["minute"]:
        raise ValueError("not a time")
    at = time(hour, int(found["minute"] or 0), int(found["second"] or 0), tzinfo=_zone(found["zone"]))
    return _in_iso(datetime.combine(day, at))


def _in_iso(at: datetime) -> str:
    """Raises ValueError if no zone is so far from UTC."""
    if (offset := at.utcoffset()) is not None and not _FARTHEST_ZONES[0] <= offset <= _FARTHEST_ZONES[1]:
        raise ValueError("not the offset of a zone")
    return at.isoformat()


def _zone(text: str | None) -> timezone | None:
    if not text:
        return None
    if (hours := _ZONES.get(text.lower())) is not None:
        return timezone(timedelta(hours=hours)) if hours else UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-offset if text[0] == "-" else offset)
