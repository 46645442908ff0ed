"""Fingerprints of texts, and the index that finds near ones."""

from __future__ import annotations

import random
import time

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from crawler.parse.text import NEAR, NearIndex, is_near, simhash, words_of

ALL = (1 << 64) - 1


def by_definition(text: str) -> int | None:
    """Charikar's fingerprint by its definition: all shingles vote on each bit."""
    words = words_of(text)
    shingles = [b" ".join(words[at : at + 3]) for at in range(max(1, len(words) - 2))]
    hashes = [xxh3_64_intdigest(shingle) for shingle in shingles]
    if not words:
        return None
    return sum(1 << bit for bit in range(64) if 2 * sum(h >> bit & 1 for h in hashes) > len(hashes))


@given(st.lists(st.sampled_from(["one", "two", "three", "Żółw", "x1", "漢字", "a-b", "--"]), max_size=70))
def test_the_fingerprint_is_the_vote_of_the_shingles(words: list[str]) -> None:
    text = " ".join(words)
    assert simhash(text) == by_definition(text)


def test_the_fingerprint_is_the_same_everywhere_and_always() -> None:
    """Fingerprints are stored in files, so later versions must compute the same ones."""
    assert simhash("") is simhash(" -- ") is None
    assert f"{simhash('The quick brown fox jumps over the lazy dog'):016x}" == "5cc1c8efc0c9b905"
    assert simhash("The QUICK, brown;\tfox") == simhash("the quick brown fox")


def test_words_of_scripts_without_spaces_are_their_characters() -> None:
    assert words_of("漢字 and Katakana: カナ") == [
        "漢".encode(),
        "字".encode(),
        b"and",
        b"katakana",
        "カ".encode(),
        "ナ".encode(),
    ]
    text = "".join(chr(0x4E00 + random.Random(1).randrange(3_000)) for _ in range(1_500))
    one, other = simhash(text), simhash(text[:700] + "一" + text[701:])
    assert one is not None
    assert other is not None
    assert is_near(one, other)


def flipped(fingerprint: int, bits: list[int]) -> int:
    for bit in bits:
        fingerprint ^= 1 << bit
    return fingerprint


@given(st.integers(0, ALL), st.lists(st.integers(0, 63), max_size=NEAR + 3, unique=True), st.randoms())
def test_what_differs_in_three_bits_is_found_and_no_more(
    fingerprint: int, bits: list[int], chance: random.Random
) -> None:
    index = NearIndex(60)
    for number in range(20):
        index.add(flipped(fingerprint, chance.sample(range(64), 30)), f"far-{number}")
    index.add(fingerprint, "it")
    for number in range(20):
        index.add(flipped(fingerprint, chance.sample(range(64), 30)), f"far-{number + 20}")
    found = index.find(flipped(fingerprint, bits))
    assert (found == "it") == (len(bits) <= NEAR)


def test_the_index_forgets_the_oldest_and_does_not_grow() -> None:
    index, noise = NearIndex(1_000), random.Random(1)
    prints = [noise.getrandbits(64) for _ in range(5_000)]
    for number, fingerprint in enumerate(prints):
        assert index.find(fingerprint) is None
        index.add(fingerprint, str(number))
    assert [index.find(fingerprint) for fingerprint in prints[:4_000]] == [None] * 4_000
    assert [index.find(fingerprint) for fingerprint in prints[4_000:]] == [str(n) for n in range(4_000, 5_000)]
    assert repr(index) == "<NearIndex 1000 of 1000>"


def test_an_index_without_room_finds_nothing() -> None:
    index = NearIndex(0)
    index.add(1, "it")
    assert index.find(1) is None


def test_fingerprints_made_to_meet_cost_a_bounded_time() -> None:
    """All share a block of 16 bits, and none is similar: 100,000 of them are no slower than a thousand."""
    index = NearIndex(100_000)
    noise = random.Random(1)
    for _ in range(100_000):
        index.add(noise.getrandbits(48) << 16, "other")
    before = time.process_time()
    for _ in range(100):
        index.find(noise.getrandbits(48) << 16)
    assert time.process_time() - before < 2.0  # unbounded: 100 x 100,000 comparisons, ten times as long
