"""A browser process: which program it is, what it may do on this machine, and how it ends.

It is started through programs of util-linux, if they are there and may do this: `unshare` gives it a network namespace
without an interface, so that the kernel keeps it from the network, and a process namespace, which ends with it; `setpriv`
another user, if we are root, and the end with this process. Chromium's own sandbox stays on if it can be.

It is killed, and never asked to close: it may hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from crawler.browser.pipe import Listener, Pipe, PipeError
from crawler.errors import BrowserFailed

PROGRAMS = (
    "/usr/lib/chromium/chromium-headless-shell",  # Debian's own name in PATH is a script that adds its settings
    "/usr/lib/chromium/chromium",
    "chromium-headless-shell",
    "chrome-headless-shell",
    "headless_shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
"""Where a browser is looked for, in this order. The headless shell takes a fifth of the time of the others."""

INSTALL = "install one: apt install chromium-headless-shell"

START_S = 20.0
"""How long a browser may take to start: 0.1 s on an idle machine."""

DYING_S, DYING_STEPS = 1.0, 50
"""How long to wait for killed processes to end, and how often to look."""

NOBODY = 65534
FOLDER = "peercrawl-browser-"
LITTLE_SHARED_MEMORY = 1 << 30

IsolationKind = Literal["namespace", "flags"]

_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-3d-apis",  # WebGL in software takes all memory
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--disable-default-apps",
    "--disable-extensions",
    "--no-pings",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--metrics-recording-only",
    "--password-store=basic",
    "--use-mock-keychain",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-ipc-flooding-protection",
    "--disable-hang-monitor",
    "--disable-popup-blocking",
    "--block-new-web-contents",  # windows are links; to open and close each takes 50 ms of CPU
    "--disable-prompt-on-repost",
    "--disable-features=Translate,MediaRouter,OptimizationHints,AutofillServerCommunication,"
    "CertificateTransparencyComponentUpdater,DialMediaRouteProvider,InterestFeedContentSuggestions,Prerender2,"
    "BackForwardCache,AcceptCHFrame,PaintHolding",
    "--enable-features=NetworkServiceInProcess2",
    "--lang=en-US",
    # The fences without a namespace: names, connections, WebRTC of the headless shell and that of Chrome.
    "--disable-quic",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--remote-debugging-pipe",
)


class Isolation(NamedTuple):
    """What keeps a browser from network and machine. `words`: of the command before the browser's own; `is_sandboxed`:
    whether Chromium's sandbox works; `why`: what this machine does not allow, empty if it allows everything."""

    kind: IsolationKind
    words: tuple[str, ...] = ()
    is_sandboxed: bool = True
    why: str = ""


def find_browser(path: str = "") -> str:
    """The browser at `path`, or the best one that is installed. Raises BrowserFailed."""
    if path:
        if not os.access(path, os.X_OK):
            raise BrowserFailed(f"replica.browser: {path} is no program")
        return path
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise BrowserFailed(f"no browser is installed; {INSTALL}")


@cache
def find_isolation(wanted: IsolationKind | Literal["auto"] = "auto") -> Isolation:
    """The best isolation that this machine allows, of the kind `wanted`. Takes some tens of ms once. Raises BrowserFailed
    if it does not allow this kind."""
    if sys.platform != "linux":
        if wanted == "namespace":
            raise BrowserFailed("replica.browser_isolation: only Linux has namespaces")
        return Isolation("flags", why="only Linux has namespaces")
    is_root, found = os.geteuid() == 0, None
    end_with_us = ("setpriv", "--pdeathsig", "KILL", "--")
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig", "KILL", "--")
    as_user = user if is_root else ()
    mapped = () if is_root else ("--user", "--map-current-user")
    why = "it was not wanted"
    for own_proc in ((), ("--mount-proc",)) if wanted != "flags" else ():  # containers refuse the last one
        alone = ("unshare", *mapped, "--net", "--pid", "--fork", "--kill-child", *own_proc, "--")
        if not (why := _failure(*alone, *as_user)):
            words = (*end_with_us, *alone, *as_user)
            found = Isolation("namespace", words, _runs(*alone, *as_user, "unshare", "--user", "--"))
    if found is not None:
        return found
    if wanted == "namespace":
        raise BrowserFailed(f"replica.browser_isolation: this machine allows no network namespace ({why})")
    words = as_user if as_user and _runs(*as_user) else end_with_us if _runs(*end_with_us) else ()
    return Isolation("flags", words, _runs(*words, "unshare", "--user", "--"), why)


def _runs(*words: str) -> bool:
    return not _failure(*words)


def _failure(*words: str) -> str:
    """What a program says that is started with the prefix `words`, and fails; empty if it works."""
    try:
        done = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def sweep_folders() -> int:
    """Remove the folders of browsers whose crawler was killed. Returns their number."""
    removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its crawler holds it as long as it runs
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
            finally:
                os.close(lock)
    return removed


