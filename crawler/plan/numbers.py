"""Numbers as people write them: 1e9, 5M, 10k and 1,000,000; and quantities as people read them."""

from __future__ import annotations

import math
import re

from crawler.errors import UserError

_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_WRITTEN = re.compile(r"(-?)(\d+(?:[,_]\d{3})+|\d+)?(\.\d+)?(e[+-]?\d{1,3})?([kmgt]?)", re.IGNORECASE)

STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

LEAST, MOST = 1e-6, 1e18
"""The least of numbers that something is divided by, and the most of all."""

PLAIN = 99_950
"""Below this, numbers are written without a prefix."""


def number(option: str, text: str, least: float = 0.0, most: float = MOST) -> float:
    """Return the number that `text` says. Raises UserError, which names `option`, if it is none or not in the range."""
    found = _WRITTEN.fullmatch(text.strip())
    if not found or not (found[2] or found[3]):
        raise UserError(f"{option}: {text!r} is not a number; write it like 1000000, 1e6, 1M or 10k")
    digits = re.sub("[,_]", "", found[2] or "0")
    value = float(f"{found[1]}{digits}{found[3] or ''}{found[4] or ''}") * _FACTORS[found[5].lower()]
    if not least <= value <= most:
        raise UserError(f"{option}: {text!r} must be {_range(least, most)}")
    return value


def _range(least: float, most: float) -> str:
    if most < MOST:
        return f"from {least:g} to {most:g}"
    return "more than 0, such as 1" if 0 < least <= LEAST else f"at least {least:g}, and at most {most:g}"


def short(value: float) -> str:
    """Return `value` with three significant digits, an integer with all, and from 100,000 on with a prefix: 5M, 0.0048."""
    return _with_prefix(value, "") if abs(value) >= PLAIN else _digits(value)


def short_above(value: float) -> str:
    """Return `value` like `short`, but 24.02 as 24.1: a number that is rounded up to a whole one later does not look as if
    it were the one below."""
    whole = math.floor(value)
    if whole < value < 100 and short(value) == short(whole):
        return short(whole + 0.1)
    return short(value)


def quantity(value: float, unit: str) -> str:
    """Return `value` with its `unit`: 11.6 kB, 117 Mbit/s, 1,160 pages/s, 3."""
    return _with_prefix(value, " ") + unit if unit in ("B", "bit/s") else f"{short(value)} {unit}".rstrip()


def _with_prefix(value: float, space: str) -> str:
    for factor, prefix in STEPS:
        if abs(value) >= factor * 0.9995:
            return f"{_digits(value / factor)}{space}{prefix}"
    return f"{_digits(value)}{space}"


def _digits(value: float) -> str:
    if value == round(value):
        return f"{value:,.0f}"
    if abs(value) < 99.95:
        return f"{value:.3g}"
    rounded = round(value, 2 - math.floor(math.log10(abs(value))))
    return f"{rounded:,.0f}"
