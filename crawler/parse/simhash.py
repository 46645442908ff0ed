"""Fingerprints that are similar for similar texts, and an index that finds similar ones. Pure.

The fingerprint is Charikar's (Similarity estimation techniques from rounding algorithms, STOC 2002): a bit is set if it is
set in the hashes of more than half of the text's features. The features are all runs of three words, with repetitions;
their hash is XXH3-64, so a text has the same fingerprint on every machine. If a few words change, a few bits change. Texts
that differ in at most three of 64 bits count as copies, as Manku, Jain and Das Sarma recommend for eight billion pages
(Detecting near-duplicates for web crawling, WWW 2007, section 4).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from functools import cache

from xxhash import xxh3_64_digest

NEAR = 3
"""Number of bits in which the fingerprints of copies may differ (Manku et al. 2007, section 4)."""

_SHINGLE = 3  # words
_ROW = 64  # bits of a fingerprint
_ALL = (1 << _ROW) - 1

_BLOCKS = NEAR + 1
_BLOCK = _ROW // _BLOCKS  # bits
_CHAIN = 1_000  # entries compared per table; only an attack causes this many collisions

_SPACES = bytes(code if code >= 128 or chr(code).isalnum() else 32 for code in range(256))


@cache
def _unspaced() -> re.Pattern[str]:
    """Characters of scripts with few or no spaces between words. Each counts as a word."""
    return re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af]")


def simhash(text: str) -> int | None:
    """The fingerprint of `text`, 64 bits. None if it has no words."""
    words = words_of(text)
    if not words:
        return None
    shingles = zip(*(words[start:] for start in range(_SHINGLE)), strict=False)
    digests = list(map(xxh3_64_digest, map(b" ".join, shingles))) or [xxh3_64_digest(b" ".join(words))]
    return _majority(_counts(digests), len(digests) // 2)


def words_of(text: str) -> list[bytes]:
    """The words of `text` in lower case, separated by spaces and ASCII punctuation."""
    if not text.isascii():
        text = _unspaced().sub(r" \g<0> ", text)
    return text.lower().encode(errors="replace").translate(_SPACES).split()


def _counts(digests: Sequence[bytes]) -> list[int]:
    """Count for each of 64 bits how many of `digests` have it. The nth number of the result has the nth binary digit of all
    64 counters, lowest first.

    The counters are bit-sliced: the digests form one long number, whose halves are added digit by digit until one row of
    64 bits is left. So the interpreter adds all rows at once. A loop over the digests takes tens of milliseconds.
    """
    planes, rows = [int.from_bytes(b"".join(digests))], len(digests)
    while rows > 1:
        lower = rows // 2 * _ROW
        mask = (1 << lower) - 1
        carry, added = 0, []
        for plane in planes:
            one, other = plane >> lower, plane & mask
            added.append(one ^ other ^ carry)
            carry = (one & other) | (carry & (one ^ other))
        planes = [*added, carry]
        rows -= rows // 2
    return planes


def _majority(planes: Sequence[int], half: int) -> int:
    """The bits whose counter in `planes` is above `half`. Compares digits from the highest down."""
    more, equal = 0, _ALL
    for digit in reversed(range(len(planes))):
        if half >> digit & 1:
            equal &= planes[digit]
        else:
            more |= equal & planes[digit]
            equal &= ~planes[digit]
    return more


def is_near(one: int, other: int) -> bool:
    """Whether two fingerprints belong to copies."""
    return (one ^ other).bit_count() <= NEAR


class NearIndex:
    """The last `capacity` fingerprints, each with the URL of its page.

    If two fingerprints differ in three bits, at least one of their four blocks of 16 bits is equal (Manku et al. 2007,
    section 3.1). So there is one table for each block, and only fingerprints found there are compared. A table consists
    of chains through a ring buffer, newest entry first, like the window of deflate. This takes 40 bytes per fingerprint,
    plus its URL, and nothing needs to be deleted.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._count = 0
        self._prints = array("Q", [0]) * capacity
        self._urls = [""] * capacity
        self._newest = [array("q", [-1]) * (1 << _BLOCK) for _ in range(_BLOCKS)]
        self._before = [array("q", [-1]) * capacity for _ in range(_BLOCKS)]

    def __repr__(self) -> str:
        return f"<NearIndex {min(self._count, self._capacity)} of {self._capacity}>"

    def find(self, fingerprint: int) -> str | None:
        """The URL of a page with a similar fingerprint, or None."""
        if not self._capacity:
            return None
        oldest = max(0, self._count - self._capacity)
        for block in range(_BLOCKS):
            number = self._newest[block][_block(fingerprint, block)]
            for _ in range(_CHAIN):
                if number < oldest:
                    break
                slot = number % self._capacity
                if is_near(self._prints[slot], fingerprint):
                    return self._urls[slot]
                number = self._before[block][slot]
        return None

    def add(self, fingerprint: int, url: str) -> None:
        """Add `fingerprint`. If the index is full, it replaces the oldest one."""
        if not self._capacity:
            return
        slot = self._count % self._capacity
        self._prints[slot], self._urls[slot] = fingerprint, url
        for block in range(_BLOCKS):
            key = _block(fingerprint, block)
            self._before[block][slot] = self._newest[block][key]
            self._newest[block][key] = self._count
        self._count += 1


def _block(fingerprint: int, number: int) -> int:
    return fingerprint >> number * _BLOCK & (1 << _BLOCK) - 1
