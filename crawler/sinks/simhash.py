"""Fingerprints that nearly equal texts nearly share, and an index that finds them. Pure.

The fingerprint is Charikar's (Similarity estimation techniques from rounding algorithms, STOC 2002): each bit says
whether more than half of a text's features have it in their hashes. The features are the runs of three words, as often
as they occur; their hash is XXH3-64, so that the same text has the same fingerprint everywhere. A few changed words of a
page change a few bits, and pages that differ in at most three of 64 are taken as copies of each other, as Manku, Jain
and Das Sarma found for eight billion pages (Detecting near-duplicates for web crawling, WWW 2007, section 4).

Of 15 KB of text (2,400 words) it takes 0.6 ms: a third for the words, half for the hashes, and the rest to count.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

from xxhash import xxh3_64_digest

NEAR = 3
"""Bits in which the fingerprints of copies may differ (Manku et al. 2007, section 4)."""

_SHINGLE = 3  # words
_ROW = 64  # bits of a fingerprint
_ALL = (1 << _ROW) - 1

_BLOCKS = NEAR + 1
_BLOCK = _ROW // _BLOCKS  # bits
_CHAIN = 1_000  # entries looked at in a table: hundreds of times what chance brings together, so what attackers do

_SPACES = bytes(code if code >= 128 or chr(code).isalnum() else 32 for code in range(256))
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af]")
"""Characters of scripts that put no spaces, or few, between words: each is taken as a word."""


def simhash(text: str) -> int | None:
    """The fingerprint of `text`, 64 bits; None if there is no word in it."""
    words = words_of(text)
    if not words:
        return None
    shingles = zip(*(words[start:] for start in range(_SHINGLE)), strict=False)
    digests = list(map(xxh3_64_digest, map(b" ".join, shingles))) or [xxh3_64_digest(b" ".join(words))]
    return _majority(_counts(digests), len(digests) // 2)


def words_of(text: str) -> list[bytes]:
    """The words of `text` in lower case: what stands between spaces and ASCII punctuation."""
    if not text.isascii():
        text = _UNSPACED.sub(r" \g<0> ", text)
    return text.lower().encode(errors="replace").translate(_SPACES).split()


def _counts(digests: Sequence[bytes]) -> list[int]:
    """How many of `digests` have each bit: 64 counters, whose binary digits stand in one number each, lowest first.

    Bit-sliced: the digests are one long number, whose halves are added digit by digit until one row of 64 is left. So
    the interpreter's arithmetic does 64 counters of all rows at once, where a loop takes tens of milliseconds.
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
    """The bits whose counter in `planes` is above `half`, compared from the highest digit down."""
    more, equal = 0, _ALL
    for digit in reversed(range(len(planes))):
        if half >> digit & 1:
            equal &= planes[digit]
        else:
            more |= equal & planes[digit]
            equal &= ~planes[digit]
    return more


def is_near(one: int, other: int) -> bool:
    """Whether two fingerprints are of copies."""
    return (one ^ other).bit_count() <= NEAR


class NearIndex:
    """The last `capacity` fingerprints, each with the URL of its page, by which a near one is found.

    Of two fingerprints that differ in three bits, one of four blocks of 16 bits is equal (Manku et al. 2007, section
    3.1); so there are four tables, by each block, and only what is found there is compared. A table is a chain through
    a ring, the newest first, as in deflate's window: 40 bytes a fingerprint, beside its URL, and nothing to delete.
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
        """The URL of a page with a near fingerprint, or None."""
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
        """Remember `fingerprint`; the oldest is forgotten when there is no room."""
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
