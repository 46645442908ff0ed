"""A process that writes groups of pages until the disk is full, makes space, and continues.

    python -m tests.sinks.fill_disk quota|disk FOLDER LINKS [fsync]

Prints how many times a write was refused, and how many groups were written in all.
"""

from __future__ import annotations

import asyncio
import random
import resource
import subprocess
import sys
from pathlib import Path

from crawler.errors import SinkFull
from crawler.page import Link
from crawler.sinks.archive import Archive
from tests.sinks.values import exchange, page, settings

MAX_BYTES = {"quota": 1 << 30, "disk": 60_000}  # a small disk holds several volumes


def set_quota(size: int) -> None:
    """Limit the size of files. A write that would exceed it is cut short, and the next one fails."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def raise_fd_limit(kind: str, folder: Path) -> None:
    if kind == "quota":
        set_quota(10_000_000)
    else:
        subprocess.run(["mount", "-o", "remount,size=10m", str(folder)], check=True)


def contents(folder: Path) -> dict[str, bytes]:
    """The contents of all files that are not empty, by their final names."""
    return {path.name.removesuffix(".open"): path.read_bytes() for path in folder.iterdir() if path.stat().st_size}


async def main(kind: str, folder: Path, link_count: int, fsync: bool) -> None:
    if kind == "quota":
        set_quota(100_000)
    archive = Archive(settings(folder, fsync=fsync, max_bytes=MAX_BYTES[kind]))
    await archive.start()
    noise = random.Random(1)
    links = tuple(Link(f"https://site.test/{n}") for n in range(link_count))
    refused = groups = after = 0
    while after < 3:
        group = [page(exchange(f"{groups * 4 + n}", noise.randbytes(3_000)), links=links) for n in range(4)]
        after += refused > 0
        while True:
            before = contents(folder)
            try:
                await archive.write(group)
                break
            except SinkFull:
                refused += 1
                assert contents(folder).items() >= before.items()
                if refused == 3:
                    raise_fd_limit(kind, folder)
        groups += 1
    await archive.stop()
    print(refused, groups)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), "fsync" in sys.argv[4:]))
