"""What the fuzzer found once is fed again, and each target gets a taste of new inputs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.__main__ import CORPUS, feed, run
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.transitions import run_transitions

BY_NAME = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*-*")), ids=lambda path: path.name)
def test_what_was_found_stays_mended(path: Path) -> None:
    assert feed(BY_NAME[path.name.rpartition("-")[0]], path.read_bytes()) is None


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_sound_and_broken_inputs_are_taken(target: Target) -> None:
    for seed in target.seeds:
        assert feed(target, seed) is None
    assert run(target, 150, random.Random(7)) == {}


async def test_the_books_add_up_after_random_transitions() -> None:
    await run_transitions(200, seed=3)
