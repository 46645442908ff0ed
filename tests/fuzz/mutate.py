"""Inputs for a fuzzer: sound ones, broken in the ways in which formats are broken."""

from __future__ import annotations

import random
from collections.abc import Sequence

LONGEST = 65_536

_ODD = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x92\xa9",
    b"%",
    b"%00",
    b"%zz",
    b"\r\n",
    b"\n",
    b"\\",
)
_NUMBERS = (b"0", b"-1", b"1e309", b"9" * 30, b"4294967296", b"NaN", b"1" * 400, "\u0661".encode())


def mutated(seeds: Sequence[bytes], tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """One of `seeds` after one to six changes. `tokens`: what means something to the format."""
    data = rng.choice(seeds)
    for _ in range(rng.randint(1, 6)):
        data = _changed(data, seeds, tokens, rng)[:LONGEST]
    return data


def _changed(data: bytes, seeds: Sequence[bytes], tokens: Sequence[bytes], rng: random.Random) -> bytes:
    start = rng.randint(0, len(data))
    end = min(len(data), start + rng.choice((1, 2, 8, 64)))
    match rng.randrange(8):
        case 0:
            return data[:start] + bytes([rng.randrange(256)]) + data[end:]
        case 1:
            return data[:start] + data[end:]
        case 2 | 3:
            return data[:start] + rng.choice(tokens) + data[start:]
        case 4:
            return data[:start] + rng.choice((*_ODD, *_NUMBERS)) + data[end:]
        case 5:
            return data[:start] + data[start:end] * rng.choice((2, 3, 50, 1_000)) + data[end:]
        case 6:
            other = rng.choice(seeds)
            return data[:start] + other[rng.randint(0, len(other)) :]
        case _:
            return data[:start] + rng.choice(tokens) * rng.choice((2, 30, 300)) + data[start:]