class Chromium:
    """One browser and all its processes. `version`: as it names itself; `pages`: how many it has shown."""

    def __init__(self, program: str, isolation: Isolation, user_agent: str, memory: int) -> None:
        self._program = program
        self._isolation = isolation
        self._user_agent = user_agent
        self._memory = memory
        self.version = ""
        self.pages = 0
        self._pid = self._lock = 0

    def __repr__(self) -> str:
        return f"<Chromium {self._isolation.kind} pid={self._pid} pages={self.pages}>"

    async def start(self, listener: Listener) -> None:
        """Start it, and pass its events to `listener`. Raises BrowserFailed."""
        self.pipe = Pipe(listener)
        try:
            self._spawn()
            await self.pipe.open(self._read_fd, self._write_fd)
            async with asyncio.timeout(START_S):
                version = await self.pipe.call("Browser.getVersion")
        except (OSError, PipeError, TimeoutError) as error:
            said = self._said()
            await self.kill()
            why = said or (f"no answer in {START_S:.0f} s" if isinstance(error, TimeoutError) else str(error))
            raise BrowserFailed(f"{self._program} does not start: {why}") from error
        except BaseException:
            await self.kill()
            raise
        self.version = version["product"]

    def _spawn(self) -> None:
        while not self._lock:
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDER))
            with contextlib.suppress(FileNotFoundError):  # another crawler has swept it before it was locked
                self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        if os.geteuid() == 0 and self._isolation.words:
            os.chown(self._folder, NOBODY, NOBODY)
        # All its processes inherit this limit: a script gets a RangeError, and the page lives.
        limited = ["/bin/sh", "-c", 'ulimit -d "$0" && exec "$@"', str(self._memory >> 10)]
        words = [*limited, *self._isolation.words, self._program, *_FLAGS, f"--user-agent={self._user_agent}"]
        words += [f"--user-data-dir={self._folder}"]
        words += [] if self._isolation.is_sandboxed else ["--no-sandbox"]
        words += ["--disable-dev-shm-usage"] if shared_memory() < LITTLE_SHARED_MEMORY else []
        home = str(self._folder)
        environment = {"PATH": os.defpath, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "TZ": "UTC"}
        environment |= {"XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
        theirs_in, ours_out = map(_above_standard, os.pipe())
        ours_in, theirs_out = map(_above_standard, os.pipe())
        self._read_fd, self._write_fd = ours_in, ours_out
        log = os.open(self._folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._pid = os.posix_spawn(
                words[0],
                [*words, "about:blank"],
                environment,
                setsid=True,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs_in, 3),
                    (os.POSIX_SPAWN_DUP2, theirs_out, 4),
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
            )
        finally:
            for fd in (theirs_in, theirs_out, log):
                os.close(fd)

    def _said(self) -> str:
        with contextlib.suppress(OSError, IndexError):
            return (self._folder / "log").read_text(errors="replace").strip().splitlines()[-1][-300:]
        return ""

    def memory(self) -> int:
        """Bytes of anonymous memory of all its processes. Reads the table of processes: 10 us for each."""
        return sum(_anonymous(pid) for pid in processes_below(self._pid)) if self._pid else 0

    async def kill(self) -> None:
        """End all its processes, and remove its folder."""
        pids, self._pid = processes_below(self._pid) if self._pid else [], 0
        _kill(pids)
        self.pipe.close()
        for _ in range(DYING_STEPS):  # until the last one has closed its files
            if not _any_exists(pids):
                break
            _reap(pids)
            await asyncio.sleep(DYING_S / DYING_STEPS)
        lock, self._lock = self._lock, 0
        if lock:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(lock)


def _kill(pids: Sequence[int]) -> None:
    """Kill these processes, and the group of the first, which is our child."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if pids:
        with contextlib.suppress(OSError):
            os.killpg(pids[0], signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(pids[0], 0)


def _reap(pids: Sequence[int]) -> None:
    """Take leave of those of these processes that became our children, as those without a parent do if we are process 1."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.waitpid(pid, os.WNOHANG)


def _any_exists(pids: Sequence[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def _above_standard(fd: int) -> int:
    """`fd` with a number that is none of those that a browser's pipes get."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(fd)
    return moved


def processes_below(pid: int) -> list[int]:
    """`pid` and its descendants."""
    children: dict[int, list[int]] = {}
    if Path("/proc/self/stat").exists():
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    parent = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1]
                    children.setdefault(int(parent), []).append(int(entry.name))
    found = [pid]
    for member in found:  # which grows
        found += children.get(member, [])
    return found


def _anonymous(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def shared_memory() -> int:
    """Bytes that /dev/shm has; many where there is none."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return LITTLE_SHARED_MEMORY if sys.platform != "linux" else 0
    return found.f_frsize * found.f_blocks
