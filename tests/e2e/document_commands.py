"""The commands of a document, and a place to type them as written: a clone of the repository, a web at https://example.com
and its neighbours, and a Valkey at redis://queue:6379.

Only the environment differs from a user's: names lead to this machine, pip takes dependencies from here, and the delay is
short unless a command sets it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import trustme

from tests.e2e.harness import PATIENCE_S, ROOT, Finished, Running, wait_until
from tests.site import TEXT, Reply, Request, Site

HOSTS = ("example.com", "example.org", "example.net")


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """The commands of a shell block, without comments."""
    lines = (re.sub(r"(?:^|\s+)# .*", "", line) for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if line.strip()]


class DocumentedSite(Site):
    """Three pages at every host, over TLS: the root links to the others, and to `/private/`, which is disallowed.
    Pages below the root are served while `serving` is set."""

    pages = 3

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.serving = Event()
        self.serving.set()
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*HOSTS).configure_cert(context)
        self.certificates = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.certificates))
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def environment(self) -> dict[str, str]:
        """What a crawler needs to find and trust the hosts."""
        return {
            "CRAWLER_FETCH__HOST_MAP": json.dumps(self.host_map(*HOSTS)),
            "SSL_CERT_FILE": str(self.certificates),
        }

    def respond(self, request: Request) -> Reply:
        path = request.path
        if path == "/robots.txt":
            return Reply("User-agent: *\nDisallow: /private/\n", headers=TEXT)
        if path == "/sitemap.xml":
            return Reply("not found", 404, headers=TEXT)
        if path != "/":
            self.serving.wait(PATIENCE_S)
        links = " ".join(f'<a href="{link}">{link}</a>' for link in ("/private/", "/about", "/contact"))
        page = f"<title>{path}</title><p>The page {path} of a small site.<p>{links}"
        return Reply(page, headers={"Content-Type": "text/html; charset=utf-8"})


def cloned(folder: Path) -> Path:
    """A clone of the repository, with changes that are not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def named_queue(folder: Path, port: int) -> Path:
    """A folder for PYTHONPATH: the host `queue` is this machine, and its port 6379 is `port`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import socket\n"
        "found = socket.getaddrinfo\n"
        "def lookup(host, service, *rest, **options):\n"
        f"    at = ('127.0.0.1', {port}) if host == 'queue' else (host, service)\n"
        "    return found(*at, *rest, **options)\n"
        "socket.getaddrinfo = lookup\n"
    )
    return folder


class Shell:
    """A terminal in which a reader of a document types. `environment`: on top of this process's."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("CRAWLER_", "PYTHON", "PIP_"))
        }
        self._environment = {**kept, **environment}
        self._typed = 0

    def type(self, line: str, code: int = 0) -> Finished:
        """Run a command to its end. Raises AssertionError, with its output, if the exit code is not `code`."""
        done = self.start(line).wait()
        assert done.code == code, f"{line}\nexit code {done.code}\n{done.out}\n{done.err}"
        assert "Traceback" not in done.out + done.err, f"{line}\n{done.err}"
        if entered := re.search(r"(?:^|&& )cd (\S+)$", line):
            self.folder /= entered[1]
        return done

    def start(self, line: str) -> Running:
        """Start a command. The shell becomes the command, so that a signal reaches it."""
        self._typed += 1
        run = line if re.search(r"[&|;()]", line) else f"exec {line}"
        words = ["env", "-i", *(f"{name}={value}" for name, value in self._environment.items()), "bash", "-c", run]
        return Running(words, self.folder, f"typed-{self._typed}", {})

    @contextmanager
    def running(self, line: str) -> Iterator[Running]:
        """A command that runs until it is stopped by Ctrl-C, while the block runs. It has to end cleanly."""
        running = self.start(line)
        try:
            yield running
            assert running.is_running, f"{line}\n{running.err}"
            running.send(signal.SIGINT)
            done = running.wait()
            assert done.code == 0, f"{line}\nexit code {done.code}\n{done.err}"
        finally:
            if running.is_running:
                running.kill()


def started(running: Running, count: int) -> list[str]:
    """The addresses of the `count` replicas that `running` starts, once all have logged theirs."""

    def enough() -> list[str]:
        assert running.is_running, running.err
        logged = re.findall(r"replica_started .*address=(\S+)", running.err)
        return logged if len(logged) >= count else []

    found: list[str] = wait_until(enough, f"{count} replicas")
    return found


def packages() -> str:
    """The folder of the dependencies, for PYTHONPATH. Python reads no .pth file there that leads to the source tree."""
    return sysconfig.get_paths()["purelib"]
