"""Writes the state of a page's visits as a short text of hexadecimal digits. Redis stores it for each known page, in bytes.

A number is written as one hexadecimal digit, its length, followed by that many digits.
The ETags of nginx and Apache consist of hexadecimal digits and hyphens,
so they are written as a number, too: 13 characters take 7 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

LARGEST = 16**15 - 1
_PADDING, _STRONG, _WEAK, _DATE, _OTHER = "01234"  # the kinds of validators
_QUOTES = {_STRONG: 'e"', _WEAK: 'eW/"'}
_TAG_DIGITS = "0123456789abcdefg"  # g stands for the hyphen


def state_text(numbers: Sequence[int], digest: str, validator: str) -> str:
    """The text of `numbers`, which are cut to 0 and LARGEST, of `digest`, at most 15 hexadecimal digits, and of
    `validator`, "e" and an ETag, "m" and the seconds of a date, or empty."""
    fields = [f"{min(number, LARGEST):x}" if number > 0 else "" for number in numbers]
    text = "".join(f"{len(field):x}{field}" for field in (*fields, digest))
    kind = _validator_text(validator)
    return text + kind if len(text + kind) % 2 == 0 else text + _PADDING + kind


def parsed_state(text: str, count: int) -> tuple[list[int], str, str]:
    """The `count` numbers, the digest and the validator in `text`. Raises ValueError."""
    fields, at = [], 0
    for _ in range(count + 1):
        end = at + 1 + int(text[at : at + 1], 16)
        fields.append(text[at + 1 : end])
        at = end
    return [int(field or "0", 16) for field in fields[:-1]], fields[-1], _validator(text[at:].removeprefix(_PADDING))


def _validator_text(validator: str) -> str:
    for kind, beginning in _QUOTES.items():
        tag = validator.removeprefix(beginning).removesuffix('"')
        if validator == f'{beginning}{tag}"' and tag and not tag.strip("0123456789abcdef-"):
            return f"{kind}{int('1' + tag.replace('-', 'g'), 17):x}"  # the 1 keeps the zeros
    if validator.startswith("m"):
        return f"{_DATE}{int(validator[1:]):x}"
    return _OTHER + validator[1:].encode().hex() if validator else ""


def _validator(text: str) -> str:
    kind, digits = text[:1], text[1:]
    if kind in _QUOTES:
        return f'{_QUOTES[kind]}{_tag(int(digits, 16))}"'
    if kind == _DATE:
        return f"m{int(digits, 16)}"
    return f"e{bytes.fromhex(digits).decode()}" if kind else ""


def _tag(number: int) -> str:
    tag = ""
    while number > 1:
        number, digit = divmod(number, 17)
        tag = _TAG_DIGITS[digit] + tag
    return tag.replace("g", "-")
