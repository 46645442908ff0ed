"""The same targets, guided by coverage: for inputs that reach the branches which chance does not.

    pip install atheris
    python -m tests.fuzz.guided html -max_total_time=60

The options behind the target's name are libFuzzer's. What it learns stays in a folder of the system's temporary ones, so
that the next run goes on from there. A finding ends the run; its input goes to `tests/fuzz/corpus/`, where `pytest
tests/fuzz` feeds it from then on.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

with atheris.instrument_imports(include=["crawler", "politeness", "frontier"]):
    from tests.fuzz.__main__ import CORPUS, MEMORY, SLOW_S, feed
    from tests.fuzz.mutate import LONGEST
    from tests.fuzz.targets import TARGETS, Target


def prepared(target: Target) -> list[str]:
    """libFuzzer's arguments: where its inputs are kept, the sound ones among them, and the words of the format."""
    folder = Path(tempfile.gettempdir()) / f"fuzz-{target.name}"
    folder.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    words = folder.with_suffix(".dict")
    words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in token) + '"\n' for token in target.tokens))
    limits = [f"-max_len={LONGEST}", f"-rss_limit_mb={MEMORY >> 20}", f"-timeout={int(10 * SLOW_S)}"]
    return [str(folder), f"-dict={words}", f"-artifact_prefix={CORPUS}/{target.name}-", *limits]


def main() -> None:
    name, *options = sys.argv[1:]
    target = next(target for target in TARGETS if target.name == name)

    def one(data: bytes) -> None:
        wrong = feed(target, data)
        if wrong is not None:
            raise AssertionError(wrong)

    atheris.Setup([sys.argv[0], *prepared(target), *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
