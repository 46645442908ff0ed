"""What all applications of these tests need: a running server, and the names of its pages."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.e2e.harness import ROOT, wait_until
from tests.ports import free_port

PEERS = ROOT / ".peers/bin" if "PEERS" not in os.environ else Path(os.environ["PEERS"]).parent
PAGES = 30


@dataclass(frozen=True)
class Site:
    """A running application. `content`: its pages by name. `named`: finds the name in the path and query of such a page, as
    its first group. `log`: what the server wrote. `cookie`: that of a session, in which `private` is shown."""

    url: str
    content: frozenset[str]
    named: str
    log: Path
    cookie: str = ""
    private: str = ""

    def page(self, url: str) -> str | None:
        """The name of the content page at `url`, or None."""
        parts = urlsplit(url)
        found = re.fullmatch(self.named, unquote(parts.path) + (f"?{parts.query}" if parts.query else ""))
        name = next((group for group in found.groups() if group is not None), "") if found else None
        return name if name in self.content else None


def numbered(pattern: str, count: int = PAGES) -> frozenset[str]:
    return frozenset(pattern.format(number) for number in range(1, count + 1))


def prose(number: int) -> str:
    """Text of page `number` that no other page has."""
    words = (
        "council",
        "library",
        "budget",
        "harbour",
        "garden",
        "minutes",
        "bridge",
        "school",
        "forest",
        "market",
        "museum",
    )
    first = [words[(number * step + step) % len(words)] for step in range(1, 40)]
    return f"Report {number} of the committee. " + " ".join(
        f"{word}{number * index % 97}" for index, word in enumerate(first)
    )


def run(*words: str | Path, folder: Path, stdin: str = "", **environment: str) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(
        words, cwd=folder, input=stdin, check=False, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-500:]}{done.stderr[-1_000:]}"
    return done.stdout


@contextlib.contextmanager
def serving(
    words: list[str | Path],
    folder: Path,
    content: frozenset[str],
    named: str,
    start: str = "/",
    port: int = 0,
    **environment: str,
) -> Iterator[Site]:
    """Run a server at `port`, which `words` names as PORT, while the block runs."""
    port = port or free_port()
    url, log = f"http://127.0.0.1:{port}{start}", folder / "server.log"
    command = [str(word).replace("PORT", str(port)) for word in words]
    with log.open("wb") as out, subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **environment},
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            wait_until(lambda: _answers(port) or process.poll() is not None, "the server", 120)
            assert process.poll() is None, log.read_text()[-2_000:]
            yield Site(url, content, named, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # PHP leaves its workers behind


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
