"""Feed the targets with broken inputs, a million by default, and end with 1 if something came of it.

    python -m tests.fuzz [--inputs N] [--seed N] [--target NAME]

A finding is an exception, more than a second for one input, or memory beyond the limit. Its input goes to
`tests/fuzz/corpus/TARGET-DIGEST`, where `pytest tests/fuzz` feeds it from then on. The scripts in Redis get a share of
their own: random transitions with odd arguments, after which the counters must still add up.
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
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.transitions import run_transitions

CORPUS = Path(__file__).parent / "corpus"
SLOW_S = 1.0
MEMORY = 2 << 30
PER_TRANSITION = 200
"""Inputs to the other targets for one transition: a transition costs as much."""


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
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{findings} findings, peak memory {peak_mb:.0f} MB")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
