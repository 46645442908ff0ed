"""Times in the formats of the output files, in UTC. Formatting takes some microseconds, and a page needs about six times,
so whole seconds are cached."""

from __future__ import annotations

import time
from functools import lru_cache


def iso_time(seconds: float) -> str:
    """`seconds` since 1970 in ISO 8601, with milliseconds."""
    whole, micros = _parts(seconds)
    return f"{_formatted('%Y-%m-%dT%H:%M:%S', whole)}.{micros // 1000:03d}Z"


@lru_cache(maxsize=16)
def warc_date(seconds: float) -> str:
    """`seconds` since 1970 with microseconds, which WARC 1.1 section 5.4 allows."""
    whole, micros = _parts(seconds)
    return f"{_formatted('%Y-%m-%dT%H:%M:%S', whole)}.{micros:06d}Z"


def digits(seconds: float) -> str:
    """`seconds` since 1970 as 14 digits, as in indexes and file names."""
    return _formatted("%Y%m%d%H%M%S", _parts(seconds)[0])


@lru_cache(maxsize=128)
def _formatted(form: str, second: int) -> str:
    return time.strftime(form, time.gmtime(second))


@lru_cache(maxsize=16)
def _parts(seconds: float) -> tuple[int, int]:
    return divmod(round(seconds * 1_000_000), 1_000_000)
