"""Commands typed within the test's own process, from the program's entry point to its exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from crawler.cli.main import main
from crawler.logs import logger
from tests.e2e.harness import Finished


class Typed:
    """Types `crawler words...` in `folder`. A process of its own would do the same half a second later: that is how
    long the imports take. The replicas of `crawler crawl` are processes, and what they print is part of the result."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        patch.chdir(folder)
        patch.setenv("COLUMNS", "60")
        patch.setattr(logger, "handlers", [])  # a command's log goes to what is standard error while it runs
        self._patch = patch
        self._captured = captured

    def __call__(self, *words: str, environment: Mapping[str, str] = MappingProxyType({})) -> Finished:
        code = 0
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", ["crawler", *words])
            for name, value in environment.items():
                patch.setenv(name, value)
            self._captured.readouterr()
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return Finished(code, *self._captured.readouterr())
