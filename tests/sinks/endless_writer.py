"""A process that writes groups of pages forever, and prints the URLs of each group when it is durable.

python -m tests.sinks.endless_writer FOLDER gzip|zstd
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from crawler.sinks.archive import Archive
from tests.sinks.values import exchange, page, settings


async def main(folder: Path, compression: str) -> None:
    archive = Archive(settings(folder, replica="doomed", max_bytes=2_000_000, compression=compression))
    await archive.start()
    noise = random.Random(1)
    number = 0
    while True:
        group = [page(exchange(f"{n}", noise.randbytes(20_000))) for n in range(number, number + 8)]
        number += 8
        await archive.write(group)
        print(*(one.url for one in group), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
