"""Stateless random numbers: the same seed and words always give the same result."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Generic, TypeVar

from xxhash import xxh3_64_intdigest

T = TypeVar("T")

_TWO_32 = 1 << 32
_MASK_64 = (1 << 64) - 1


def draw(seed: int, *words: object) -> int:
    """64 bits that depend only on `seed` and `words`, and are the same on every machine (XXH3)."""
    return xxh3_64_intdigest("/".join(map(str, words)).encode(), seed & _MASK_64)


def fraction(bits: int) -> float:
    """The low 32 of `bits` as a number in [0, 1)."""
    return (bits & 0xFFFFFFFF) / _TWO_32


class Shares(Generic[T]):
    """A weighted choice by shares in [0, 1]. `rest` gets the remainder. Raises ValueError if the sum exceeds 1."""

    def __init__(self, shares: Mapping[T, float], rest: T) -> None:
        self._bounds = list(accumulate(shares.values()))
        self._choices = [*shares, rest]
        if any(share < 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
            raise ValueError(f"shares must be positive and add up to at most 1: {dict(shares)}")

    def pick(self, bits: int) -> T:
        """The choice for the low 32 of `bits`."""
        return self._choices[bisect_right(self._bounds, (bits & 0xFFFFFFFF) / _TWO_32)]
