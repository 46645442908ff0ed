"""One finding of `crawler doctor`: what was checked, the result, and what to do about it."""

from __future__ import annotations

from typing import Literal

import msgspec

Result = Literal["good", "doubtful", "bad"]


class Finding(msgspec.Struct, frozen=True):
    """The result of a check. `remedy`: what to do unless the result is good."""

    check: str
    result: Result
    found: str
    remedy: str = ""
