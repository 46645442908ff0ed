"""What one robots.txt says to one crawler, extracted from the file in a form that can be stored. Pure.

A robots.txt may have 512 KiB, mostly groups for other crawlers, comments, and rules that other rules replace. An `Excerpt`
holds only what a decision can depend on, so `Rules` built from it decides about every URL as the whole file would.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable
from typing import Final

import msgspec
from protego import Protego, RequestRate

from politeness.errors import BadRecord
from politeness.robots_syntax import GroupReader, comparable_rule, lines_of, records

SLICE: Final = 1_000
"""Lines or rules that are processed before other tasks get their turn: 1 to 3 ms."""

_COMPRESSION: Final = 1
"""Higher levels of zlib save no more than 2 % of such data, and take up to 6 times as long."""


class Rule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An Allow or Disallow line: its number in the file, from 1, and its path as written."""

    line: int
    is_allow: bool
    path: bytes

    @property
    def comparable(self) -> str:
        """The path in the form in which rules compare."""
        return comparable_rule(self.path)


class UsageRule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A Content-Usage line: its number in the file, from 1, and its value as written."""

    line: int
    value: bytes


class Excerpt(msgspec.Struct, frozen=True, array_like=True):
    """What one robots.txt says to one product token.

    `group`: name of the group that applies: the product token, `*`, or None if no group applies. `rules`: its rules; no two
    have the same comparable path. `crawl_delay`: the longest Crawl-delay of the group in seconds, or None. `request_rate`:
    seconds per request by its slowest Request-rate, times of day ignored, or None. `sitemaps`: the Sitemap URLs as written,
    of all groups, at most `robots_syntax.MAX_SITEMAPS`. `usage`: the different Content-Usage lines of the group.
    `licenses`: licence offers (RSL), of all groups.
    """

    group: str | None
    rules: list[Rule]
    crawl_delay: float | None
    request_rate: float | None
    sitemaps: tuple[str, ...]
    usage: list[UsageRule] = []
    licenses: tuple[str, ...] = ()

    def pack(self) -> bytes:
        """The compressed bytes that `unpack` reads."""
        return zlib.compress(_encoder.encode(self), _COMPRESSION)

    @staticmethod
    def unpack(packed: bytes) -> Excerpt:
        """Raises BadRecord if `packed` was not made by `pack`."""
        try:
            return _decoder.decode(zlib.decompress(packed))
        except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadRecord(f"robots.txt excerpt is damaged: {error}") from error


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Excerpt)


def extract(body: bytes, product_token: str) -> Generator[None, None, Excerpt]:
    """Extract what `body` says to the crawler that calls itself `product_token` (see `robots_syntax.is_product_token`).

    Accepts any bytes, and skips what cannot be parsed, as RFC 9309 2.3.1.5 asks. The generator returns the excerpt. It
    yields after every few milliseconds of work: 500 KiB of short lines may take 0.3 s.
    """
    reader = GroupReader(product_token)
    lines = lines_of(body)
    for at in range(0, len(lines), SLICE):
        if at:
            yield
        for line, field, value in records(lines[at : at + SLICE], at + 1):
            reader.take(line, field, value)
    section = reader.section()
    if section is None:
        return Excerpt(None, [], None, None, tuple(reader.sitemaps), licenses=tuple(reader.licenses))
    rules: dict[str, Rule] = {}
    for number, (line, field, value) in enumerate(section.rules):
        if number and number % SLICE == 0:
            yield
        rule = Rule(line, field == "allow", value)
        path = rule.comparable
        known = rules.setdefault(path, rule)
        if rule.is_allow and not known.is_allow:  # of equal paths Allow counts (RFC 9309 2.2.2), otherwise the first
            rules[path] = rule
    delay, rate = _longest_delay(section.delays), _slowest_rate(section.rates)
    usage = [UsageRule(line, value) for value, line in section.usage.items()]
    return Excerpt(
        section.name, list(rules.values()), delay, rate, tuple(reader.sitemaps), usage, tuple(reader.licenses)
    )


def _longest_delay(values: Iterable[str]) -> float | None:
    """The greatest of the Crawl-delay values that are numbers, in seconds."""
    delays = (Protego.parse(f"User-agent: *\nCrawl-delay: {value}").crawl_delay("*") for value in values)
    return max((delay for delay in delays if delay is not None), default=None)


def _slowest_rate(values: Iterable[str]) -> float | None:
    """The most seconds per request among the Request-rate values.

    A rate for some hours of the day applies all day. This never exceeds the rate, and needs no time zone.
    """
    rates = (Protego.parse(f"User-agent: *\nRequest-rate: {value}").request_rate("*") for value in values)
    return max((_seconds_per_request(rate) for rate in rates if rate is not None), default=None)


def _seconds_per_request(rate: RequestRate) -> float:
    try:
        return rate.seconds / rate.requests
    except OverflowError:  # Protego reads numbers of any length
        return float("inf") if rate.seconds > rate.requests else 0.0
