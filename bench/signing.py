"""CPU of the signature of a request: nonce, text, Ed25519 and the three header lines.

    python -m bench.signing [--batches 40]

The median of batches of 1,000 signatures, at full speed (`bench.speed`). `python -m bench.throughput --signed`
measures whole crawls with and without an identity.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.measure import Figure, median
from bench.speed import speedometer
from crawler.identity.keys import make_key
from crawler.identity.web_bot_auth import RequestSigner

DIRECTORY = "https://crawler.example.com/.well-known/http-message-signatures-directory"
MOST_US = 60.0
BATCH = 1_000


def signature_us(batches: int) -> float:
    """Microseconds of CPU for one signature, at full speed."""
    meter = speedometer()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        signer = RequestSigner(make_key(Path(scratch) / "key.pem"), DIRECTORY, 60)
    time.sleep(1.0)  # the meter gets to know full speed
    took = []
    for _ in range(batches):
        since, before = time.monotonic(), time.thread_time()
        for _ in range(BATCH):
            signer("GET", "www.example.com", "/some/path?query", since)
        cpu_s = time.thread_time() - before
        took.append(cpu_s * meter.mean(since - 0.4, time.monotonic()) / BATCH * 1e6)
    return median(took)


def short() -> list[Figure]:
    """For the table of all benchmarks."""
    us = signature_us(10)
    return [Figure("signing", "CPU of a signed request", us, "us", f"<= {MOST_US:g}", us <= MOST_US)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40)
    print(f"{signature_us(parser.parse_args().batches):.1f} us of CPU a signature, at full speed")


if __name__ == "__main__":
    main()
