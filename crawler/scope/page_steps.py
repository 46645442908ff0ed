"""What a browser does with a page before its DOM is taken: steps in words, such as `click button.more`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from crawler.errors import UserError
from frontier.urls import UrlPattern

LONGEST_WAIT_S = 20.0
MOST_REPEATS = 50

_STEP = re.compile(
    r"(?:repeat (?P<times>[0-9]{1,3}) )?(?P<verb>click|remove|wait|grow)(?: (?P<selector>.+?))?"
    r"(?: (?P<seconds>[0-9]{1,2}(?:\.[0-9]+)?)s)?"
)
_FORMS = "`click SELECTOR`, `repeat 5 click SELECTOR`, `remove SELECTOR`, `wait SELECTOR 5s` and `grow`"


class Step(msgspec.Struct, frozen=True):
    """`verb`: `click`, `remove`, `wait` or `grow`; `times`: how often at most, as long as there is something to click;
    `seconds`: how long to wait for the element at most; `text`: as it was written."""

    text: str
    verb: str
    selector: str = ""
    times: int = 1
    seconds: float = 5.0


def parse_step(text: str) -> Step:
    """The step `text`. Raises UserError."""
    found = _STEP.fullmatch(text.strip())
    if found is None or (found["verb"] == "grow") == bool(found["selector"]):
        raise UserError(f"{text!r} is no step: there are {_FORMS}")
    if (found["times"] and found["verb"] != "click") or (found["seconds"] and found["verb"] != "wait"):
        raise UserError(f"{text!r} is no step: only `click` is repeated, and only `wait` has a time")
    seconds, times = float(found["seconds"] or 5.0), int(found["times"] or 1)
    if seconds > LONGEST_WAIT_S or not 1 <= times <= MOST_REPEATS:
        raise UserError(f"{text!r}: wait for {LONGEST_WAIT_S:g}s at most, and repeat 1 to {MOST_REPEATS} times")
    return Step(text.strip(), found["verb"], found["selector"] or "", times, seconds)


class PageSteps:
    """The steps for pages, each as `PATTERN -> STEP; STEP`. The first one whose regular expression is found in the URL
    counts. Raises UserError and BadInput."""

    def __init__(self, steps: Sequence[str] = ()) -> None:
        self._steps: list[tuple[UrlPattern, tuple[Step, ...]]] = []
        for text in steps:
            pattern, arrow, words = text.partition(" -> ")
            if not arrow:
                raise UserError(f"{text!r}: write it as PATTERN -> STEP; STEP")
            self._steps.append((UrlPattern(pattern.strip()), tuple(map(parse_step, words.split(";")))))

    def of(self, url: str) -> tuple[Step, ...]:
        return next((steps for pattern, steps in self._steps if pattern.is_in(url)), ())
