"""Times as files tell them: UTC, made of whole seconds that many records share."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def iso_time(seconds: float) -> str:
    """`seconds` since 1970 in ISO 8601, UTC, with milliseconds."""
    whole, micros = _parts(seconds)
    return f"{_iso_second(whole)}.{micros // 1000:03d}Z"


def warc_date(seconds: float) -> bytes:
    """`seconds` since 1970 with microseconds, which WARC 1.1 section 5.4 allows."""
    whole, micros = _parts(seconds)
    return f"{_iso_second(whole)}.{micros:06d}Z".encode()


def digits(seconds: float) -> str:
    """`seconds` since 1970 in 14 digits, as indexes and file names have it."""
    return _digits_of_second(_parts(seconds)[0])


# To format a time takes some microseconds, and there are six a page.


@lru_cache(maxsize=64)
def _digits_of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y%m%d%H%M%S")


@lru_cache(maxsize=64)
def _iso_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _parts(seconds: float) -> tuple[int, int]:
    return divmod(round(seconds * 1_000_000), 1_000_000)
