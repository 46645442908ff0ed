"""The formats of a time agree with each other."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from crawler.sinks.cdxj import digits
from crawler.sinks.lines import iso_time
from crawler.sinks.warc import warc_date


def test_a_moment_in_each_form() -> None:
    assert warc_date(1_700_000_000.0) == "2023-11-14T22:13:20.000000Z"
    assert iso_time(1_700_000_000.0625) == "2023-11-14T22:13:20.062Z"
    assert digits(1_700_000_000.999) == "20231114221320"


def test_what_rounds_up_to_a_second_is_that_second_everywhere() -> None:
    seconds = 1_700_000_000.9999998
    assert (warc_date(seconds), iso_time(seconds), digits(seconds)) == (
        "2023-11-14T22:13:21.000000Z",
        "2023-11-14T22:13:21.000Z",
        "20231114221321",
    )


@given(st.floats(0, 4_000_000_000))
def test_they_are_those_of_the_standard_library(seconds: float) -> None:
    moment = datetime.fromtimestamp(round(seconds * 1_000_000) / 1_000_000, UTC)
    told = datetime.fromisoformat(warc_date(seconds))
    assert abs((told - moment).total_seconds()) <= 1e-6
    assert digits(seconds) == told.strftime("%Y%m%d%H%M%S")
    assert iso_time(seconds) == told.isoformat(timespec="milliseconds").replace("+00:00", "Z")
