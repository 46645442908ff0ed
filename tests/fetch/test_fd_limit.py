"""A replica raises its limit of open files to what it needs, and works with what it gets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crawler.processes import IDLE_CONNECTIONS, SPARE_FILES, required_files

TOLD = """
import resource, sys
from crawler.processes import raise_fd_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(raise_fd_limit(64), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "idle", "soft_then"),
    [
        (256, 4096, IDLE_CONNECTIONS, required_files(64)),  # raised
        (2048, 4096, IDLE_CONNECTIONS, 2048),  # enough
        (256, 600, 600 - 64 - SPARE_FILES, 600),  # as far as it goes
        (128, 128, 16, 128),  # too little for anything
    ],
)
def test_the_limit_is_raised_as_far_as_it_has_to_be(soft: int, hard: int, idle: int, soft_then: int) -> None:
    command = [sys.executable, "-c", TOLD, str(soft), str(hard)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert tuple(map(int, told.split())) == (idle, soft_then, hard)
