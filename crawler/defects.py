"""Defects: what was raised, against all expectation, while something that a site sent was handled.

A site's input is written by strangers, and a parser that meets what nobody foresaw must not end a replica. Each place
where such input is handled therefore settles the one URL in question as `defect`, and emits the event made here.
"""

from __future__ import annotations

import traceback
from typing import Literal

from crawler.events import DefectFound

Stage = Literal["fetch", "robots", "answer", "read", "text", "record", "line", "listener"]
"""What was being done: making the request; reading or applying a robots.txt; judging the answer; reading the page and
judging its links; finding the text and data in it; making its WARC records; making its JSON line; telling listeners."""

_LONGEST_TRACEBACK = 8_000
"""Characters, the last ones: an error may quote what it was given."""


def defect(stage: Stage, url: str, error: BaseException) -> DefectFound:
    """The event that tells of `error`, raised at `stage` while `url` was handled."""
    text = "".join(traceback.format_exception(error))
    return DefectFound(stage, url, f"{type(error).__name__}: {error}"[:200], text[-_LONGEST_TRACEBACK:])
