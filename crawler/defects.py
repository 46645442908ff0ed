"""Defects: unexpected exceptions while handling data from a site.

Sites can send anything, and an input that a parser does not expect must not end a replica. Code that handles such input
therefore settles the URL in question as `defect` and emits the event that this module creates.
"""

from __future__ import annotations

import traceback
from typing import Literal

from crawler.events import DefectFound

Stage = Literal["fetch", "robots", "usage", "answer", "read", "text", "record", "line", "listener"]
"""The step that failed.

- `fetch`: sending the request and receiving the response
- `robots`: parsing or applying a robots.txt
- `usage`: fetching or parsing a tdmrep.json
- `answer`: updating the backoff from the response
- `read`: parsing the page and filtering its links
- `text`: extracting text and structured data
- `record`: building the WARC records
- `line`: building the JSON line
- `listener`: notifying an event listener
"""

_LONGEST_TRACEBACK = 8_000
"""Characters that are kept, from the end: the message of an exception may contain the whole input."""


def defect(stage: Stage, url: str, error: BaseException) -> DefectFound:
    """Return the event that reports `error`, which was raised at `stage` while `url` was handled."""
    text = "".join(traceback.format_exception(error))
    return DefectFound(stage, url, in_words(error)[:200], text[-_LONGEST_TRACEBACK:])


def in_words(error: BaseException) -> str:
    """Return the type of `error` and its message, which code of users may be unable to give."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
