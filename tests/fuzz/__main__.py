"""Feed the targets with broken inputs, a million by default, and exit with 1 after a finding.

    python -m tests.fuzz [--inputs N] [--seed N] [--target NAME]

A finding is an exception, more than a second for one input, or memory beyond the limit. Its input is stored in
`tests/fuzz/corpus/TARGET-DIGEST`, and `pytest tests/fuzz` feeds it from then on. The scripts in Redis get random
transitions with odd arguments, after which the counters must still add up. Last, `tests.fuzz.scaling` checks that time and
memory grow linearly with the size of each kind of input.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import resource
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.mutate import mutated
from tests.fuzz.repeated_inputs import FORMATS
from tests.fuzz.scaling import hungry, random_slots, slots, wrong_with
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.transitions import run_transitions

CORPUS = Path(__file__).parent / "corpus"
SLOW_S = 1.0
MEMORY = 2 << 30
PER_TRANSITION = 200
"""Inputs to the other targets for one transition: a transition costs as much."""
SCALED_BYTES = 32_768
RANDOM_SLOTS = 500  # of each format
PER_MEMORY = 10  # slots, of which one is also checked for memory, because this takes several times as long


def feed(target: Target, data: bytes) -> str | None:
    """What is wrong with how `target` took `data`, or None."""
    started = time.thread_time()
    try:
        target.feed(data)
    except Exception as error:
        # Without the message, which differs with each input: one finding a place.
        return "".join(traceback.format_tb(error.__traceback__, limit=-4)) + type(error).__name__
    took_s = time.thread_time() - started
    return f"{took_s:.1f} s for one input" if took_s > SLOW_S else None


def run(target: Target, inputs: int, rng: random.Random) -> dict[str, bytes]:
    """The findings, by what is wrong, among so many inputs."""
    found: dict[str, bytes] = {}
    for _ in range(inputs):
        data = mutated(target.seeds, target.tokens, rng)
        wrong = feed(target, data)
        if wrong is not None:
            found.setdefault(wrong, data)
    return found


def scale(name: str) -> int:
    """How many slots of the format `name` take time or memory that grows faster than they do."""
    found = 0
    for number, slot in enumerate([*slots(name), *random_slots(name, RANDOM_SLOTS, random.Random(name))]):
        wrong = wrong_with(slot, SCALED_BYTES) or (hungry(slot, SCALED_BYTES) if number % PER_MEMORY == 0 else None)
        if wrong is not None:
            print(f"{slot}:\n{wrong}", flush=True)
            found += 1
    print(f"scaling of {name}: {found} findings", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=[target.name for target in TARGETS])
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    findings = 0
    targets = [target for target in TARGETS if options.target in (None, target.name)]
    shares = sum(target.share for target in targets)
    for target in targets:
        inputs, started = options.inputs * target.share // shares, time.monotonic()
        found = run(target, inputs, random.Random(f"{options.seed} {target.name}"))
        took_s = time.monotonic() - started
        print(f"{target.name:14} {inputs:8} inputs, {took_s:6.1f} s, {len(found)} findings", flush=True)
        findings += len(found)
        for wrong, data in found.items():
            path = CORPUS / f"{target.name}-{hashlib.sha1(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"{path.name}:\n{wrong}")
    if options.target is None:
        count = options.inputs // PER_TRANSITION
        asyncio.run(run_transitions(count, options.seed))
        print(f"transitions    {count:8} with odd arguments: the counters add up")
        findings += sum(map(scale, FORMATS))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{findings} findings, peak memory {peak_mb:.0f} MB")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
