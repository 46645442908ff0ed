"""One append-only file of the archive, and what happens to it when there is no room.

While it is written a segment carries the suffix `.open` and an exclusive `flock`, which the kernel drops with the
process: an `.open` file that can be locked has no living writer. A finished segment has its plain name and never
changes again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from crawler.errors import SinkFull, UserError

OPEN_SUFFIX = ".open"
LINES = ".pages.jsonl"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Segment:
    """A file that only this process appends to. Every method but `close` raises OSError as the system gives it."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.size = 0
        self.header_size = 0
        self._fd = fd

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} {self.size} bytes>"

    @classmethod
    def create(cls, path: Path) -> Segment:
        """A new segment that will be called `path` when it is finished. Raises FileExistsError if the name is taken."""
        if path.exists():
            raise FileExistsError(errno.EEXIST, "a finished file has this name", str(path))
        opened = open_path(path)
        while True:
            fd = os.open(opened, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if is_same_file(fd, opened):
                return cls(path, fd)
            # A recovery came in between, took the empty file for a dead writer's, and removed it.
            os.close(fd)

    def begin(self, header: bytes) -> None:
        """Append what a file starts with; a segment that never holds more is not kept."""
        self.append(header)
        self.header_size = self.size

    def append(self, data: bytes) -> None:
        """Append all of `data`. After an error part of it may be in the file until `cut`."""
        rest = memoryview(data)
        while rest:
            # A disk that fills up takes part of the bytes first and fails the next call.
            rest = rest[os.write(self._fd, rest) :]
        self.size += len(data)

    def read(self, start: int) -> bytes:
        """Everything from the byte `start` on."""
        return os.pread(self._fd, self.size - start, start)

    def cut(self, size: int) -> None:
        """Take back everything after the first `size` bytes."""
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        """Return when the disk has everything appended."""
        os.fdatasync(self._fd)

    def finish(self) -> bool:
        """Give the file its plain name, or remove it when nothing but its header was written, and unlock it. Returns
        whether it was kept."""
        if self.size <= self.header_size:
            self.remove()
            return False
        open_path(self.path).rename(self.path)
        self.close()
        return True

    def remove(self) -> None:
        """Remove the file and unlock it."""
        open_path(self.path).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Unlock the file, once, and leave it as it is: a recovery may finish it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # what a close can report was reported by append or sync
                os.close(fd)


def open_path(path: Path) -> Path:
    """The name of the segment `path` while it is written."""
    return path.with_name(path.name + OPEN_SUFFIX)


def try_lock(fd: int) -> bool:
    """Whether the exclusive lock on `fd` is now ours."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_same_file(fd: int, path: Path) -> bool:
    """Whether `path` still names the file behind `fd`."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Return when the disk has the names in `folder`."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Turn the system's errors into ours: SinkFull when room is missing, UserError for all else."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SinkFull(f"no room in {folder}: {error.strerror}") from error
        raise UserError(f"cannot write in {folder}: {error}") from error
